"""Whether a yes still holds: what a session has touched since, and what was taken back."""

from collections.abc import Awaitable, Callable, Iterable

from curtainwall.model import (
    AnyEvent,
    CallPermitted,
    Feed,
    GrantRevoked,
    Label,
    LabelsAdded,
    LabelSource,
    ModeChanged,
    RuleEnabled,
    SessionClosed,
    SessionId,
    StreamId,
    session_stream,
)
from curtainwall.runtime import House

Holds = Callable[[], bool]
"""Tells whether nothing has happened since that could change a verdict."""

Watch = Callable[[SessionId], Awaitable[Holds]]
"""Begins to watch a session."""


async def nobody_watches(_session: SessionId) -> Holds:
    """Take every yes to hold as long as anybody wants it."""
    return lambda: True


def watch_in(house: House) -> Watch:
    """Return what watches the sessions of a house."""

    async def watch(session: SessionId) -> Holds:
        async with house.hold(session) as actor:
            return _Standing(house.feed, session_stream(session), actor.seq, actor.state.labels).holds

    return watch


class _Standing:
    """What a session had touched when it was watched first. Only what came since is read, so that looking often costs little."""

    def __init__(self, feed: Feed, stream: StreamId, cursor: int, labels: Iterable[Label]) -> None:
        self._feed = feed
        self._stream = stream
        self._cursor = cursor
        self._labels = frozenset(labels)
        self._is_over = False

    def holds(self) -> bool:
        if not self._is_over:
            for recorded in self._feed.read(self._stream, self._cursor):
                self._cursor = recorded.seq
                self._is_over = self._is_over or self._ends_it(recorded.event)
        return not self._is_over

    def _ends_it(self, event: AnyEvent) -> bool:
        match event:
            case ModeChanged() | GrantRevoked() | RuleEnabled() | SessionClosed():
                return True
            case LabelsAdded() | CallPermitted():
                return self._is_new(event.labels)
            case _:
                return False

    def _is_new(self, sources: Iterable[LabelSource]) -> bool:
        return any(source.label not in self._labels for source in sources)
