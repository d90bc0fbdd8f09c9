"""What is known of conversations with teams that count as archived: marks beside the log, so that nobody has to read it again."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from curtainwall.channels.teams import Pair, PairFigures
from curtainwall.model import Feed, Marks, Millis, SessionId, session_stream

_CHANNEL: Final = "archived teams"


class Rest(NamedTuple):
    """A log that was read up to here, with nothing that waits in it; without figures where no pair leads to it any more."""

    session: SessionId
    changed: Millis
    head: int
    figures: PairFigures | None


class Archive:
    """The marks of one house. They are only there to be quick: where one is missing, or the log has grown since, the log is read."""

    def __init__(self, marks: Marks, feed: Feed) -> None:
        self._marks = marks
        self._feed = feed

    def at_rest(self) -> Mapping[str, Millis]:
        """Return the sessions in whose logs nothing waited, and when those had changed last by then."""
        return {session: json.loads(mark)[0] for session, mark in self._marks.all(_CHANNEL).items()}

    def figures(self, pair: Pair, session: SessionId) -> PairFigures | None:
        """Return the figures of a conversation, where they are known and nothing has happened there since."""
        mark = self._marks.get(_CHANNEL, session)
        if mark is None:
            return None
        _, head, *told = json.loads(mark)
        if not told or head != self._feed.head(session_stream(session)):
            return None
        created, used, messages, tokens, dollars = told
        return PairFigures(pair, session, created, used, messages, 0, tokens, dollars, "archived")

    async def keep(self, rests: Sequence[Rest]) -> None:
        """Remember what was read."""
        await self._marks.set(_CHANNEL, {rest.session: _mark(rest) for rest in rests})

    async def forget_all_but(self, archived: Collection[str]) -> None:
        """Forget what is archived no longer, or is gone."""
        await self._marks.set(_CHANNEL, {session: None for session in self._marks.all(_CHANNEL) if session not in archived})


def _mark(rest: Rest) -> str:
    it = rest.figures
    return json.dumps([rest.changed, rest.head, *(() if it is None else (it.created, it.used, it.messages, it.tokens, it.dollars))])
