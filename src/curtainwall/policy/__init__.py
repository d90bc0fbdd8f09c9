"""Rules in, verdict and explanation out: Cedar rules, the config's lists, protected paths and labels. No I/O, no clock."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.policy.claude_permissions import ImportedRules as ImportedRules
    from curtainwall.policy.claude_permissions import import_permissions as import_permissions
    from curtainwall.policy.corpus import Judged as Judged
    from curtainwall.policy.corpus import Result as Result
    from curtainwall.policy.corpus import Trial as Trial
    from curtainwall.policy.corpus import judge_trial as judge_trial
    from curtainwall.policy.corpus import read_corpus as read_corpus
    from curtainwall.policy.corpus import run_corpus as run_corpus
    from curtainwall.policy.entities import SessionFacts as SessionFacts
    from curtainwall.policy.explanation import Explanation as Explanation
    from curtainwall.policy.explanation import explain as explain
    from curtainwall.policy.judgement import denied_among as denied_among
    from curtainwall.policy.judgement import denies_path as denies_path
    from curtainwall.policy.judgement import judge as judge
    from curtainwall.policy.judgement import labels_of as labels_of
    from curtainwall.policy.lists import Lists as Lists
    from curtainwall.policy.lists import covers_host as covers_host
    from curtainwall.policy.lists import host_entry as host_entry
    from curtainwall.policy.loader import load as load
    from curtainwall.policy.protection import SECRET_PATTERNS as SECRET_PATTERNS
    from curtainwall.policy.protection import Protection as Protection
    from curtainwall.policy.protection import is_secret_name as is_secret_name
    from curtainwall.policy.rulebook import Policy as Policy
    from curtainwall.policy.rulebook import closed as closed
    from curtainwall.policy.rulebook import may_disable as may_disable
    from curtainwall.policy.rules import NEVER_BYPASSED as NEVER_BYPASSED
    from curtainwall.policy.rules import PROJECT_EDIT as PROJECT_EDIT
    from curtainwall.policy.rules import SCHEMA as SCHEMA
    from curtainwall.policy.rules import RuleCard as RuleCard
    from curtainwall.policy.rules import RuleSource as RuleSource
    from curtainwall.policy.rules import shipped as shipped
else:
    __getattr__ = lazy_names(__name__)
