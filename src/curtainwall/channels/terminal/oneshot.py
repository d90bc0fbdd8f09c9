"""One task from the command line: results on stdout, everything else on stderr, and an exit code that says how it ended."""

import asyncio
import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import assert_never

from curtainwall.channels.asks.event_lines import CommandHints, describe_event
from curtainwall.channels.plain import plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import Control
from curtainwall.channels.terminal.asks import AskPrompt, request_for_key
from curtainwall.channels.terminal.exit import (
    EXIT_CODES,
    TaskEnd,
    TaskStatus,
    UsageSum,
    budget_words,
    document,
    event_json,
    hold_interrupts,
    on_end_signal,
    open_words,
    resume_words,
    silence_words,
)
from curtainwall.channels.terminal.output import AnswerWriter, OutputStream
from curtainwall.channels.terminal.settings import OneShotSettings, SilenceTimer
from curtainwall.model import (
    AgentSpoke,
    AnswerApproval,
    AnyEvent,
    ApprovalId,
    CurtainwallError,
    HistoryInherited,
    InterruptAsked,
    InterruptTurn,
    LifeEvent,
    Live,
    MessageId,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Recorded,
    SendMessage,
    SessionClosed,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SpeechEvent,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Who,
    session_stream,
)
from curtainwall.operations.activity import SessionActivity

_DENIED = "whoever started this task has every ask denied (--on-ask deny)"


class OneShot:
    """One task in one session, followed until its turn ends or somebody has to be waited for who will not come."""

    def __init__(self, line: ChannelPorts, session: SessionId, who: Who, settings: OneShotSettings) -> None:
        self._line = line
        self._session = session
        self._who = who
        self._settings = settings
        self._tale = SessionActivity()
        self._out, self._err = OutputStream(settings.out), OutputStream(settings.err)
        self._writing = AnswerWriter(self._out if settings.shape == "text" else None, colour=settings.colour)
        self._usage = UsageSum()
        self._control = Control(line, who, lambda _: ())
        self._asking = AskPrompt(settings.input, self._err, line.clock, self._press, self._stop)
        self._typed = CommandHints(
            f"curtainwall sessions why {session}", f"curtainwall sessions budget {session}", "curtainwall grants revoke"
        )
        self._message: MessageId | None = None
        self._turn: TurnId | None = None
        self._answered: set[ApprovalId] = set()
        self._denied: set[ApprovalId] = set()
        self._end: asyncio.Future[TaskEnd] | None = None
        self._interrupting: asyncio.Task[None] | None = None
        self._ahead: list[Live] = []
        """Live text of turns of which the log has not told yet."""
        self._silence = SilenceTimer(settings.holding)
        self._ended_with: int | None = None

    async def run(self, task: str | None) -> int:
        """Send the task, or go on with what waits, and return the exit code.

        Where whoever reads the output leaves, the turn is interrupted, and `BrokenPipeError` raised once the log says how it ended.
        """
        try:
            end = await self._followed(task)
        except CurtainwallError as error:
            end = TaskEnd(TaskStatus.FAILED, str(error))
            self._note(plain_line(str(error)))
        self._writing.broke_off()
        self._report_end(end)
        if self._is_left:
            raise BrokenPipeError
        return EXIT_CODES[end.status] if self._ended_with is None else self._ended_with

    async def leave(self, task: str | None, *, interrupted: bool) -> int:
        """Leave the task in the queue for whoever resumes, and return the exit code."""
        if task is not None:
            await self._line.desk.send(self._session, SendMessage(by=self._who, message=self._line.new_message(), text=task))
        end = TaskEnd(TaskStatus.INTERRUPTED if interrupted else TaskStatus.WAITING)
        self._report_end(end)
        return EXIT_CODES[end.status]

    async def _followed(self, task: str | None) -> TaskEnd:
        cursor = self._take_up()
        if task is None:
            self._turn = self._tale.turn
        else:
            self._message = self._line.new_message()
            await self._line.desk.send(self._session, SendMessage(by=self._who, message=self._message, text=task))
        self._end = end = asyncio.get_running_loop().create_future()
        with self._stopped_by_signal():
            self._settings.attend(self._session)
            work = [asyncio.create_task(self._listen()), asyncio.create_task(self._follow(cursor))]
            silence = asyncio.create_task(self._report_silence())
            try:
                await asyncio.wait([end, *work], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._asking.end()
                self._writing.release()
                for each in (*work, silence):
                    each.cancel()
                faults = [it for it in await asyncio.gather(*work, silence, return_exceptions=True) if isinstance(it, Exception)]
        if end.done():
            return end.result()
        raise faults[0]

    def _take_up(self) -> int:
        """Take in what was before, and return the cursor from which on everything is told."""
        cursor = 0
        for recorded in self._line.feed.read(session_stream(self._session)):
            self._tale.take(recorded.event)
            cursor = recorded.seq
        return cursor

    async def _listen(self) -> None:
        async with self._line.listening.listen(self._session) as lives:
            async for live in lives:
                self._silence.broken()
                if live.kind == "text":
                    self._hear(live)
                elif live.kind == "again":
                    self._note(live.text)

    def _hear(self, live: Live) -> None:
        """Take in live text of our own turn; what is said in another one answers somebody else."""
        if live.turn is None:
            return
        if live.turn == self._turn:
            self._writing.add_live(live.text)
        elif live.turn != self._tale.turn:
            self._ahead.append(live)

    def _begin(self, started: TurnStarted) -> None:
        """Take note of a turn that begins: ours where it takes up our message, or where we sent none and it is the first."""
        if self._message in started.messages or (self._message is None and self._turn is None):
            self._turn = started.turn
        ahead, self._ahead = self._ahead, []
        for live in ahead:
            if live.turn == self._turn:
                self._writing.add_live(live.text)

    async def _report_silence(self) -> None:
        """Say once where another process that works on the session has been silent for long."""
        tale = self._tale
        owner = await self._silence.of_another(self._session, lambda: not tale.asks and not tale.is_parked)
        for words in silence_words(self._session, owner, self._settings.holding.patience, is_kept=self._message is not None):
            self._note(words)

    async def _follow(self, cursor: int) -> None:
        stream = session_stream(self._session)
        known = self._line.feed.read(stream, cursor)
        for recorded in known:
            await self._take(recorded)
        await self._check_open_asks()
        self._check_reader()
        if self._message is None and self._tale.turn is None and not self._tale.queue:
            self._note("nothing waits in this session; give a TASK to go on with it")
            self._finish(TaskEnd(TaskStatus.DONE))
        async for recorded in self._line.feed.follow(stream, known[-1].seq if known else cursor):
            await self._take(recorded)
            await self._check_open_asks()
            self._check_reader()
        self._finish(TaskEnd(TaskStatus.FAILED, "the session was deleted"))

    async def _take(self, recorded: Recorded) -> None:
        event = recorded.event
        self._silence.broken()
        if self._settings.shape == "stream-json":
            self._write(event_json(recorded))
        self._progress(event)
        self._take_text(event)
        self._tale.take(event)
        if isinstance(event, LifeEvent | TurnEvent | ModelEvent):
            await self._take_step(event)

    async def _take_step(self, event: LifeEvent | TurnEvent | ModelEvent) -> None:
        match event:
            case ModelResponded() | ModelFailed() if event.turn == self._turn:
                self._usage.add(event)
            case TurnStarted():
                self._begin(event)
            case TurnEnded() if event.turn == self._turn and event.status is not TurnStatus.WAITING:
                self._progress_files()
                self._finish(TaskEnd.of(event.status, event.failure))
            case TurnEnded() if event.status is TurnStatus.WAITING and self._interrupting is not None:
                await self._interrupting
                if self._line.desk.view(self._session).status == "waiting":
                    # The turn came to an ask before the interrupt came to the turn: nothing is left to stop.
                    self._finish(TaskEnd(TaskStatus.INTERRUPTED))
            case SessionClosed():
                self._finish(TaskEnd(TaskStatus.FAILED, f"the session is closed: {event.reason}"))
            case TurnEnded() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded() | ModelFailed():
                pass
            case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed():
                pass
            case _:
                assert_never(event)

    def _take_text(self, event: AnyEvent) -> None:
        """Take in what the agent says in our own turn."""
        if not isinstance(event, SpeechEvent | TurnEvent | ModelEvent):
            return
        match event:
            case TextStreamed() | AgentSpoke() | ModelFailed() | TurnEnded() if event.turn != self._turn:
                pass
            case TextStreamed():
                self._writing.logged(event.text)
            case AgentSpoke():
                self._writing.spoke(event.text)
            case ModelFailed() if self._tale.holds_calls:
                pass  # a foreign agent asks again by itself, and says what it has to say
            case ModelFailed() | TurnEnded():
                self._writing.broke_off()
            case TurnStarted() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)

    # Asks

    async def _check_open_asks(self) -> None:
        """Do with open asks what `on_ask` says."""
        on_ask = self._settings.on_ask
        if on_ask == "deny":
            for approval in [it for it in self._tale.asks if it not in self._answered]:
                self._answered.add(approval)
                if await self._deny(approval):
                    self._denied.add(approval)
            if not self._denied.isdisjoint(self._tale.asks):
                # The denial is in the log, further on than we have read: the agent gets it and goes on.
                return
        elif on_ask == "wait":
            await self._ask_next()
        if self._tale.is_parked and (on_ask != "wait" or not self._tale.asks):
            # What nobody is asked about, as a budget that is used up, is not waited for: nothing can be typed here.
            self._finish(TaskEnd(TaskStatus.WAITING))

    async def _deny(self, approval: ApprovalId) -> bool:
        """Deny an ask; False where that was refused, and the ask may stay open."""
        command = AnswerApproval(by=self._who, approval=approval, granted=False, reason=_DENIED)
        try:
            await self._line.desk.send(self._session, command)
        except CurtainwallError as error:
            self._note(plain_line(str(error)))
            return False
        return True

    async def _ask_next(self) -> None:
        """Put the next open ask before the human, or say where it can be answered."""
        if self._asking.about in self._tale.asks:
            return
        await self._asking.end()
        has_keys = self._settings.keys and self._settings.shape == "text"
        for ask in self._tale.asks.values():
            if ask.approval in self._answered:
                continue
            if has_keys:
                # Until the answer, nothing that the agent says comes between the card and whoever reads it.
                self._writing.hold()
                self._asking.ask(ask, "the agent asks")
                return
            self._answered.add(ask.approval)
            for words in open_words((ask,)):
                self._note(words)
        self._writing.release()

    async def _press(self, key: str, approval: ApprovalId) -> bool:
        """Do what a key means, and tell whether that was an answer."""
        outcome = await self._control.do(self._session, request_for_key(key, approval))
        for line in () if outcome.answered else outcome.lines:
            self._note(line)
        if outcome.answered:
            self._answered.add(approval)
        return outcome.answered is not None

    # Stopping

    @contextmanager
    def _stopped_by_signal(self) -> Generator[None]:
        on_end_signal(self._stop_for_good)
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self._stop)
        except (ValueError, RuntimeError):
            yield  # signals only reach the main thread; whoever runs us elsewhere stops us otherwise
            return
        try:
            yield
        finally:
            hold_interrupts()

    def _stop_for_good(self, code: int) -> None:
        self._ended_with = code
        self._stop()

    def _stop(self) -> None:
        """Interrupt our turn; where it does not run, or that was asked for already, leave everything as it is."""
        if self._tale.works and self._tale.turn == self._turn and self._interrupting is None:
            self._interrupting = asyncio.create_task(self._interrupt())
        else:
            self._finish(TaskEnd(TaskStatus.INTERRUPTED))

    @property
    def _is_left(self) -> bool:
        """Whether somebody who read the output has gone."""
        return self._out.is_left or self._err.is_left

    def _check_reader(self) -> None:
        """Stop where nobody reads any more; what has not begun is stopped as it begins."""
        tale = self._tale
        is_to_begin = self._message in tale.queue if self._message is not None else tale.turn is None and bool(tale.queue)
        if self._is_left and self._interrupting is None and not is_to_begin:
            self._stop()

    async def _interrupt(self) -> None:
        try:
            await self._line.desk.send(self._session, InterruptTurn(by=self._who, turn=self._turn))
        except CurtainwallError as error:
            self._note(plain_line(str(error)))

    def _finish(self, end: TaskEnd) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(end)

    # What is written

    def _progress(self, event: AnyEvent) -> None:
        told = describe_event(event, self._tale, self._typed)
        if told is not None and self._settings.shape != "stream-json":
            self._note(told.text)

    def _progress_files(self) -> None:
        words = [plain_line(change.words(self._tale.workspace)) for change in self._tale.changes]
        if words and self._settings.shape == "text":
            self._note(f"files: {', '.join(words)}")

    def _report_end(self, end: TaskEnd) -> None:
        view = self._line.desk.view(self._session)
        told = document(end, self._writing.text, self._usage.total(), view)
        if self._settings.shape == "json":
            self._write(json.dumps(told, ensure_ascii=True))
        elif self._settings.shape == "stream-json":
            self._write(json.dumps({"event": "result", **told}, ensure_ascii=True))
        if end.status is TaskStatus.WAITING or (end.status is TaskStatus.INTERRUPTED and view.pending):
            for words in (*open_words(view.pending), *budget_words(view)):
                self._note(words)
            self._note(f"then {resume_words(self._session)} goes on")
        elif end.status in (TaskStatus.FAILED, TaskStatus.INTERRUPTED) and view.status != "closed":
            # Where nothing waits for its turn, going on takes another message.
            task = "TASK" if view.status == "ready" and not view.queue else ""
            self._note(f"{resume_words(self._session, task)} goes on with this session")

    def _write(self, text: str) -> None:
        self._out.write(f"{text}\n")

    def _note(self, text: str) -> None:
        self._err.note(text)
