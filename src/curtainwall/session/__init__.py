"""The pure core: commands in, events out, state as the fold of the log. It reads no clock and does no I/O."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.session.blobs import blobs_of, logged_bytes
    from curtainwall.session.calls import MANY_RESOURCES, needs_program, with_program
    from curtainwall.session.card import LONGEST_PLAN, card_text, label_words, shows_all
    from curtainwall.session.decide import TASK_DONE, decide, decide_by_log, is_decided_by_log, require_short_name
    from curtainwall.session.diagnostics import Diagnostic, DiagnosticKind, DiagnosticLog, diagnose
    from curtainwall.session.draft import Decided, decide_on, draft_after
    from curtainwall.session.evolve import apply, evolve, fold
    from curtainwall.session.fold_version import FOLD_VERSION
    from curtainwall.session.in_force import rules_in_force
    from curtainwall.session.limits import (
        ASKS_KEPT,
        DIGESTS_KEPT,
        BreakerLimits,
        Figure,
        figures,
        newest,
        remember_ask,
        remember_repeat,
    )
    from curtainwall.session.open_work import CallStatus, OpenApproval, OpenCall, OpenWork, pending_ask
    from curtainwall.session.peers import (
        answer_arguments,
        may_receive,
        posts_of,
        refusal_text,
        rejection_posts,
        require_no_cycle,
        unanswerable,
    )
    from curtainwall.session.replay import BlobCheck, Violation, replay
    from curtainwall.session.rest import is_at_rest
    from curtainwall.session.rules import ActiveRules, Rules, SessionRules, Whose, table_of
    from curtainwall.session.snapshot import KeptFold, decode_fold, encode_fold
    from curtainwall.session.standing_answers import (
        ProjectState,
        Since,
        covered,
        covers_of,
        decide_project,
        fold_project,
        scope_of_answer,
        standing_answer,
        still_permitted,
    )
    from curtainwall.session.state import SETTLED_KEPT, Phase, SessionState, Settled, Spent, Totals
    from curtainwall.session.text import inert, visible
    from curtainwall.session.transcript import Transcript, TranscriptMessage, TranscriptNote, TranscriptTurn, note_of, transcript
    from curtainwall.session.upcast import LIFTS, Lift, lift
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "ASKS_KEPT",
    "DIGESTS_KEPT",
    "FOLD_VERSION",
    "LIFTS",
    "LONGEST_PLAN",
    "MANY_RESOURCES",
    "SETTLED_KEPT",
    "TASK_DONE",
    "ActiveRules",
    "BlobCheck",
    "BreakerLimits",
    "CallStatus",
    "Decided",
    "Diagnostic",
    "DiagnosticKind",
    "DiagnosticLog",
    "Figure",
    "KeptFold",
    "Lift",
    "OpenApproval",
    "OpenCall",
    "OpenWork",
    "Phase",
    "ProjectState",
    "Rules",
    "SessionRules",
    "SessionState",
    "Settled",
    "Since",
    "Spent",
    "Totals",
    "Transcript",
    "TranscriptMessage",
    "TranscriptNote",
    "TranscriptTurn",
    "Violation",
    "Whose",
    "answer_arguments",
    "apply",
    "blobs_of",
    "card_text",
    "covered",
    "covers_of",
    "decide",
    "decide_by_log",
    "decide_on",
    "decide_project",
    "decode_fold",
    "diagnose",
    "draft_after",
    "encode_fold",
    "evolve",
    "figures",
    "fold",
    "fold_project",
    "inert",
    "is_at_rest",
    "is_decided_by_log",
    "label_words",
    "lift",
    "logged_bytes",
    "may_receive",
    "needs_program",
    "newest",
    "note_of",
    "pending_ask",
    "posts_of",
    "refusal_text",
    "rejection_posts",
    "remember_ask",
    "remember_repeat",
    "replay",
    "require_no_cycle",
    "require_short_name",
    "rules_in_force",
    "scope_of_answer",
    "shows_all",
    "standing_answer",
    "still_permitted",
    "table_of",
    "transcript",
    "unanswerable",
    "visible",
    "with_program",
]


class _Core(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # INVARIANT: a public name is never a module, even if a module of the same name, such as `decide`, was imported first.
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Core
