"""The pure core: commands in, events out, state as the fold of the log. It reads no clock and does no I/O."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.session.breaker import ASKS_KEPT, DIGESTS_KEPT, BreakerLimits, newest, remember_ask, remember_repeat
    from curtainwall.session.budget import Figure, figures
    from curtainwall.session.calls import MANY_RESOURCES, needs_program, with_program
    from curtainwall.session.card import card_text, inert, label_words, shows_all, visible
    from curtainwall.session.decide import decide, decide_by_log, is_decided_by_log
    from curtainwall.session.diagnostics import Diagnostic, DiagnosticKind, diagnose
    from curtainwall.session.evolve import apply, evolve, fold
    from curtainwall.session.in_force import rules_in_force
    from curtainwall.session.names import see_name
    from curtainwall.session.open_work import OpenApproval, OpenCall, OpenWork, Standing, pending_ask
    from curtainwall.session.peers import answer_arguments, in_words, may_receive, posts_of, see_that_it_ends, turned_away, unanswerable
    from curtainwall.session.plans import LONGEST_PLAN
    from curtainwall.session.project import ProjectState, decide_project, fold_project
    from curtainwall.session.replay import BlobCheck, Violation, blobs_of, replay
    from curtainwall.session.rest import is_at_rest
    from curtainwall.session.rules import Rules, Whose, table_of
    from curtainwall.session.standing_answers import Since, covered, covers_of, reach, standing_answer, still_permitted
    from curtainwall.session.state import SETTLED_KEPT, Phase, SessionState, Settled, Spent, Totals
    from curtainwall.session.transcript import Said, Transcript, Turn, transcript
    from curtainwall.session.upcast import LIFTS, Lift, lift
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "ASKS_KEPT",
    "DIGESTS_KEPT",
    "LIFTS",
    "LONGEST_PLAN",
    "MANY_RESOURCES",
    "SETTLED_KEPT",
    "BlobCheck",
    "BreakerLimits",
    "Diagnostic",
    "DiagnosticKind",
    "Figure",
    "Lift",
    "OpenApproval",
    "OpenCall",
    "OpenWork",
    "Phase",
    "ProjectState",
    "Rules",
    "Said",
    "SessionState",
    "Settled",
    "Since",
    "Spent",
    "Standing",
    "Totals",
    "Transcript",
    "Turn",
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
    "decide_project",
    "diagnose",
    "evolve",
    "figures",
    "fold",
    "fold_project",
    "in_words",
    "inert",
    "is_at_rest",
    "is_decided_by_log",
    "label_words",
    "lift",
    "may_receive",
    "needs_program",
    "newest",
    "pending_ask",
    "posts_of",
    "reach",
    "remember_ask",
    "remember_repeat",
    "replay",
    "rules_in_force",
    "see_name",
    "see_that_it_ends",
    "shows_all",
    "standing_answer",
    "still_permitted",
    "table_of",
    "transcript",
    "turned_away",
    "unanswerable",
    "visible",
    "with_program",
]


class _Core(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # INVARIANT: a public name is never a module, also where a module of that name, as `decide`, is imported first.
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Core
