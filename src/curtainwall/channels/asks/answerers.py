"""Who may answer an ask: whoever runs this house, and the operators of each channel on which it is seen."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from curtainwall.channels.asks.answers import Key
from curtainwall.channels.text.plain import plain_line
from curtainwall.model import ApprovalQuery, Index, ShownAt

SEES_ALL: Final = "web"
"""The channel whose operators see every ask of the house; on any other, those that are shown there."""

_MOST_NAMED: Final = 5

Operators = Mapping[str, Collection[str]]
"""The operators of each channel that is served, by the channel's name."""

MayAnswer = Mapping[str, tuple[str, ...]]
"""Who may answer one ask besides whoever runs this house, by the channel."""


def answerers(index: Index, operators: Operators) -> Callable[[Key], MayAnswer]:
    """Return what tells who may answer an open ask, as it is shown now."""
    shown = {
        channel: {row.session for row in index.approvals(ApprovalQuery(shown_at=ShownAt(channel), limit=None, brief=True))}
        for channel in operators
        if channel != SEES_ALL
    }

    def of(ask: Key) -> MayAnswer:
        seeing = {channel: people for channel, people in operators.items() if channel == SEES_ALL or ask[0] in shown[channel]}
        return {channel: tuple(sorted(people)) for channel, people in sorted(seeing.items()) if people}

    return of


def answerer_words(found: MayAnswer, own: str, here: str = "") -> str:
    """Return who may answer, in words; nothing where that is whoever runs this house alone, who is called `own` wherever they are.

    On the channel `here` its one operator is not told either that they may, where nobody else may.
    """
    others = {channel: people for channel, people in found.items() if not {*people} <= {own}}
    if not others or (others.keys() == {here} and len(others[here]) == 1):
        return ""
    return f"may be answered {', '.join(f'on {channel} by {_named(people)}' for channel, people in found.items())}, and at its machine"


def _named(people: tuple[str, ...]) -> str:
    told = [plain_line(name, 80) for name in people[:_MOST_NAMED]]
    if len(people) > _MOST_NAMED:
        return f"{', '.join(told)} and {len(people) - _MOST_NAMED} more"
    return " or ".join(filter(None, (", ".join(told[:-1]), told[-1])))
