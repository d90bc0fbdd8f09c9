"""Sessions in the hands of a test: a model that plays what it is given and remembers what it was told, and a home of one test."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from curtainwall.agents.builtin.language_model import (
    AgentMessage,
    ConversationItem,
    Delta,
    ModelFault,
    ModelReply,
    Program,
    ProgramOutcome,
    Prompt,
    UserMessage,
)
from curtainwall.agents.builtin.models.usage import free_usage, text_pieces
from curtainwall.library.session import Session
from curtainwall.model import AnyEvent, Usage, session_stream
from tests.support.waiting import run as run

T = TypeVar("T")
E = TypeVar("E")


@dataclass
class Held:
    """A reply that shows a text and then nothing more, until somebody closes it."""

    text: str = ""
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    was_closed: bool = False


@dataclass
class Counted:
    """A reply with the provider's own count of what it used."""

    said: str
    usage: Usage


Line = str | AgentMessage | Held | Counted | ModelFault
"""What a model does when it is asked: say something, say it and run programs, get stuck, or fail."""


def runs(*programs: str, text: str = "") -> AgentMessage:
    """Return a reply that wants to run programs; `Playing` names them."""
    return AgentMessage(text=text, programs=tuple(Program(id="", code=code) for code in programs))


@dataclass
class Playing:
    """A model that plays lines in the order in which it is asked; at their end it says `done`. Summaries have lines of their own."""

    lines: list[Line]
    summaries: list[Line] = field(default_factory=list)
    context_size: int = 1_000_000
    name: str = "playing"
    prompts: list[Prompt] = field(default_factory=list)
    made: int = 0

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        self.prompts.append(Prompt(prompt.system, tuple(prompt.items), prompt.replies, prompt.may_run))
        lines = self.lines if prompt.may_run else self.summaries
        line = lines.pop(0) if lines else "done" if prompt.may_run else "a summary"
        match line:
            case ModelFault():
                raise line
            case Held():
                yield Delta(line.text)
                line.shown.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    line.was_closed = True
            case _:
                said = self._said(line)
                for piece in text_pieces(said.text):
                    yield Delta(piece)
                usage = line.usage if isinstance(line, Counted) else free_usage(prompt, said)
                yield ModelReply(said, {"said": said.text, "ran": [it.code for it in said.programs]}, usage, "end_turn")

    def _said(self, line: str | AgentMessage | Counted) -> AgentMessage:
        if isinstance(line, AgentMessage):
            programs = tuple(Program(id=it.id or self._new_id(), code=it.code) for it in line.programs)
            return AgentMessage(text=line.text, programs=programs, kept={"own": line.text})
        text = line.said if isinstance(line, Counted) else line
        return AgentMessage(text=text, kept={"own": text})

    def _new_id(self) -> str:
        self.made += 1
        return f"p{self.made}"

    @property
    def heard(self) -> list[str]:
        """Return what the model was told last, as words."""
        return words(self.prompts[-1].items)

    @property
    def results(self) -> list[str]:
        """Return what the model was told last of its programs."""
        return [item.text for item in self.prompts[-1].items if isinstance(item, ProgramOutcome)]


def playing(*lines: Line, **rest: Any) -> Playing:
    """Return a model that plays these lines."""
    return Playing(list(lines), **rest)


def words(items: Iterable[ConversationItem]) -> list[str]:
    """Return a conversation as one line for each thing that was said, run or came of it."""
    told: list[str] = []
    for item in items:
        match item:
            case UserMessage():
                told.append(f"human: {item.text}")
            case AgentMessage():
                told.append(f"agent: {item.text}{' + program' * len(item.programs)}")
            case ProgramOutcome():
                told.append(f"result: {item.text}")
    return told


def of(kind: type[E], events: Iterable[AnyEvent | Any]) -> list[E]:
    """Return the events of one kind; entries of a timeline count as their events."""
    found = (getattr(each, "event", each) for each in events)
    return [event for event in found if isinstance(event, kind)]


@dataclass(frozen=True)
class Home:
    """Where one test lives, and a project to work in."""

    root: Path
    project: Path
    outside: Path

    def configure(self, text: str) -> None:
        self.root.mkdir(mode=0o700, exist_ok=True)
        (self.root / "config.toml").write_text(text)

    @property
    def environ(self) -> dict[str, str]:
        return {"CURTAINWALL_HOME": str(self.root), "HOME": str(self.root.parent / "user"), "NO_COLOR": "1"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a home of this test's own, which the environment names."""
    scratch = tmp_path.resolve()
    for name in ("project", "outside", "user"):
        (scratch / name).mkdir()
    found = Home(scratch / "cw", scratch / "project", scratch / "outside")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in found.environ.items():
        monkeypatch.setenv(name, value)
    return found


async def until(session: Session, kind: type[E], count: int = 1, bound: float = 60) -> list[E]:
    """Wait until so many events of a kind have happened, with a bound, and return them."""
    found: list[E] = []
    async with asyncio.timeout(bound):
        async for recorded in session._work.wired.registry.feed.follow(session_stream(session.id)):
            found += of(kind, [recorded])
            if len(found) == count:
                break
    return found


def place_of(session: Session, name: str = "") -> Path:
    """Return a file of the session's workspace, or the workspace."""
    return Path(session.info.workspace.path, name)


def write_in(session: Session, name: str, text: str) -> None:
    """Write a file of the session's workspace."""
    place_of(session, name).write_text(text)


def read_in(session: Session, name: str) -> str:
    """Return a file of the session's workspace."""
    return place_of(session, name).read_text()


def names_in(session: Session) -> list[str]:
    """Return what lies in the session's workspace."""
    return sorted(path.name for path in place_of(session).iterdir())
