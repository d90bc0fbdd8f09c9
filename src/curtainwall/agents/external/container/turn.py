"""One turn of an external agent in a container: send the message, read the output, and record how the program ended."""

import asyncio
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
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
from curtainwall.agents.external.container.changes import disk_time, find_changes
from curtainwall.agents.external.container.fleet import Fleet, HeldContainer
from curtainwall.agents.external.container.folders import orientation, state_sizes, write_orientation
from curtainwall.agents.external.container.runs import Run, copy_for_root, open_run
from curtainwall.agents.external.container.spec import (
    ContainerExtras,
    ContainerFolders,
    ContainerGone,
    ContainerNetwork,
    ContainerSockets,
    ImageChoice,
    LentProgram,
)
from curtainwall.agents.external.container.turn_watch import ContainerTurnWatch
from curtainwall.facts import Masker
from curtainwall.model import (
    Clock,
    CurtainwallError,
    ExtensionNoted,
    Feed,
    Gate,
    Journal,
    Mode,
    SessionId,
    SessionViews,
    TurnAt,
    TurnFailed,
    TurnResult,
    TurnStatus,
    Workspace,
    WorkTimed,
    changes_noted,
    record,
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
# The agent chooses this name, and it becomes an argument and part of a path.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
# Some agents treat a message that begins like this as a command.
_COMMANDS: Final = ("/", "!")


@record
class ContainerPorts:
    """The ports and settings that the agent works with."""

    feed: Feed
    gate: Gate
    journal: Journal
    clock: Clock
    masker: Masker
    fleet: Fleet
    outside: ContainerSockets
    adapters: Adapters
    folders_of: Callable[[SessionId, Workspace, Mode], ContainerFolders]
    image_of: Callable[[str, Workspace, str], ImageChoice]
    """Returns the image for an agent in a workspace; the last argument is the base that the session remembers, if any."""
    programs_of: Callable[[str], Sequence[LentProgram]] = lambda _: ()
    extras_of: Callable[[str, Workspace, Mode], ContainerExtras] = lambda _agent, _workspace, _mode: ContainerExtras()
    skills_of: Callable[[Workspace], Mapping[str, str]] = lambda _: {}
    views: SessionViews | None = None
    """The sessions' views of their projects; without any, no agent works in review mode."""


@dataclass(slots=True)
class _Attempt:
    """One start of the agent's program, and its outcome."""

    task: Task
    launch: AgentLaunch
    failures: list[str] = field(default_factory=list[str])
    errors: deque[str] = field(default_factory=lambda: deque[str](maxlen=_KEPT_LINES))
    is_noted: bool = False
    is_lost: bool = False
    is_finished: bool = False
    must_stop: bool = False
    code: int | None = None
    changed_since: int | None = None
    """When it began by the disk's clock."""
    began: float = field(default_factory=time.time)
    """In wall-clock time, which the engine uses too."""


@dataclass(slots=True)
class ContainerTurn:
    """One turn of an agent whose container and sockets are ready."""

    around: ContainerPorts
    at: TurnAt
    past: ExternalHistory
    adapter: Adapter
    held: HeldContainer
    reach: ContainerNetwork
    telling: LiveText
    synced: Callable[[], ExternalHistory]
    is_spoilt: bool = False
    """Something unwanted may still run in the container."""

    async def work(self) -> TurnResult:
        """Work until the program has ended or was stopped."""
        try:
            result = await self._work()
        except BaseException as error:
            self.is_spoilt = True
            if isinstance(error, asyncio.CancelledError) and not self.at.presence.has_left:
                await asyncio.shield(self._withdraw())
            await asyncio.shield(self._clear())
            raise
        await self._clear()
        return result

    async def _withdraw(self) -> None:
        """Withdraw the open calls of an interrupted turn."""
        for call in self.synced().asks.open_in(self.at.turn):
            await self.around.gate.drop(self.at.session, call, "the turn was interrupted")

    async def _work(self) -> TurnResult:
        message = self.past.message(repeats=True)
        conversation, has_past = self.past.conversation, bool(self.past.transcript)
        if conversation and not await self._is_kept(conversation):
            await self._say_lost()
            conversation = ""
        result, is_lost = await self._try(conversation, self.past.replay_message(message) if has_past and not conversation else message)
        if is_lost and conversation:
            await self._say_lost()
            result, is_lost = await self._try("", self.past.replay_message(message))
        return TurnResult(status=TurnStatus.FAILED, failure=f"{self.adapter.name} does not know a new conversation") if is_lost else result

    async def _try(self, conversation: str, message: str) -> tuple[TurnResult, bool]:
        """Start the agent once; return how it ended and whether it had lost the conversation."""
        task = self._task(conversation)
        attempt = _Attempt(task, self.adapter.launch(task))
        sizes = await self._sizes(conversation)
        files = {**attempt.launch.files, "ca.pem": self.reach.certificates, "message": _as_message(attempt.launch.preface, message)}
        await asyncio.to_thread(write_orientation, self.held.request.folders, files)
        attempt.changed_since = disk_time(self.held.request.folders.orientation / "message")
        fleet = self.around.fleet
        await copy_for_root(fleet.engine, self.held.id, attempt.launch.root_files)
        folders = self.held.request.folders
        watch = ContainerTurnWatch(fleet.engine, self.held.id, fleet.limits, self._worked, folders)
        # What we set outranks what the user adds.
        environment = {**self.held.request.variables, **attempt.launch.environment}
        async with open_run(fleet.engine, self.held.id, attempt.launch.command, environment) as run:
            try:
                stopped = await self._listen_or_stop(run, attempt, watch)
            except BaseException:
                await asyncio.shield(self._stop(run))
                raise
            finally:
                await asyncio.shield(self._settle_up(attempt, watch))
        # The usage of the agent's last requests may be what ended the turn.
        await self.reach.settled()
        if stopped is not None or attempt.is_lost:
            return stopped or TurnResult(status=TurnStatus.FAILED), attempt.is_lost
        result = await self._result(attempt)
        if result.status is TurnStatus.DONE and sizes and await self._sizes(conversation) == sizes:
            await self.telling.note(f"{self.adapter.name} did not write this turn down; it may not remember it")
        return result, False

    async def _listen_or_stop(self, run: Run, attempt: _Attempt, watch: ContainerTurnWatch) -> TurnResult | None:
        """Listen until the program ends; if it had to be stopped, return how the turn ends."""
        parser = self.adapter.output_parser()
        listening = asyncio.create_task(self._listen(run, parser, attempt, watch))
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

    async def _listen(self, run: Run, parser: OutputParser, attempt: _Attempt, watch: ContainerTurnWatch) -> None:
        async with aclosing(run.lines()) as lines:
            async for stream, line in lines:
                watch.note_life()
                if stream == "err":
                    attempt.errors.append(line[:2_000])
                for report in parser.parse_stdout(line) if stream == "out" else parser.parse_stderr(line):
                    await self._take(report, attempt)
                if attempt.must_stop:
                    return

    async def _take(self, report: AgentReport, attempt: _Attempt) -> None:
        match report:
            case TextDelta():
                await self._note_delivery(attempt, attempt.task.conversation)
                await self.telling.piece(report.text)
            case WholeText():
                await self._note_delivery(attempt, attempt.task.conversation)
                await self.telling.whole(report.text)
            case Activity():
                self.telling.does(report.text)
            case OwnToolUse():
                if uses := self.telling.used(report):
                    await self._note_delivery(attempt, attempt.task.conversation)
                    await self.telling.record(*uses)
            case ConversationName():
                await self._named(report.conversation, attempt)
            case ReportedFailure():
                if len(attempt.failures) < _MOST_FAILURES:
                    attempt.failures.append(report.why[:MOST_WORDS])
                attempt.must_stop = attempt.must_stop or report.stop
            case ConversationUnknown():
                attempt.is_lost = True
            case ReportedEnd():
                attempt.is_finished = True
            case _:
                assert_never(report)

    async def _named(self, conversation: str, attempt: _Attempt) -> None:
        if not _PLAIN_NAME.fullmatch(conversation):
            attempt.failures.append("it gives its conversation a name that is none")
            attempt.must_stop = True
        elif not attempt.task.is_new and conversation != attempt.task.conversation:
            # It started a new conversation instead of resuming the given one.
            attempt.is_lost = attempt.must_stop = True
        else:
            await self._note_delivery(attempt, conversation)

    async def _note_delivery(self, attempt: _Attempt, conversation: str) -> None:
        if attempt.is_noted:
            return
        attempt.is_noted = True
        data: dict[str, JsonValue] = {"conversation": conversation, "delivered": self.at.turn}
        await self.telling.record(ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data))

    async def _result(self, attempt: _Attempt) -> TurnResult:
        """Return the result of a turn whose program was not stopped."""
        name = self.adapter.name
        failure = ""
        if attempt.code is None or attempt.code > 128:
            await self._require_container(attempt)
        if attempt.failures:
            failure = f"{name}: {'; '.join(dict.fromkeys(attempt.failures))}"
        elif attempt.code == _NOT_FOUND:
            failure = f"the image `{self.held.request.image}` has no program `{attempt.launch.command[0]}`; build it anew"
        elif attempt.code != 0:
            failure = f"{name} ended with exit code {attempt.code}{self._last_errors(attempt)}"
        elif not attempt.is_finished:
            failure = f"{name} ended without an answer{self._last_errors(attempt)}"
        if failure:
            await self.telling.cut()
            await self._note_killed_programs(attempt)
            if self.synced().exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
            more = _SEE_THE_KEY if _NOT_LET_IN.search(failure) else ""
            return TurnResult(status=TurnStatus.FAILED, failure=f"{self.around.masker.mask_text(failure)}{more}")
        await self.telling.end()
        await self._note_killed_programs(attempt)
        return TurnResult(status=TurnStatus.DONE)

    async def _note_killed_programs(self, attempt: _Attempt) -> None:
        """Note that the kernel killed a program for lack of memory while the agent lived on: the agent sees only a signal."""
        with suppress(CurtainwallError):
            if await self.around.fleet.engine.ran_out_of_memory(self.held.id, attempt.began):
                limit = self.around.fleet.limits.memory_text
                await self.telling.note(f"a program in the container was killed because the container's memory was used up ({limit})")

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
        """Return the container's state and whether its memory ran out; the engine reports that a moment after the programs end."""
        engine, container = self.around.fleet.engine, self.held.id
        until = time.monotonic() + _SEEN_WITHIN
        while True:
            state = await engine.state(container)
            # The state of a running container does not show programs that the kernel killed in it.
            had_no_memory = bool(state.get("OOMKilled")) or await engine.ran_out_of_memory(container, attempt.began)
            if had_no_memory or not state.get("Running") or time.monotonic() >= until:
                return state, had_no_memory
            await asyncio.sleep(_LOOK_AGAIN)

    def _last_errors(self, attempt: _Attempt) -> str:
        last = [line.strip() for line in attempt.errors if line.strip()][-3:]
        return f": {' / '.join(last)}" if last else ""

    async def _stop(self, run: Run) -> None:
        """End the program and its children, and record what it had said."""
        self.is_spoilt = True
        await run.stop(self.around.fleet.limits.grace)
        await self.telling.cut()

    async def _clear(self) -> None:
        """Remove the container if something unwanted may still run in it: children may have left the program's group."""
        if self.is_spoilt:
            await self.around.fleet.drop(self.at.session)

    async def _settle_up(self, attempt: _Attempt, watch: ContainerTurnWatch) -> None:
        """Record how long the work took, and what the program wrote to stderr."""
        now = self.around.clock.now()
        errors = self.around.masker.mask_text("\n".join(attempt.errors))
        data: dict[str, JsonValue] = {"turn": self.at.turn, "exit": attempt.code}
        if errors:
            data["stderr"] = (await self.around.journal.keep(errors)).model_dump(mode="json")
        await self.telling.record(*self.telling.unlisted_uses(), ExtensionNoted(at=now, extension=EXTENSION, data=data))
        await self._note_changes(attempt)
        await watch.write_down()
        await watch.close()

    async def _note_changes(self, attempt: _Attempt) -> None:
        """Record which files of the workspace changed: the agent's own tools do not go through the gate."""
        folders = self.held.request.folders
        if attempt.changed_since is None or folders.is_readonly or folders.project is not None:
            # What changed in a view is presented as a whole.
            return
        paths, more = await asyncio.to_thread(find_changes, folders.workspace, attempt.changed_since)
        if paths:
            masked = [self.telling.masked(path) for path in paths]
            await self.telling.record(changes_noted(self.at.turn, masked, self.around.clock.now(), more=more))

    async def _worked(self, seconds: float) -> None:
        await self.telling.record(WorkTimed(at=self.around.clock.now(), seconds=seconds))

    async def _say_lost(self) -> None:
        if any(speaker == "You" for speaker, _ in self.past.transcript):
            await self.telling.note(f"{self.adapter.name} has lost the conversation; it starts a new one, and is told what was said before")

    def _task(self, conversation: str) -> Task:
        provider, model = self._model()
        name = conversation or str(uuid.UUID(bytes=self.around.clock.entropy(16), version=4))
        reach, folders = self.reach, self.held.request.folders
        instructions = (reach.instructions, self.past.instructions)
        is_readonly, is_view = folders.is_readonly, folders.project is not None
        text = orientation(is_readonly=is_readonly, is_view=is_view, tools=reach.tools, hosts=reach.hosts, instructions=instructions)
        return Task(name, not conversation, text, provider, model, self.reach.keys)

    def _model(self) -> tuple[str, str]:
        """Return the provider and model that the user named; a name without a provider leaves the choice to the agent."""
        provider, _, model = self.past.model.partition(":")
        if provider in self.adapter.providers and model:
            return provider, model
        if provider in _KNOWN_PROVIDERS and model:
            providers = ", ".join(self.adapter.providers)
            raise TurnFailed(f"{self.adapter.name} cannot use the model `{self.past.model}`; it talks to: {providers}")
        return "", ""

    async def _is_kept(self, conversation: str) -> bool:
        """Tell whether the agent can resume a conversation, as far as we can see from outside."""
        return not self.adapter.transcripts(conversation) or bool(await self._sizes(conversation))

    async def _sizes(self, conversation: str) -> Mapping[Path, int]:
        return await state_sizes(self.held.request.folders.state, self.adapter.transcripts(conversation) if conversation else ())


def _as_message(preface: str, message: str) -> str:
    text = f"The user says:\n{message}" if message.startswith(_COMMANDS) else message
    return f"{preface}\n\n{text}" if preface else text
