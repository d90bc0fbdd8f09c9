"""Tells from the end of a session's log, without folding the rest, whether the session has work to do."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from curtainwall.model import Entry, TurnEnded, TurnStatus
from curtainwall.session.upcast import lift

_STIRS: Final = frozenset({"MessageAccepted", "CompactionAsked", "PeerAnswerHeld", "InterruptAsked", "BudgetRaised"})
_SETTLES: Final = frozenset({"ApprovalAnswered", "ApprovalExpired", "ApprovalWithdrawn", "CallDropped"})
_KEEPS_QUIET: Final = frozenset(
    {"SessionRenamed", "ModeChanged", "ModelChanged", "RouteAdded", "RouteRemoved", "LabelsAdded", "GrantGiven", "GrantRevoked"}
    | {"RuleDisabled", "RuleEnabled", "WorkTimed", "ContextMeasured", "ExtensionNoted", "BudgetWarned", "CompactionSet"}
)


def is_at_rest(entries: Sequence[Entry], *, is_whole: bool) -> bool | None:
    """Tell whether a session whose log ends with these entries has nothing left to do; None if more of the log is needed to tell.

    INVARIANT: True only if a fold of the whole log would find no turn to continue, no queued message and nothing to compact. A turn takes
    all queued messages, except those behind messages of other teams, whose sessions are not covered here.
    """
    kinds = [entry.kind for entry in entries]
    begun = next((place for place in range(len(kinds) - 1, -1, -1) if kinds[place] == "TurnStarted"), None)
    if begun is None and not is_whole:
        # Work in the known part counts, no matter what comes before.
        return False if _STIRS.intersection(kinds) else None
    since = kinds if begun is None else kinds[begun + 1 :]
    last = "SessionReady" if begun is None else "TurnEnded"
    if last not in since or _STIRS.intersection(since):
        return False
    after = list(takewhile(lambda kind: kind != last, reversed(since)))
    if not _KEEPS_QUIET.issuperset(after):
        return False
    ended = lift(entries[-1 - len(after)])
    if isinstance(ended, TurnEnded) and ended.status is TurnStatus.WAITING:
        # It waits only for humans, and none has answered. A turn that waits for nothing was cut off and continues.
        return bool(ended.waits_for) and not _SETTLES.intersection(since)
    return True
