"""Rules in, verdict and explanation out: Cedar rules, the config's lists, protected paths and labels. No I/O, no clock."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.policy.claude_permissions import ImportedRules, import_permissions
    from curtainwall.policy.corpus import Judged, Result, Trial, judge_trial, read_corpus, run_corpus
    from curtainwall.policy.entities import SessionFacts
    from curtainwall.policy.explanation import Explanation, explain
    from curtainwall.policy.judgement import denies_path, judge, labels_of
    from curtainwall.policy.lists import Lists, covers_host, host_entry
    from curtainwall.policy.loader import load
    from curtainwall.policy.protection import SECRET_PATTERNS, Protection, is_secret_name
    from curtainwall.policy.rulebook import Policy, closed, may_disable
    from curtainwall.policy.rules import NEVER_BYPASSED, PROJECT_EDIT, SCHEMA, RuleCard, RuleSource, shipped
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "NEVER_BYPASSED",
    "PROJECT_EDIT",
    "SCHEMA",
    "SECRET_PATTERNS",
    "Explanation",
    "ImportedRules",
    "Judged",
    "Lists",
    "Policy",
    "Protection",
    "Result",
    "RuleCard",
    "RuleSource",
    "SessionFacts",
    "Trial",
    "closed",
    "covers_host",
    "denies_path",
    "explain",
    "host_entry",
    "import_permissions",
    "is_secret_name",
    "judge",
    "judge_trial",
    "labels_of",
    "load",
    "may_disable",
    "read_corpus",
    "run_corpus",
    "shipped",
]
