"""The pure core: commands in, events out, state as the fold of the log. It reads no clock and does no I/O."""

from curtainwall.session.breaker import (
    ASKS_KEPT,
    DIGESTS_KEPT,
    BreakerLimits,
    newest,
    remember_ask,
    remember_repeat,
)
from curtainwall.session.budget import (
    Figure,
    figures,
)
from curtainwall.session.calls import (
    MANY_RESOURCES,
)
from curtainwall.session.card import (
    card_text,
    inert,
    label_words,
    shows_all,
    visible,
)
from curtainwall.session.decide import (
    decide,
)
from curtainwall.session.diagnostics import (
    Diagnostic,
    DiagnosticKind,
    diagnose,
)
from curtainwall.session.evolve import (
    apply,
    evolve,
    fold,
)
from curtainwall.session.in_force import (
    rules_in_force,
)
from curtainwall.session.naming import (
    see_name,
)
from curtainwall.session.peers import (
    answer_arguments,
    in_words,
    may_receive,
    posts_of,
    see_that_it_ends,
    turned_away,
    unanswerable,
)
from curtainwall.session.plans import (
    LONGEST_PLAN,
)
from curtainwall.session.project import (
    ProjectState,
    decide_project,
    fold_project,
)
from curtainwall.session.replay import (
    BlobCheck,
    Violation,
    blobs_of,
    replay,
)
from curtainwall.session.rules import (
    Rules,
    Whose,
    table_of,
)
from curtainwall.session.standing import (
    Since,
    covered,
    covers_of,
    reach,
    standing_answer,
    still_permitted,
)
from curtainwall.session.state import (
    SETTLED_KEPT,
    OpenApproval,
    OpenCall,
    Phase,
    SessionState,
    Settled,
    Spent,
    Standing,
    Totals,
)
from curtainwall.session.transcript import (
    Said,
    Transcript,
    Turn,
    transcript,
)
from curtainwall.session.upcast import (
    LIFTS,
    Lift,
    lift,
)

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
    "decide_project",
    "diagnose",
    "evolve",
    "figures",
    "fold",
    "fold_project",
    "in_words",
    "inert",
    "label_words",
    "lift",
    "may_receive",
    "newest",
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
]
