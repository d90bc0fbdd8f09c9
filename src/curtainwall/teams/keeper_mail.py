"""Requests to the keeper from other processes. They lie in the marks, because only the keeper's own process can reach its agents."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from curtainwall.model import CommandRefused, Leases, Marks, SessionId, StreamId, TryLater

KEEPER: Final = StreamId("keeper:teams")
"""The lease of the process that works for the teams."""

NEWS: Final = StreamId("mail:keeper:teams")
"""The name under which watchers learn that there is mail."""

KeeperAction = Literal["wake", "sleep", "archive"]

_CHANNEL: Final = "requests to the keeper"
_PATIENCE: Final = 90.0
_LOOK_AGAIN: Final = 0.05
_TELL_AGAIN: Final = 20
"""After this many looks the keeper is notified again, because notifications may get lost."""


class MailedRequest(NamedTuple):
    """A request that has no reply yet."""

    name: str
    what: KeeperAction
    session: SessionId


class KeeperMail:
    """The requests and their replies; the sender of a request removes both."""

    def __init__(self, marks: Marks, leases: Leases, mint: Callable[[], str]) -> None:
        self._marks = marks
        self._leases = leases
        self._mint = mint

    @property
    def has_keeper(self) -> bool:
        """Tell whether some process works for the teams."""
        return self._leases.owner(KEEPER) is not None

    async def request(self, what: KeeperAction, session: SessionId) -> str:
        """Ask the keeper and return its reply; raise what it refuses, or that it does not answer."""
        name = self._mint()
        await self._marks.set(_CHANNEL, {name: json.dumps({"what": what, "session": session})})
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._reply(name)
        except TimeoutError:
            raise TryLater(f"the process that works for the teams did not answer within {_PATIENCE:g} seconds; try again") from None
        finally:
            await asyncio.shield(self._marks.set(_CHANNEL, {name: None}))

    def waiting(self) -> Iterator[MailedRequest]:
        """Yield the requests without a reply."""
        for name, mark in sorted(self._marks.all(_CHANNEL).items()):
            match json.loads(mark):
                case {"what": "wake" | "sleep" | "archive" as what, "session": str(session)}:
                    yield MailedRequest(name, what, SessionId(session))
                case _:
                    pass

    async def answer(self, request: MailedRequest, reply: str, *, is_refused: bool = False) -> None:
        """Reply to a request, unless nobody waits any more."""
        if self._marks.get(_CHANNEL, request.name) is not None:
            await self._marks.set(_CHANNEL, {request.name: json.dumps({"refused" if is_refused else "reply": reply})})

    async def _reply(self, name: str) -> str:
        looks = 0
        while True:
            if looks % _TELL_AGAIN == 0:
                if not self.has_keeper:
                    raise TryLater("the process that works for the teams has ended; try again")
                self._leases.tell(NEWS)
            looks += 1
            match json.loads(self._marks.get(_CHANNEL, name) or "{}"):
                case {"reply": str(reply)}:
                    return reply
                case {"refused": str(why)}:
                    raise CommandRefused(why)
                case _:
                    await asyncio.sleep(_LOOK_AGAIN)
