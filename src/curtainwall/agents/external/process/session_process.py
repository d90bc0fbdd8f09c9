"""A session's process while it is borrowed from the pool: started, resumed, compacted, or moved to a new conversation."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import MOST_WORDS, ReportedEnd, ReportedFailure, WholeText
from curtainwall.agents.external.process.conversation import ProcessHistory, open_conversation
from curtainwall.agents.external.process.launch import (
    BETWEEN_TURNS,
    EXTENSION,
    AgentErred,
    AgentGarbled,
    AgentSilent,
    ProcessFolders,
    ProcessLimits,
    ProcessSockets,
    ProcessStart,
    claude_model,
)
from curtainwall.agents.external.process.pool import ProcessPool, Seat
from curtainwall.agents.external.process.running_process import RunningProcess, process_fault
from curtainwall.agents.external.process.wire import (
    CompactionDone,
    CompactionFailed,
    CompactionSummary,
    ControlRequest,
    LoggedOut,
    MessageStarted,
    Noise,
    Signal,
    message_line,
)
from curtainwall.facts import Masker
from curtainwall.host import Shares
from curtainwall.model import Clock, ExtensionNoted, Feed, Gate, HistoryCompacted, Journal, SessionId, TurnAt, TurnId, Workspace, record

_SUMMARISE: Final = (
    "This conversation is nearly too long. Write a summary for whoever goes on with it and has nothing else: what was asked and answered, "
    "what was decided and why, names, figures and paths exactly as they are, and what is still open. Write only the summary; use no tools."
)


@record
class ShorterConversation:
    """The summary of a conversation; tokens before and after, 0 if unknown."""

    text: str
    before: int = 0
    after: int = 0


async def shorten(running: RunningProcess, instructions: str, mark: str, patience: float) -> ShorterConversation | None:
    """Have the agent replace its history with a summary; None if there was nothing to replace."""
    signals = await _exchange(running, f"/compact {' '.join(instructions.split())}".rstrip(), mark, patience)
    done = next((signal for signal in signals if isinstance(signal, CompactionDone)), None)
    summary = next((signal.text for signal in signals if isinstance(signal, CompactionSummary)), "")
    return None if done is None else ShorterConversation(summary, done.before, done.after)


async def summarise(running: RunningProcess, mark: str, patience: float) -> ShorterConversation | None:
    """Have the agent summarise the conversation; None if it says nothing."""
    signals = await _exchange(running, _SUMMARISE, mark, patience)
    text = "\n\n".join(signal.text for signal in signals if isinstance(signal, WholeText))
    return ShorterConversation(text) if text else None


async def _exchange(running: RunningProcess, text: str, mark: str, patience: float) -> list[Signal]:
    """Send a message outside any turn of the session, and return all signals until it is done."""
    received: list[Signal] = []
    is_taken_up, running.has_had_message = not running.has_had_message, True
    await running.send(message_line(text, mark))
    try:
        async with asyncio.timeout(patience):
            while (signals := await running.read_signals()) is not None:
                received += signals
                for signal in signals:
                    match signal:
                        case ControlRequest():
                            await running.send(signal.reply)
                        case Noise(is_broken=True):
                            raise AgentGarbled("the agent wrote a line of broken JSON and was ended")
                        case ReportedFailure() | LoggedOut() | CompactionFailed():
                            raise AgentErred(f"claude: {signal.why[:MOST_WORDS]}")
                        case MessageStarted():
                            is_taken_up = is_taken_up or signal.mark == mark
                        case ReportedEnd() if is_taken_up:
                            return received
                        case ReportedEnd():
                            # Everything so far answered an earlier message, whose turn is over.
                            received.clear()
                        case _:
                            pass
    except TimeoutError:
        raise AgentSilent(f"the agent did not come to an end within {patience:g} seconds") from None
    raise process_fault(await running.exit_code(), running.process.stopped, tuple(running.errors), "")


_BYTES_PER_TOKEN: Final = 4


@record
class ProcessPorts:
    """The ports and settings that the agent works with."""

    feed: Feed
    gate: Gate
    journal: Journal
    clock: Clock
    masker: Masker
    outside: ProcessSockets
    folders_of: Callable[[SessionId, Workspace], ProcessFolders]
    program_of: Callable[[], Path]
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    shares: Shares | None = None


@dataclass(slots=True)
class SessionProcess:
    """A borrowed seat, and the process in it."""

    around: ProcessPorts
    pool: ProcessPool
    seat: Seat
    past: ProcessHistory
    tell: Callable[[str], None]

    @property
    def folders(self) -> ProcessFolders:
        assert self.past.workspace is not None
        return self.around.folders_of(self.seat.session, self.past.workspace)

    def warm(self) -> RunningProcess | None:
        """Return the running process if it has the right conversation and model."""
        running = self.seat.running
        if running is None or not running.is_alive or running.conversation != self.past.conversation:
            return None
        wanted = (claude_model(self.past.model), self.past.instructions)
        return running if (running.start.model, running.start.instructions) == wanted else None

    async def started(self, conversation: str, *, is_new: bool) -> RunningProcess:
        """Start a process in a conversation; record a new conversation in the log first."""
        model = claude_model(self.past.model)
        start = ProcessStart(self.around.program_of(), self.folders, conversation, is_new, model, self.past.instructions)
        if is_new and conversation != self.past.conversation:
            await self.note({"conversation": conversation})
        return await self.pool.start(self.seat, start, self.tell)

    async def resumed(self) -> RunningProcess | None:
        """Return a process in the existing conversation, or None if there is none to resume."""
        running = self.warm()
        if running is not None:
            return running
        opening = await asyncio.to_thread(
            open_conversation, self.past, self.folders.state, self.folders.workspace, self.fresh(), self.fresh()
        )
        return None if opening.is_new else await self.started(opening.conversation, is_new=False)

    async def shortened(self, instructions: str) -> ShorterConversation | None:
        """Have the process compact its conversation, and record the result."""
        running = await self.resumed()
        if running is None:
            return None
        between = TurnAt(session=self.seat.session, turn=TurnId(BETWEEN_TURNS))
        async with running.reach.turn(between):
            done = await self._or_end(shorten(running, instructions, self.fresh(), self.around.limits.silence))
        if done is not None:
            await self.around.journal.record(self.seat.session, (await self._compacted("asked", done),))
        return done

    async def carried_over(self, at: TurnAt) -> None:
        """Summarise the conversation and continue in a new one; if that fails, keep the old one."""
        running = await self.resumed()
        self.tell("the conversation is nearly too long; summarising it")
        if running is None:
            return
        async with running.reach.turn(at):
            done = await self._or_end(summarise(running, self.fresh(), self.around.limits.silence))
        if done is None:
            return
        await self.pool.stop(self.seat)
        short = ShorterConversation(done.text, self.past.used, len(done.text.encode()) // _BYTES_PER_TOKEN)
        data: dict[str, JsonValue] = {"conversation": self.fresh(), "from": self.past.conversation, "summary": self._masked(done.text)}
        noted = ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data)
        await self.around.journal.record(self.seat.session, (await self._compacted("overflow", short), noted))

    async def note(self, data: dict[str, JsonValue]) -> None:
        """Record a note that only this package reads."""
        noted = ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data)
        await self.around.journal.record(self.seat.session, (noted,))

    def fresh(self) -> str:
        """Return an unused id."""
        return str(uuid.UUID(bytes=self.around.clock.entropy(16), version=4))

    async def _or_end(self, work: Coroutine[None, None, ShorterConversation | None]) -> ShorterConversation | None:
        """Await work outside a turn; stop the process if it fails."""
        try:
            return await work
        except BaseException:
            await self.pool.stop(self.seat, grace=0)
            raise

    async def _compacted(self, trigger: str, done: ShorterConversation) -> HistoryCompacted:
        summary = await self.around.journal.keep({"summary": self._masked(done.text)})
        return HistoryCompacted.model_validate(
            {
                "at": self.around.clock.now(),
                "trigger": trigger,
                "before": done.before,
                "after": done.after,
                "upto": self.past.cursor,
                "summary": summary.model_dump(),
            }
        )

    def _masked(self, text: str) -> str:
        return self.around.masker.mask_text(text)
