"""SessionStart and SessionEnd: each once, after the log says so, with source and reason."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.model import (
    AnyCommand,
    ChangeMode,
    CloseSession,
    HookEvent,
    HookReply,
    InheritHistory,
    MessageAccepted,
    Mode,
    Place,
    ReopenSession,
    SendMessage,
    SessionEnd,
    SessionId,
    SessionStart,
    StartTurn,
    Subject,
    ToolResult,
)
from curtainwall.model.ids import MessageId, TurnId
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.store import MemoryStore
from curtainwall.tools.hooks import FileClaims, Lifecycle
from tests.support.covers import covers
from tests.support.houses import ANN, events, house, kinds, open_session, run


class Heard:
    """Hooks that write down what they are told, and what the log said then."""

    def __init__(self, h: SessionRegistry, context: str = "") -> None:
        self.events: list[HookEvent] = []
        self.logged: list[list[str]] = []
        self.places: list[Place] = []
        self._house = h
        self._context = context

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        raise NotImplementedError

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        raise NotImplementedError

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        self.events.append(event)
        self.places.append(place)
        self.logged.append(kinds(self._house, place.session))
        return HookReply(context=self._context)


@asynccontextmanager
async def staged(tmp_path: Path, context: str = "") -> AsyncGenerator[tuple[SessionRegistry, Heard, Lifecycle]]:
    async with house(MemoryStore(SystemClock())) as h:
        heard = Heard(h, context)
        yield h, heard, lifecycle(h, heard, tmp_path)


def lifecycle(h: SessionRegistry, heard: Heard, tmp_path: Path) -> Lifecycle:
    async def send(session: SessionId, command: AnyCommand, key: str | None) -> int:
        return await h.send(session, command, key)

    return Lifecycle(heard, h.feed, FileClaims(lambda session: tmp_path / session / "hooks"), send)


@covers("hooks.start-and-end-once")
def test_beginning_and_end_are_told_once_and_after_they_are_durable(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path) as (h, heard, told):
            session = await open_session(h, tmp_path)
            await told.settle(session)
            await told.settle(session)
            await lifecycle(h, heard, tmp_path).settle(session)
            await h.send(session, CloseSession(by=ANN, reason="all done"))
            await told.settle(session)
            await lifecycle(h, heard, tmp_path).settle(session)
            assert heard.events == [SessionStart(source="startup", model="demo"), SessionEnd(reason="all done")]
            assert heard.logged[0] == ["SessionOpened", "SessionReady"]
            assert heard.logged[1][-1] == "SessionClosed"

    run(story())


@covers("hooks.start-and-end-once")
def test_a_session_that_is_opened_again_has_another_start_and_another_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path) as (h, heard, told):
            session = await open_session(h, tmp_path)
            await told.settle(session)
            await h.send(session, CloseSession(by=ANN, reason="done"))
            assert told.is_owed_an_end(session)
            await h.send(session, ReopenSession(by=ANN))
            await h.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            for _ in range(2):
                await lifecycle(h, heard, tmp_path).settle(session, 1)
            await h.send(session, CloseSession(by=ANN, reason="enough"))
            await told.settle(session, 1)
            ends = [SessionEnd(reason="done"), SessionEnd(reason="enough")]
            assert heard.events == [
                SessionStart(source="startup", model="demo"),
                ends[0],
                SessionStart(source="resume", model="demo"),
                ends[1],
            ]
            assert [place.mode for place in heard.places] == [Mode.DEFAULT, Mode.DEFAULT, Mode.PLAN, Mode.PLAN]
            assert not told.is_owed_an_end(session)

    run(story())


@covers("hooks.start-and-end-once")
def test_a_claim_is_made_once_by_whoever_is_first(tmp_path: Path) -> None:
    one, two = (FileClaims(lambda session: tmp_path / session / "hooks") for _ in range(2))
    session = SessionId("s1")
    assert [one.has(session, "SessionStart"), one.claim(session, "SessionStart"), two.has(session, "SessionStart")] == [False, True, True]
    assert [each.claim(session, "SessionStart") for each in (one, two)] == [False, False]
    assert two.claim(session, "SessionEnd")


def test_many_at_once_tell_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path) as (h, heard, _):
            session = await open_session(h, tmp_path)
            await asyncio.gather(*(lifecycle(h, heard, tmp_path).settle(session) for _ in range(50)))
            assert len(heard.events) == 1

    run(story())


def test_a_session_that_is_not_ready_or_not_there_is_not_told_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path) as (_, heard, told):
            await told.settle(SessionId("nothere"))
            assert heard.events == []

    run(story())


def test_what_a_hook_says_at_the_beginning_reaches_the_agent_as_context(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path, "the branch is main") as (h, _, told):
            session = await open_session(h, tmp_path)
            await told.settle(session)
            [message] = [event for event in events(h, session) if isinstance(event, MessageAccepted)]
            assert (message.text, message.role) == ("the branch is main", "context")

    run(story())


def test_the_source_says_how_a_session_came_about(tmp_path: Path) -> None:
    async def source(h: SessionRegistry, heard: Heard, told: Lifecycle, *commands: AnyCommand) -> str:
        session = await open_session(h, tmp_path)
        for command in commands:
            await h.send(session, command)
        heard.events.clear()
        await told.settle(session)
        [event] = heard.events
        assert isinstance(event, SessionStart)
        return event.source

    async def story() -> None:
        async with staged(tmp_path) as (h, heard, told):
            parent = SessionId("p")
            assert await source(h, heard, told) == "startup"
            assert await source(h, heard, told, InheritHistory(by=ANN, parent=parent, upto=1, history=None, how="fork")) == "fork"
            assert await source(h, heard, told, InheritHistory(by=ANN, parent=parent, upto=1, history=None, how="reset")) == "clear"
            said = SendMessage(by=ANN, message=MessageId("m"), text="hi")
            assert await source(h, heard, told, said, StartTurn(by=ANN, turn=TurnId("t"))) == "resume"

    run(story())


def test_a_session_that_ended_before_anyone_looked_has_an_end_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(tmp_path) as (h, heard, told):
            session = await open_session(h, tmp_path)
            await h.send(session, CloseSession(by=ANN, reason="x"))
            await told.settle(session)
            assert heard.events == [SessionEnd(reason="x")]

    run(story())
