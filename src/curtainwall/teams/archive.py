"""What is known of conversations with teams: marks beside the log, so that nobody has to read it again from its beginning."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from curtainwall.model import Feed, Marks, Millis, SessionId, session_stream
from curtainwall.teams.figures import PairFigures
from curtainwall.teams.pairs import Pair
from curtainwall.teams.sums import Sum

_CHANNEL: Final = "archived teams"
_SUMS: Final = "sums of teams"
_MUCH: Final = 100
"""Entries that were read beyond what is kept before it is worth keeping more."""


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

    def sum(self, session: SessionId) -> Sum | None:
        """Return what a log amounted to up to where it was read."""
        mark = self._marks.get(_SUMS, session)
        with suppress(ValueError, TypeError):
            return None if mark is None else Sum.kept(mark)
        return None

    async def keep_sums(self, sums: Mapping[SessionId, Sum]) -> None:
        """Remember what all logs of conversations amount to that are not archived, where much was read; forget all others."""
        kept = self._marks.all(_SUMS)
        gone: dict[str, str | None] = {session: None for session in kept if session not in sums}
        grown = {session: str(it) for session, it in sums.items() if not 0 <= it.cursor - _cursor(kept.get(session)) < _MUCH}
        await self._marks.set(_SUMS, {**gone, **grown})

    async def keep(self, rests: Sequence[Rest]) -> None:
        """Remember what was read."""
        await self._marks.set(_CHANNEL, {rest.session: _mark(rest) for rest in rests})

    async def forget_all_but(self, archived: Collection[str]) -> None:
        """Forget what is archived no longer, or is gone."""
        await self._marks.set(_CHANNEL, {session: None for session in self._marks.all(_CHANNEL) if session not in archived})


def _cursor(mark: str | None) -> int:
    with suppress(ValueError, TypeError):
        return 0 if mark is None else Sum.kept(mark).cursor
    return 0


def _mark(rest: Rest) -> str:
    it = rest.figures
    return json.dumps([rest.changed, rest.head, *(() if it is None else (it.created, it.used, it.messages, it.tokens, it.dollars))])
