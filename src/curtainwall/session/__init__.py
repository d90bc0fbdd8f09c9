"""The pure core: commands in, events out, state as the fold of the log. It reads no clock and does no I/O."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import exports_of, lazy_names

if TYPE_CHECKING:
    from curtainwall.session.blobs import blobs_of as blobs_of
    from curtainwall.session.blobs import logged_bytes as logged_bytes
    from curtainwall.session.calls import MANY_CHANGES as MANY_CHANGES
    from curtainwall.session.calls import MANY_RESOURCES as MANY_RESOURCES
    from curtainwall.session.calls import needs_program as needs_program
    from curtainwall.session.calls import with_program as with_program
    from curtainwall.session.card import LONGEST_PLAN as LONGEST_PLAN
    from curtainwall.session.card import card_text as card_text
    from curtainwall.session.card import label_words as label_words
    from curtainwall.session.card import quoted_path as quoted_path
    from curtainwall.session.card import shows_all as shows_all
    from curtainwall.session.decide import TASK_DONE as TASK_DONE
    from curtainwall.session.decide import decide as decide
    from curtainwall.session.decide import decide_by_log as decide_by_log
    from curtainwall.session.decide import is_decided_by_log as is_decided_by_log
    from curtainwall.session.decide import require_short_name as require_short_name
    from curtainwall.session.diagnostics import Diagnostic as Diagnostic
    from curtainwall.session.diagnostics import DiagnosticKind as DiagnosticKind
    from curtainwall.session.diagnostics import DiagnosticLog as DiagnosticLog
    from curtainwall.session.diagnostics import diagnose as diagnose
    from curtainwall.session.draft import Decided as Decided
    from curtainwall.session.draft import decide_on as decide_on
    from curtainwall.session.draft import draft_after as draft_after
    from curtainwall.session.evolve import apply as apply
    from curtainwall.session.evolve import evolve as evolve
    from curtainwall.session.evolve import fold as fold
    from curtainwall.session.fold_version import FOLD_VERSION as FOLD_VERSION
    from curtainwall.session.in_force import rules_in_force as rules_in_force
    from curtainwall.session.limits import ASKS_KEPT as ASKS_KEPT
    from curtainwall.session.limits import DIGESTS_KEPT as DIGESTS_KEPT
    from curtainwall.session.limits import BreakerLimits as BreakerLimits
    from curtainwall.session.limits import Figure as Figure
    from curtainwall.session.limits import figures as figures
    from curtainwall.session.limits import newest as newest
    from curtainwall.session.limits import remember_ask as remember_ask
    from curtainwall.session.limits import remember_repeat as remember_repeat
    from curtainwall.session.open_work import CallStatus as CallStatus
    from curtainwall.session.open_work import OpenApproval as OpenApproval
    from curtainwall.session.open_work import OpenCall as OpenCall
    from curtainwall.session.open_work import OpenWork as OpenWork
    from curtainwall.session.open_work import pending_ask as pending_ask
    from curtainwall.session.peers import answer_arguments as answer_arguments
    from curtainwall.session.peers import may_receive as may_receive
    from curtainwall.session.peers import posts_of as posts_of
    from curtainwall.session.peers import refusal_text as refusal_text
    from curtainwall.session.peers import rejection_posts as rejection_posts
    from curtainwall.session.peers import require_no_cycle as require_no_cycle
    from curtainwall.session.peers import unanswerable as unanswerable
    from curtainwall.session.replay import BlobCheck as BlobCheck
    from curtainwall.session.replay import Violation as Violation
    from curtainwall.session.replay import replay as replay
    from curtainwall.session.rest import is_at_rest as is_at_rest
    from curtainwall.session.rules import ActiveRules as ActiveRules
    from curtainwall.session.rules import RuleOwner as RuleOwner
    from curtainwall.session.rules import Rules as Rules
    from curtainwall.session.rules import SessionRules as SessionRules
    from curtainwall.session.rules import table_of as table_of
    from curtainwall.session.snapshot import KeptFold as KeptFold
    from curtainwall.session.snapshot import decode_fold as decode_fold
    from curtainwall.session.snapshot import encode_fold as encode_fold
    from curtainwall.session.standing_answers import ProjectState as ProjectState
    from curtainwall.session.standing_answers import Since as Since
    from curtainwall.session.standing_answers import covered as covered
    from curtainwall.session.standing_answers import covers_of as covers_of
    from curtainwall.session.standing_answers import decide_project as decide_project
    from curtainwall.session.standing_answers import fold_project as fold_project
    from curtainwall.session.standing_answers import scope_of_answer as scope_of_answer
    from curtainwall.session.standing_answers import standing_answer as standing_answer
    from curtainwall.session.standing_answers import still_permitted as still_permitted
    from curtainwall.session.state import SETTLED_KEPT as SETTLED_KEPT
    from curtainwall.session.state import ChangeProposal as ChangeProposal
    from curtainwall.session.state import Phase as Phase
    from curtainwall.session.state import SessionState as SessionState
    from curtainwall.session.state import Settled as Settled
    from curtainwall.session.state import Spent as Spent
    from curtainwall.session.state import Totals as Totals
    from curtainwall.session.state import is_application as is_application
    from curtainwall.session.steps import AcceptedStep as AcceptedStep
    from curtainwall.session.steps import Application as Application
    from curtainwall.session.steps import StepHistory as StepHistory
    from curtainwall.session.steps import change_steps as change_steps
    from curtainwall.session.text import inert as inert
    from curtainwall.session.text import visible as visible
    from curtainwall.session.transcript import Transcript as Transcript
    from curtainwall.session.transcript import TranscriptMessage as TranscriptMessage
    from curtainwall.session.transcript import TranscriptNote as TranscriptNote
    from curtainwall.session.transcript import TranscriptTurn as TranscriptTurn
    from curtainwall.session.transcript import note_of as note_of
    from curtainwall.session.transcript import transcript as transcript
    from curtainwall.session.upcast import LIFTS as LIFTS
    from curtainwall.session.upcast import Lift as Lift
    from curtainwall.session.upcast import lift as lift
else:
    __getattr__ = lazy_names(__name__)


class _Core(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # INVARIANT: a public name is never a module, even if a module of the same name, such as `decide`, was imported first.
        if not isinstance(value, ModuleType) or name not in exports_of(__name__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Core
