"""One turn of a foreign agent: its message goes in, what it says comes out, and however its program ends, the log says so."""

import asyncio
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from pydantic import JsonValue

from curtainwall.agents.external import (
    MOST_WORDS,
    USED_UP,
    Activity,
    AgentReport,
    ConversationName,
    ConversationUnknown,
    ExternalHistory,
    LiveText,
    OutputParser,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    TextDelta,
    WholeText,
)
from curtainwall.agents.external.container.adapters import (
    Adapter,
    Adapters,
    AgentLaunch,
    Task,
)
from curtainwall.agents.external.container.fleet import Fleet, HeldContainer
from curtainwall.agents.external.container.folders import orientation, state_sizes, write_orientation
from curtainwall.agents.external.container.runs import Run, copy_for_root, open_run
from curtainwall.agents.external.container.spec import ContainerFolders, ContainerGone, ContainerNetwork, ContainerSockets, LentProgram
from curtainwall.agents.external.container.turn_watch import ContainerTurnWatch
from curtainwall.facts import Masker
from curtainwall.model import (
    Clock,
    ExtensionNoted,
    Feed,
    Gate,
    Journal,
    Mode,
    SessionId,
    TurnAt,
    TurnFailed,
    TurnResult,
    TurnStatus,
    Workspace,
    WorkTimed,
)

EXTENSION: Final = "container"
_KEPT_LINES: Final = 200
_MOST_FAILURES: Final = 10
_KNOWN_PROVIDERS: Final = frozenset({"anthropic", "openai", "gemini"})
_NOT_LET_IN: Final = re.compile(r"\b401\b|authenticat|invalid (?:api )?key|api key not valid", re.IGNORECASE)
_SEE_THE_KEY: Final = "; see that the key of its provider is right: docs/models.md has the places for keys"
_NOT_FOUND: Final = 127
_SEEN_WITHIN: Final = 2.0
_LOOK_AGAIN: Final = 0.1
# An agent chooses this name, and it becomes an argument and a part of a path.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
# Some agents take a message that begins like this as a command to themselves.
_COMMANDS: Final = ("/", "!")


@dataclass(frozen=True, slots=True)
class ContainerPorts:
    """Everything that the agent meets, each through its port."""

    feed: Feed
    gate: Gate
    journal: Journal
    clock: Clock
    masker: Masker
    fleet: Fleet
    outside: ContainerSockets
    adapters: Adapters
    folders_of: Callable[[SessionId, Workspace, Mode], ContainerFolders]
    image_of: Callable[[str], str]
    programs_of: Callable[[str], Sequence[LentProgram]] = lambda _: ()
    skills_of: Callable[[Workspace], Mapping[str, str]] = lambda _: {}


@dataclass(slots=True)
class _Attempt:
    """One start of the agent's program, and what came of it."""

    task: Task
    launch: AgentLaunch
    failures: list[str] = field(default_factory=list[str])
    errors: deque[str] = field(default_factory=lambda: deque[str](maxlen=_KEPT_LINES))
    is_noted: bool = False
    is_lost: bool = False
    is_finished: bool = False
    must_stop: bool = False
    code: int | None = None
    began: float = field(default_factory=time.time)
    """By the clock on the wall, which the engine tells the time by."""


@dataclass(slots=True)
class ContainerTurn:
    """One turn of an agent whose container and ways out are there."""

    around: ContainerPorts
    at: TurnAt
    past: ExternalHistory
    adapter: Adapter
    held: HeldContainer
    reach: ContainerNetwork
    telling: LiveText
    synced: Callable[[], ExternalHistory]
    is_spoilt: bool = False
    """Something may still run in the container that nobody wants any more."""

    async def work(self) -> TurnResult:
        """Work until the program has ended, by itself or because it had to."""
        try:
            result = await self._work()
        except BaseException as fault:
            self.is_spoilt = True
            if isinstance(fault, asyncio.CancelledError) and not self.at.presence.has_left:
                await asyncio.shield(self._withdraw())
            await asyncio.shield(self._clear())
            raise
        await self._clear()
        return result

    async def _withdraw(self) -> None:
        """Take back what the agent asked for in a turn that nobody wants any more."""
        for call in self.synced().asks.open_in(self.at.turn):
            await self.around.gate.drop(self.at.session, call, "the turn was interrupted")

    async def _work(self) -> TurnResult:
        message = self.past.message()
        conversation, told = self.past.conversation, bool(self.past.said)
        if conversation and not await self._is_kept(conversation):
            await self._say_lost()
            conversation = ""
        result, is_lost = await self._try(conversation, self.past.retold_message(message) if told and not conversation else message)
        if is_lost and conversation:
            await self._say_lost()
            result, is_lost = await self._try("", self.past.retold_message(message))
        return TurnResult(status=TurnStatus.FAILED, failure=f"{self.adapter.name} does not know a new conversation") if is_lost else result

    async def _try(self, conversation: str, message: str) -> tuple[TurnResult, bool]:
        """Start the agent once, and tell how it ended and whether it had lost the conversation."""
        task = self._task(conversation)
        attempt = _Attempt(task, self.adapter.launch(task))
        sizes = await self._sizes(conversation)
        files = {**attempt.launch.files, "ca.pem": self.reach.certificates, "message": _as_message(attempt.launch.preface, message)}
        await asyncio.to_thread(write_orientation, self.held.wish.folders, files)
        fleet = self.around.fleet
        await copy_for_root(fleet.engine, self.held.id, attempt.launch.root_files)
        folders = self.held.wish.folders
        watch = ContainerTurnWatch(fleet.engine, self.held.id, fleet.limits, self._worked, folders)
        async with open_run(fleet.engine, self.held.id, attempt.launch.command, attempt.launch.environment) as run:
            try:
                stopped = await self._listen_or_stop(run, attempt, watch)
            except BaseException:
                await asyncio.shield(self._stop(run))
                raise
            finally:
                await asyncio.shield(self._settle_up(attempt, watch))
        # What the agent's last requests used may be what the turn ended of.
        await self.reach.settled()
        if stopped is not None or attempt.is_lost:
            return stopped or TurnResult(status=TurnStatus.FAILED), attempt.is_lost
        result = await self._judged(attempt)
        if result.status is TurnStatus.DONE and sizes and await self._sizes(conversation) == sizes:
            await self.telling.note(f"{self.adapter.name} did not write this turn down; it may not remember it")
        return result, False

    async def _listen_or_stop(self, run: Run, attempt: _Attempt, watch: ContainerTurnWatch) -> TurnResult | None:
        """Listen until the program ends; return how the turn ends where it had to be stopped before."""
        ear = self.adapter.ear()
        listening = asyncio.create_task(self._listen(run, ear, attempt, watch))
        watching = asyncio.create_task(watch.until_stop(self.around.feed, self.at.session, self.past.cursor))
        try:
            await asyncio.wait((listening, watching), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
                if not attempt.must_stop:
                    attempt.code = await run.exit_code()
                    return None
            result = None if listening.done() else watching.result()
        finally:
            for task in (listening, watching):
                task.cancel()
            await asyncio.gather(listening, watching, return_exceptions=True)
        await self._stop(run)
        self.is_spoilt = True
        return result

    async def _listen(self, run: Run, ear: OutputParser, attempt: _Attempt, watch: ContainerTurnWatch) -> None:
        async with aclosing(run.lines()) as lines:
            async for stream, line in lines:
                watch.note_life()
                if stream == "err":
                    attempt.errors.append(line[:2_000])
                for heard in ear.hear(line) if stream == "out" else ear.parse_stderr(line):
                    await self._take(heard, attempt)
                if attempt.must_stop:
                    return

    async def _take(self, heard: AgentReport, attempt: _Attempt) -> None:
        match heard:
            case TextDelta():
                await self._note_delivery(attempt, attempt.task.conversation)
                await self.telling.piece(heard.text)
            case WholeText():
                await self._note_delivery(attempt, attempt.task.conversation)
                await self.telling.whole(heard.text)
            case Activity():
                self.telling.does(heard.text)
            case OwnToolUse():
                if uses := self.telling.used(heard):
                    await self._note_delivery(attempt, attempt.task.conversation)
                    await self.telling.record(*uses)
            case ConversationName():
                await self._named(heard.conversation, attempt)
            case ReportedFailure():
                if len(attempt.failures) < _MOST_FAILURES:
                    attempt.failures.append(heard.why[:MOST_WORDS])
                attempt.must_stop = attempt.must_stop or heard.stop
            case ConversationUnknown():
                attempt.is_lost = True
            case ReportedEnd():
                attempt.is_finished = True
            case _:
                assert_never(heard)

    async def _named(self, conversation: str, attempt: _Attempt) -> None:
        if not _PLAIN_NAME.fullmatch(conversation):
            attempt.failures.append("it gives its conversation a name that is none")
            attempt.must_stop = True
        elif not attempt.task.is_new and conversation != attempt.task.conversation:
            # It began a conversation of its own instead of going on with the one that it was to go on with.
            attempt.is_lost = attempt.must_stop = True
        else:
            await self._note_delivery(attempt, conversation)

    async def _note_delivery(self, attempt: _Attempt, conversation: str) -> None:
        if attempt.is_noted:
            return
        attempt.is_noted = True
        data: dict[str, JsonValue] = {"conversation": conversation, "delivered": self.at.turn}
        await self.telling.record(ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data))

    async def _judged(self, attempt: _Attempt) -> TurnResult:
        """Return how a turn ended whose program ended by itself."""
        name = self.adapter.name
        failure = ""
        if attempt.code is None or attempt.code > 128:
            await self._require_container(attempt)
        if attempt.failures:
            failure = f"{name}: {'; '.join(dict.fromkeys(attempt.failures))}"
        elif attempt.code == _NOT_FOUND:
            failure = f"the image `{self.held.wish.image}` has no program `{attempt.launch.command[0]}`; build it anew"
        elif attempt.code != 0:
            failure = f"{name} ended with exit code {attempt.code}{self._last_errors(attempt)}"
        elif not attempt.is_finished:
            failure = f"{name} ended without an answer{self._last_errors(attempt)}"
        if failure:
            await self.telling.cut()
            if self.synced().exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
            more = _SEE_THE_KEY if _NOT_LET_IN.search(failure) else ""
            return TurnResult(status=TurnStatus.FAILED, failure=f"{self.around.masker.mask_text(failure)}{more}")
        await self.telling.end()
        return TurnResult(status=TurnStatus.DONE)

    async def _require_container(self, attempt: _Attempt) -> None:
        state, had_no_memory = await self._state_after_the_end(attempt)
        if had_no_memory or not state.get("Running"):
            self.is_spoilt = True
            await self.telling.cut()
        if had_no_memory:
            raise ContainerGone(f"{self.adapter.name} used up the memory of its container ({self.around.fleet.limits.memory_text})")
        if not state.get("Running"):
            raise ContainerGone("the container was stopped from outside in the middle of the turn; send a message, and a new one starts")

    async def _state_after_the_end(self, attempt: _Attempt) -> tuple[Mapping[str, JsonValue], bool]:
        """Return the container's state, and whether its memory ran out: its programs are seen to end a moment before that is told."""
        engine, container = self.around.fleet.engine, self.held.id
        until = time.monotonic() + _SEEN_WITHIN
        while True:
            state = await engine.state(container)
            # Of a container that still runs, the state says nothing of programs that the kernel ended in it.
            had_no_memory = bool(state.get("OOMKilled")) or await engine.ran_out_of_memory(container, attempt.began)
            if had_no_memory or not state.get("Running") or time.monotonic() >= until:
                return state, had_no_memory
            await asyncio.sleep(_LOOK_AGAIN)

    def _last_errors(self, attempt: _Attempt) -> str:
        last = [line.strip() for line in attempt.errors if line.strip()][-3:]
        return f": {' / '.join(last)}" if last else ""

    async def _stop(self, run: Run) -> None:
        """End the program and its children, and keep what it had said."""
        self.is_spoilt = True
        await run.stop(self.around.fleet.limits.grace)
        await self.telling.cut()

    async def _clear(self) -> None:
        """Where something may still run that nobody wants, end the container with it: children may have left the program's group."""
        if self.is_spoilt:
            await self.around.fleet.drop(self.at.session)

    async def _settle_up(self, attempt: _Attempt, watch: ContainerTurnWatch) -> None:
        """Write down how long the work took, and what the program said on stderr."""
        now = self.around.clock.now()
        errors = self.around.masker.mask_text("\n".join(attempt.errors))
        data: dict[str, JsonValue] = {"turn": self.at.turn, "exit": attempt.code}
        if errors:
            data["stderr"] = (await self.around.journal.keep(errors)).model_dump(mode="json")
        await self.telling.record(*self.telling.unlisted_uses(), ExtensionNoted(at=now, extension=EXTENSION, data=data))
        await watch.write_down()
        await watch.close()

    async def _worked(self, seconds: float) -> None:
        await self.telling.record(WorkTimed(at=self.around.clock.now(), seconds=seconds))

    async def _say_lost(self) -> None:
        if any(who == "You" for who, _ in self.past.said):
            await self.telling.note(f"{self.adapter.name} has lost the conversation; it starts a new one, and is told what was said before")

    def _task(self, conversation: str) -> Task:
        provider, model = self._model()
        name = conversation or str(uuid.UUID(bytes=self.around.clock.entropy(16), version=4))
        text = orientation(is_readonly=self.held.wish.folders.is_readonly, hosts=self.reach.hosts)
        return Task(name, not conversation, text, provider, model, self.reach.keys)

    def _model(self) -> tuple[str, str]:
        """Return provider and model as the user named them; a name that is no provider's leaves the choice to the agent."""
        provider, _, model = self.past.model.partition(":")
        if provider in self.adapter.providers and model:
            return provider, model
        if provider in _KNOWN_PROVIDERS and model:
            able = ", ".join(self.adapter.providers)
            raise TurnFailed(f"{self.adapter.name} cannot use the model `{self.past.model}`; it talks to: {able}")
        return "", ""

    async def _is_kept(self, conversation: str) -> bool:
        """Tell whether the agent can go on with a conversation, as far as that can be seen from outside."""
        return not self.adapter.transcripts(conversation) or bool(await self._sizes(conversation))

    async def _sizes(self, conversation: str) -> Mapping[Path, int]:
        return await state_sizes(self.held.wish.folders.state, self.adapter.transcripts(conversation) if conversation else ())


def _as_message(preface: str, message: str) -> str:
    text = f"The user says:\n{message}" if message.startswith(_COMMANDS) else message
    return f"{preface}\n\n{text}" if preface else text
