"""The people who may answer an open ask besides the one who runs this installation, and their description."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from curtainwall.channels.plain import plain_line
from curtainwall.model.ids import ApprovalId, SessionId
from curtainwall.model.listings import ApprovalQuery, ShownAt

if TYPE_CHECKING:
    # Start-up time: this module needs no entries of the log.
    from curtainwall.model.ports.store import Index

Key = tuple[SessionId, ApprovalId]
"""Identifies one ask. The approval id alone is not unique across sessions."""

SEES_ALL: Final = "web"
"""The channel whose operators see every ask; operators of another channel see only the asks shown there."""

_MOST_NAMED: Final = 5

Operators = Mapping[str, Collection[str]]
"""The operators of each served channel, by channel name."""

MayAnswer = Mapping[str, tuple[str, ...]]
"""The people who may answer one ask, by channel, besides the one who runs this installation."""


def answerers(index: "Index", operators: Operators) -> Callable[[Key], MayAnswer]:
    """Return a function that tells who may answer an open ask, according to where it is shown now."""
    shown = {
        channel: {row.session for row in index.approvals(ApprovalQuery(shown_at=ShownAt(channel), limit=None, brief=True))}
        for channel in operators
        if channel != SEES_ALL
    }

    def may_answer(ask: Key) -> MayAnswer:
        seeing = {channel: people for channel, people in operators.items() if channel == SEES_ALL or ask[0] in shown[channel]}
        return {channel: tuple(sorted(people)) for channel, people in sorted(seeing.items()) if people}

    return may_answer


def answerer_words(who: MayAnswer, own: str, here: str = "") -> str:
    """Describe who may answer; "" if only the person who runs this installation may, who is called `own` on every channel.

    It is "" too if the only other person is the one operator of the channel `here`, who is the reader.
    """
    others = {channel: people for channel, people in who.items() if not {*people} <= {own}}
    if not others or (others.keys() == {here} and len(others[here]) == 1):
        return ""
    return f"may be answered {', '.join(f'on {channel} by {_people_words(people)}' for channel, people in who.items())}, and at its machine"


def _people_words(people: tuple[str, ...]) -> str:
    names = [plain_line(name, 80) for name in people[:_MOST_NAMED]]
    if len(people) > _MOST_NAMED:
        return f"{', '.join(names)} and {len(people) - _MOST_NAMED} more"
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
