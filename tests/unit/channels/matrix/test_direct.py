"""Direct rooms: a room that was just made is nobody's conversation before its person is there."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from curtainwall.channels.matrix.direct import DirectRooms
from curtainwall.channels.matrix.memory import Memory
from curtainwall.model import SessionId
from curtainwall.runtime import SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers

ANN = "@ann:example.org"


class Homeserver:
    """A homeserver that has made a room before it says so, as its sync can bring the room earlier than its answer comes."""

    def __init__(self) -> None:
        self.has_made, self.may_answer, self.has_joined = asyncio.Event(), asyncio.Event(), False

    async def create_direct(self, person: str) -> str:
        self.has_made.set()
        await self.may_answer.wait()
        return "!direct"

    async def membership(self, room: str, person: str) -> str:
        return "join" if self.has_joined else "invite"


class Keys:
    def is_encrypted(self, room: str) -> bool:
        return True


class Places:
    def shown_in(self, room: str) -> Sequence[SessionId]:
        return (SessionId("s"),) if room == ANN else ()

    async def show(self, room: str, sessions: Sequence[SessionId], *, shown: bool) -> None:
        pass


class QuietFeed:
    async def changes(self) -> AsyncGenerator[frozenset[str]]:
        await asyncio.Event().wait()
        yield frozenset()


@covers("matrix.a-person-as-target")
def test_a_room_that_the_sync_brings_before_it_is_known_waits_for_its_person() -> None:
    async def story() -> None:
        server: Any = Homeserver()
        memory = Memory(MemoryStore(SystemClock()).marks, "@wall:example.org")
        direct = DirectRooms(server, cast("Any", Keys()), cast("Any", Places()), memory, (ANN,), lambda _, **__: None)
        following = asyncio.create_task(direct.follow(cast("Any", QuietFeed())))
        await server.has_made.wait()
        looking = asyncio.create_task(direct.is_ready("!direct"))
        await asyncio.sleep(0)
        server.may_answer.set()
        assert not await looking, "what is said there now could never be decrypted by the person"
        assert direct.people == {"!direct": ANN}
        assert await direct.is_ready("!other")
        server.has_joined = True
        assert await direct.is_ready("!direct")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), 20))
