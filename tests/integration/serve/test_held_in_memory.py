"""What a served house holds in memory does not grow with the turns that its sessions have made."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelReply, Program, ProgramOutcome, Prompt, UserMessage
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.channels.web.render.items import CallItem, MessageItem, NoteItem, SpeechItem
from curtainwall.config.agents import BUILTIN
from curtainwall.model import (
    AskCompaction,
    CallFinished,
    CallRequested,
    HistoryCompacted,
    InterruptTurn,
    ModelRequested,
    ModelResponded,
    SessionId,
    TurnEnded,
    Usage,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.serve.web.service import web_ports
from tests.support.covers import covers
from tests.support.waiting import until
from tests.support.webs import CONFIG, Visit, Web, told, web_at

T = TypeVar("T")

READS = 'print(await filesystem.read_file(path="notes.txt"))'
SLEEPS = "import asyncio\nfor _ in range(25):\n    await asyncio.sleep(10)"
NOTES = "bread and milk"
LIMITS = "\n[limits]\ntokens = 1_000_000_000\nsteps = 1_000_000\n"
KEPT_ITEMS = 190
LONG = 1_000_000
MANY = 24
UNPACKED = 16 * 1024 * 1024


@dataclass
class Reading:
    """A model that reads a file in each turn, and says how many messages it was given."""

    name: str = "reading"
    context_size: int = 1_000_000_000

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        if prompt.items and isinstance(prompt.items[-1], UserMessage):
            said = AgentMessage(text="", programs=(Program(id=f"p{prompt.replies}", code=READS),))
        else:
            said = AgentMessage(text=f"after {sum(isinstance(item, UserMessage) for item in prompt.items)} messages")
        yield ModelReply(said, {"text": said.text}, Usage(), "end_turn")


class Sleeping(Reading):
    """A model that runs a program without an end for the first message, and then says how long each message was."""

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        heard = [len(item.text) for item in prompt.items if isinstance(item, UserMessage)]
        said = AgentMessage(text=f"{heard}") if prompt.replies else AgentMessage(text="", programs=(Program(id="p", code=SLEEPS),))
        yield ModelReply(said, {}, Usage(), "end_turn")


class Talking(Reading):
    """A model that runs nothing, and says how each message began and how long it was."""

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        heard = (f"{item.text[:9].strip()} {len(item.text)}" for item in prompt.items if isinstance(item, UserMessage))
        yield ModelReply(AgentMessage(text=", ".join(heard)), {}, Usage(), "end_turn")


@dataclass
class Summarising(Talking):
    """A model that says what it heard, and begins summaries without an end to them until `go` is set."""

    begun: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        if prompt.may_run:
            async for piece in super().reply(prompt):
                yield piece
        else:
            self.begun += 1
            await self.go.wait()
            yield ModelReply(AgentMessage(text="in short"), {}, Usage(), "end_turn")


@pytest.fixture(scope="module")
def summarising() -> Summarising:
    return Summarising(name="summarising")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, summarising: Summarising) -> Iterator[Web]:
    models = (Reading(), Talking(name="talking"), Sleeping(name="sleeping"), summarising)
    with web_at(tmp_path_factory.mktemp("memory").resolve(), CONFIG + LIMITS, models) as made:
        yield made


@pytest.fixture(scope="module")
def ann(web: Web) -> Visit:
    return web.visit("ann")


def begun(web: Web, model: str) -> SessionId:
    session = web.do(open_new(web.served.wired.sessions, SessionSpec(model, None, "a session", BUILTIN), Who(name="ann", channel="web")))
    (web.served.wired.setup.home.session(session).workspace / "notes.txt").write_text(NOTES)
    return session


def converse(web: Web, ann: Visit, session: SessionId, text: str = "read the notes") -> str:
    """Send a message from a page, and return what the agent said in the turn that it made."""
    feed, stream = web.served.wired.registry.feed, session_stream(session)
    before = feed.head(stream)
    assert ann.post(f"/sessions/{session}/message", text=text).status_code == 303
    until(lambda: any(isinstance(it.event, TurnEnded) for it in feed.read(stream, before)))
    return web.served.work.agents.last_words(session)


def is_in_use(web: Web, session: SessionId) -> bool:
    return web.served.wired.store.leases.owner(session_stream(session)) is not None


def alive(*kinds: type[T]) -> list[T]:
    """Return every object of these classes that is in memory; earlier tests in the same process may have left some."""
    return [it for it in gc.get_objects() if type(it) in kinds]


def added(before: list[T], *kinds: type[T]) -> list[T]:
    """Return the objects of these classes that are in memory now and were not before."""
    known = {id(it) for it in before}
    return [it for it in alive(*kinds) if id(it) not in known]


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Let objects go by their last reference alone: searches through old objects are rare in a process that stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@covers("serve.memory-stays-flat")
def test_a_session_that_rests_leaves_nothing_of_its_turns_in_memory(web: Web, ann: Visit) -> None:
    sessions = [begun(web, "reading") for _ in range(3)]
    of_turns = (ModelRequested, ModelResponded, CallRequested, CallFinished)
    with no_search_for_garbage():
        actors, left = alive(Actor), alive(*of_turns)
        for turn in (1, 2):
            for session in sessions:
                assert converse(web, ann, session) == f"after {turn} messages"
            until(lambda: not any(is_in_use(web, session) for session in sessions))
            assert len(added(actors, Actor)) <= len(sessions)
            assert added(left, *of_turns) == []


def test_a_hub_that_nobody_looks_at_leaves_memory_without_a_search_for_garbage(web: Web) -> None:
    session = begun(web, "talking")

    async def started_and_stopped() -> "weakref.ref[SessionHub]":
        hub = SessionHub(web_ports(web.served), session)
        await hub.start()
        # Its tasks have to be waiting for something before they can be stopped there.
        await asyncio.sleep(0)
        await hub.stop()
        assert hub.is_over
        return weakref.ref(hub)

    with no_search_for_garbage():
        left = web.do(started_and_stopped())
        until(lambda: left() is None)


@covers("serve.memory-stays-flat")
def test_a_page_keeps_the_end_of_a_long_conversation_and_shows_all_of_it(web: Web, ann: Visit) -> None:
    session, turns = begun(web, "reading"), 70
    with ann.listen(f"on=&session={session}&after=0"):
        items = alive(MessageItem, SpeechItem, CallItem, NoteItem)
        for _ in range(turns):
            converse(web, ann, session)
        gc.collect()
        assert len(added(items, MessageItem, SpeechItem, CallItem, NoteItem)) <= KEPT_ITEMS < 3 * turns
        # A part of them, as always; and whoever asks for all gets all.
        shown = ann.get(f"/sessions/{session}").text
        assert shown.count("read the notes") < turns
        assert "earlier things are not shown" in shown
        assert ann.get(f"/sessions/{session}?items=5000").text.count("read the notes") == turns
        # A browser that was away for so long loads its page again.
        with ann.listen(f"on=&session={session}&after=1") as stream:
            assert next(it for it in told(stream.iter_lines()) if it[0] in ("reload", "put"))[0] == "reload"


@covers("serve.memory-stays-flat")
def test_long_conversations_of_many_sessions_are_held_packed_and_go_on_as_they_were(web: Web, ann: Visit) -> None:
    sessions = [begun(web, "talking") for _ in range(MANY)]
    words = (UserMessage, AgentMessage, ProgramOutcome)
    before = alive(*words)
    for number, session in enumerate(sessions):
        converse(web, ann, session, f"message{number:02} ".ljust(LONG, "x"))
    gc.collect()
    texts = [len(it.text) for it in added(before, *words)]
    assert sum(texts) <= UNPACKED < MANY * LONG
    for number, session in enumerate(sessions[:3]):
        assert converse(web, ann, session, "and more") == f"message{number:02} {LONG}, and more 8"


@covers("serve.memory-stays-flat")
def test_long_conversations_are_held_packed_while_their_programs_run(web: Web, ann: Visit) -> None:
    sessions = [begun(web, "sleeping") for _ in range(MANY)]
    feed, before = web.served.wired.registry.feed, alive(UserMessage)
    for session in sessions:
        assert ann.post(f"/sessions/{session}/message", text="x" * LONG).status_code == 303
    for session in sessions:
        until(lambda of=session: any(isinstance(it.event, ModelResponded) for it in feed.read(session_stream(of))))
    until(lambda: sum(len(it.text) for it in added(before, UserMessage)) <= UNPACKED)
    for session in sessions:
        assert not any(isinstance(it.event, TurnEnded) for it in feed.read(session_stream(session)))
        web.do(web.served.wired.registry.send(session, InterruptTurn(by=Who(name="ann", channel="web"))))
    for session in sessions:
        until(lambda of=session: any(isinstance(it.event, TurnEnded) for it in feed.read(session_stream(of))))
    assert converse(web, ann, sessions[0], "and more") == f"[{LONG}, 8]"


@covers("serve.memory-stays-flat")
def test_long_conversations_are_held_packed_while_their_summaries_are_written(web: Web, ann: Visit, summarising: Summarising) -> None:
    sessions = [begun(web, "summarising") for _ in range(MANY)]
    feed, before = web.served.wired.registry.feed, alive(UserMessage)
    for session in sessions:
        converse(web, ann, session, "x" * LONG)
        converse(web, ann, session, "and more")

    async def ask_for_summaries() -> None:
        for session in sessions:
            await web.served.wired.registry.send(session, AskCompaction(by=Who(name="ann", channel="web")))
            web.served.work.turns.attend(session)

    web.do(ask_for_summaries())
    until(lambda: summarising.begun == MANY)
    assert sum(len(it.text) for it in added(before, UserMessage)) <= UNPACKED < MANY * LONG

    async def write_summaries() -> None:
        summarising.go.set()

    web.do(write_summaries())
    for session in sessions:
        until(lambda of=session: any(isinstance(it.event, HistoryCompacted) for it in feed.read(session_stream(of))))
    assert converse(web, ann, sessions[0], "go on") == "[Summary 45, and more 8, go on 5"
