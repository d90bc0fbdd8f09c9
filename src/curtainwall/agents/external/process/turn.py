"""One turn: the message goes into the process, its output comes back, silence is limited, and the log records how it ended."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, assert_never

from pydantic import JsonValue

from curtainwall.agents.external import (
    MOST_WORDS,
    Activity,
    ConversationName,
    ConversationUnknown,
    LiveText,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    SaidTooMuch,
    TextDelta,
    TurnWatch,
    WholeText,
)
from curtainwall.agents.external.process.conversation import ProcessHistory, find_message
from curtainwall.agents.external.process.launch import (
    EXTENSION,
    HOW_TO_SIGN_IN,
    AgentErred,
    AgentGarbled,
    AgentSilent,
    ConversationTaken,
    LoginNeeded,
    ProcessLimits,
)
from curtainwall.agents.external.process.running_process import RunningProcess, process_fault
from curtainwall.agents.external.process.wire import (
    CompactionDone,
    CompactionFailed,
    CompactionSummary,
    ControlReply,
    ControlRequest,
    LoggedOut,
    MeasuredContext,
    MessageStarted,
    Noise,
    Signal,
    interrupt_line,
    message_line,
)
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    CallDropped,
    CallFinished,
    CallLost,
    Clock,
    ContextMeasured,
    ExtensionNoted,
    Feed,
    Journal,
    Progress,
    TurnAt,
    TurnFailed,
    TurnResult,
    TurnStatus,
    WorkTimed,
    record,
)


class ProcessTurnWatch(TurnWatch):
    """Raises `AgentSilent` after too long a silence, which does not count while a human is asked or a call runs."""

    def __init__(self, limits: ProcessLimits) -> None:
        super().__init__(limits.turn)
        self._silence = limits.silence

    def count(self) -> None:
        """Count the time since the last look."""
        super().count()
        if self.asked:
            self.last_sign_at = time.monotonic()

    def take(self, event: AnyEvent) -> None:
        """Apply an event of the log."""
        super().take(event)
        if isinstance(event, CallFinished | CallLost | CallDropped):
            self.last_sign_at = time.monotonic()

    def next_look(self) -> float | None:
        """Return the seconds until the turn's time is up or the silence is too long."""
        if self.asked or self.work.permitted:
            return super().next_look()
        return max(0.0, min(self.left, self._silence - self._silent_for()))

    async def look(self) -> None:
        """Check that the process still shows signs of life."""
        if self._silent_for() >= self._silence:
            raise AgentSilent(f"the agent gave no sign of life for {self._silence:g} seconds and was ended; send a message again")

    def _silent_for(self) -> float:
        return 0.0 if self.asked or self.work.permitted else time.monotonic() - self.last_sign_at


_MOST_NOISE: Final = 20
_INTERRUPT: Final = "interrupt"
# Claude Code treats a message that begins like this as a command.
_COMMANDS: Final = ("/", "!", "#")


class ConversationLost(TurnFailed):
    """The process does not know the conversation it should resume; no message was delivered."""


@record
class ProcessTurnPorts:
    """The ports that a turn uses."""

    feed: Feed
    journal: Journal
    clock: Clock


@dataclass(slots=True)
class ProcessTurn:
    """One turn in a running process."""

    ports: ProcessTurnPorts
    at: TurnAt
    past: ProcessHistory
    running: RunningProcess
    telling: LiveText
    limits: ProcessLimits
    mark: str
    must_end: bool = False
    """The process can no longer be used."""
    _is_noted: bool = False
    _is_started: bool = False
    """The process has started on our message; before that, it may still be answering an earlier one."""
    _whole: str | None = None
    """A complete message that is not recorded yet; it is recorded together with what follows."""
    _failure: TurnFailed | None = None
    _noise: list[bytes] = field(default_factory=list[bytes])
    _measured: MeasuredContext | None = None
    _is_finished: bool = False
    _is_over: bool = False
    _watch: ProcessTurnWatch = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._watch = ProcessTurnWatch(self.limits)

    async def work(self, text: str) -> TurnResult:
        """Send the agent a message and listen until it is done; raise what went wrong."""
        message = f"The user says:\n{text}" if text.startswith(_COMMANDS) else text
        # Nothing comes before a process's first message that could be mistaken for its answer.
        self._is_started, self.running.has_had_message = not self.running.has_had_message, True
        try:
            await self.running.send(message_line(message, self.mark))
            result = await self._listen_or_stop()
            if result is None:
                return TurnResult(status=TurnStatus.DONE, last=tuple(await self._settled()))
            await self._cut_short()
        except asyncio.CancelledError:
            await self._break_off()
            raise
        except ConversationLost:
            raise
        except TurnFailed as fault:
            await self._fail(fault)
            raise
        return result

    async def _listen_or_stop(self) -> TurnResult | None:
        """Listen until the turn is over; if it had to be stopped, return how it ends."""
        loop = asyncio.get_running_loop()
        watching = loop.create_task(self._watch.until_stop(self.ports.feed, self.at.session, self.past.cursor))
        listening = asyncio.timeout(None)

        def stop(watched: asyncio.Task[TurnResult]) -> None:
            if not watched.cancelled():
                # Retrieve the exception here too, because the turn may be over by now.
                watched.exception()
            with suppress(RuntimeError):
                listening.reschedule(loop.time())

        watching.add_done_callback(stop)
        try:
            async with listening:
                await self._listen()
                return None
        except TimeoutError:
            if not listening.expired():
                raise
        finally:
            watching.cancel()
            self._watch.count()
        stopped = watching.result()
        await self._interrupt()
        return stopped

    async def _listen(self) -> None:
        while not self._is_over:
            signals = await self.running.read_signals()
            if signals is None:
                await self._ended()
            else:
                self._watch.note_life()
                await self._take_all(signals)
        if self._failure is not None:
            raise self._failure

    async def _take_all(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            if not self._is_late(signal):
                await self._take(signal)

    def _is_late(self, signal: Signal) -> bool:
        """Tell whether this answers an earlier message, whose turn is over."""
        match signal:
            case MessageStarted():
                self._is_started = self._is_started or signal.mark == self.mark
                return True
            case ReportedFailure(stop=False) | TextDelta() | WholeText() | Activity() | LoggedOut() | ReportedEnd() | MeasuredContext():
                return not self._is_started
            case _:
                return False

    async def _take(self, signal: Signal) -> None:
        match signal:
            case TextDelta():
                await self._keep()
                await self.telling.piece(signal.text)
            case WholeText():
                await self._keep()
                self._whole = signal.text
            case Activity():
                self.telling.does(signal.text)
            case OwnToolUse():
                await self._keep()
                if uses := self.telling.used(signal):
                    await self._record(*uses)
            case ConversationName():
                await self._take_name(signal.conversation)
            case ReportedFailure():
                self._failure = AgentErred(f"claude: {signal.why[:MOST_WORDS]}")
                self._is_over = not signal.stop or self._stop()
            case LoggedOut():
                self._failure = LoginNeeded(f"claude: {signal.why[:MOST_WORDS]}; {HOW_TO_SIGN_IN}")
                self._is_over = True
            case ConversationUnknown():
                raise ConversationLost("the agent does not know the conversation")
            case ReportedEnd():
                self._is_finished = self._is_over = True
            case MeasuredContext():
                self._measured = signal
            case ControlRequest():
                await self._keep()
                await self.running.send(signal.reply)
            case Noise():
                self._take_noise(signal)
            case ControlReply() | MessageStarted() | CompactionDone() | CompactionSummary() | CompactionFailed():
                pass
            case _:
                assert_never(signal)

    def _stop(self) -> bool:
        self.must_end = True
        return True

    async def _take_name(self, name: str) -> None:
        """Follow the agent to another name of the conversation; raise if it began another one instead of resuming the given one."""
        if name in self.running.names:
            return
        marks = [mark for mark, _ in self.past.marks] if self.past.conversation == self.running.conversation else []
        previous = await find_message(self.running.start.folders, (self.running.conversation, name), self.mark, marks)
        if previous is None and not self.running.start.is_new:
            self.must_end = True
            raise ConversationLost("the agent began another conversation")
        try:
            # In a new conversation nothing was said before that the agent could lack.
            self.running.rename(previous or self.running.conversation, name)
        except ConversationTaken:
            self.must_end = True
            raise

    def _take_noise(self, noise: Noise) -> None:
        self._noise.append(noise.line)
        if noise.is_broken:
            # It may have been the end of the turn, for which we would wait in vain.
            self.must_end = True
            raise AgentGarbled(f"the agent wrote a line of broken JSON and was ended: {_shown([noise.line])}")
        if len(self._noise) > _MOST_NOISE:
            self.must_end = True
            raise AgentGarbled(f"the agent writes what is not stream-json and was ended: {_shown(self._noise[:3])}")

    async def _ended(self) -> None:
        """Find out why the process ended before the turn did."""
        self.must_end = True
        code = await self.running.exit_code()
        if any(
            isinstance(report, ConversationUnknown) for line in self.running.errors for report in self.running.listener.parse_stderr(line)
        ):
            raise ConversationLost("the agent does not know the conversation")
        raise process_fault(code, self.running.process.stopped, tuple(self.running.errors), _shown(self._noise))

    async def _keep(self) -> None:
        """Record a complete message that something else followed."""
        if self._whole is not None:
            await self._record(await self._worded())

    async def _worded(self) -> AgentSpoke:
        text, self._whole = self._whole or "", None
        return await self.telling.worded(text)

    async def _record(self, *events: Progress) -> None:
        """Record events, and with the first of them that the message was delivered."""
        delivered = self._delivered()
        first = (ExtensionNoted(at=self.ports.clock.now(), extension=EXTENSION, data=delivered),) if delivered else ()
        await self.telling.record(*first, *events)

    def _delivered(self) -> dict[str, JsonValue]:
        """Return, once, the note that the message was delivered, and to which conversation."""
        if self._is_noted:
            return {}
        self._is_noted = True
        return {"conversation": self.running.conversation, "delivered": self.at.turn, "mark": self.mark}

    async def _settled(self, fault: TurnFailed | None = None) -> Sequence[Progress]:
        """Return the events that end the turn, to be recorded together: the last message, the usage and the duration."""
        now, measured = self.ports.clock.now(), self._measured
        spoke = () if self._whole is None else (await self._worded(),)
        # The delivery is recorded before any answer to the message.
        data: dict[str, JsonValue] = {**self._delivered(), "turn": self.at.turn}
        if measured is not None:
            data["usage"] = measured.usage
        if fault is not None:
            data["fault"] = type(fault).__name__
        if fault is not None and self.running.errors:
            data["stderr"] = self.telling.masked("\n".join(self.running.errors)[-20_000:])
        events: list[Progress] = [ExtensionNoted(at=now, extension=EXTENSION, data=data), *self.telling.unlisted_uses(), *spoke]
        if measured is not None and measured.size:
            events.append(ContextMeasured(at=now, used=measured.used, size=measured.size, measured=True))
        return (*events, WorkTimed(at=now, seconds=max(0.0, self._watch.worked)))

    async def _fail(self, fault: TurnFailed) -> None:
        """Record what was shown, and why the turn failed."""
        if isinstance(fault, AgentSilent | SaidTooMuch):
            self.must_end = True
        await self._cut_short(fault)

    async def _break_off(self) -> None:
        """Wait for an interrupted turn to end and record what was shown. If we are shutting down, the turn is resumed later."""
        if self.at.presence.has_left:
            self.must_end = True
        else:
            await asyncio.shield(self._interrupt())
        await asyncio.shield(self._cut_short())

    async def _cut_short(self, fault: TurnFailed | None = None) -> None:
        await self._keep()
        await self.telling.cut()
        await self._record(*await self._settled(fault))

    async def _interrupt(self) -> None:
        """Have the process end its turn; if it does not, it can no longer be used."""
        await self.running.send(interrupt_line(_INTERRUPT))
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.grace):
                while (signals := await self.running.read_signals()) is not None:
                    for signal in signals:
                        if isinstance(signal, ControlRequest):
                            await self.running.send(signal.reply)
                        if isinstance(signal, MeasuredContext):
                            self._measured = signal
                            return
        self.must_end = True


def _shown(lines: Sequence[bytes]) -> str:
    return " / ".join(line.decode("utf-8", errors="replace").strip()[:100] for line in lines)
