"""One command that came twice at the same moment: directly, and by the inbox."""

from pathlib import Path

from curtainwall.model import Digest, Limits, Mode, OpenSession, Post, SessionId, SessionOpened, Workspace, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, events, house, run


@covers("runtime.the-same-key-at-once")
def test_the_same_command_directly_and_by_the_inbox_is_decided_once(tmp_path: Path) -> None:
    session = SessionId("s1")
    opening = OpenSession(
        by=ANN, session=session, name="pair", agent="builtin", model="demo", workspace=Workspace(path=str(tmp_path), own=True),
        mode=Mode.DEFAULT, limits=Limits(), policy=Digest("p"),
    )  # fmt: skip

    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            await opened.stores.inbox.post(Post(session_stream(session), "opening", opening))
            assert await opened.send(session, opening, "opening") == 1
            assert await opened.send(session, opening, "opening") == 1
            assert [type(event) for event in events(opened, session)] == [SessionOpened]

    run(story())
