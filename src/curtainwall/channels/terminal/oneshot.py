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
    SYSTEM,
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
    SessionReopened,
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
from curtainwall.operations.activity import SessionActivity, past_activity

_DENIED = "whoever started this task has every ask denied (--on-ask deny)"


class OneShot:
    """One task in one session, followed until its turn ends or it waits for an answer that cannot be given here."""

    def __init__(self, line: ChannelPorts, session: SessionId, who: Who, settings: OneShotSettings) -> None:
        self._line = line
        self._session = session
        self._who = who
        self._settings = settings
        self._activity = SessionActivity()
        self._out, self._err = OutputStream(settings.out), OutputStream(settings.err)
        self._writer = AnswerWriter(self._out if settings.shape == "text" else None, colour=settings.colour)
        self._usage = UsageSum()
        self._prompt = AskPrompt(settings.input, self._err, line.clock, self._press, self._stop)
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
        """Live text of turns that the log does not show yet."""
        self._silence = SilenceTimer(settings.owner_watch)
        self._ended_with: int | None = None

    async def run(self, task: str | None) -> int:
        """Send the task, or continue what is waiting, and return the exit code.

        If the reader of the output goes away, interrupt the turn and raise `BrokenPipeError` once the log says how it ended.
        """
        try:
            end = await self._run_task(task)
        except CurtainwallError as error:
            end = TaskEnd(TaskStatus.FAILED, str(error))
            self._note(plain_line(str(error)))
        self._writer.broke_off()
        self._report_end(end)
        if self._is_unread:
            raise BrokenPipeError
        return EXIT_CODES[end.status] if self._ended_with is None else self._ended_with

    async def leave(self, task: str | None, *, interrupted: bool) -> int:
        """Queue the task until the session is resumed, and return the exit code."""
        if task is not None:
            await self._line.desk.send(
                self._session, SendMessage(by=self._who, message=self._line.new_message(), text=task, once=self._settings.ends)
            )
        end = TaskEnd(TaskStatus.INTERRUPTED if interrupted else TaskStatus.WAITING)
        self._report_end(end)
        return EXIT_CODES[end.status]

    async def _run_task(self, task: str | None) -> TaskEnd:
        self._activity, cursor = past_activity(self._line.desk, self._line.feed, self._session)
        if task is None:
            self._turn = self._activity.turn
        else:
            self._message = self._line.new_message()
            await self._line.desk.send(self._session, SendMessage(by=self._who, message=self._message, text=task, once=self._settings.ends))
        self._end = end = asyncio.get_running_loop().create_future()
        with self._stopped_by_signal():
            self._settings.attend(self._session)
            work = [asyncio.create_task(self._listen()), asyncio.create_task(self._follow(cursor))]
            silence = asyncio.create_task(self._report_silence())
            try:
                await asyncio.wait([end, *work], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._prompt.end()
                self._writer.release()
                for worker in (*work, silence):
                    worker.cancel()
                errors = [
                    result for result in await asyncio.gather(*work, silence, return_exceptions=True) if isinstance(result, Exception)
                ]
        if end.done():
            return end.result()
        raise errors[0]

    async def _listen(self) -> None:
        async with self._line.live.listen(self._session) as lives:
            async for live in lives:
                self._silence.reset()
                if live.kind == "text":
                    self._add_live(live)
                elif live.kind == "again":
                    self._note(live.text)

    def _add_live(self, live: Live) -> None:
        """Add live text of our own turn; other turns answer someone else."""
        if live.turn is None:
            return
        if live.turn == self._turn:
            self._writer.add_live(live.text)
        elif live.turn != self._activity.turn:
            self._ahead.append(live)

    def _begin(self, started: TurnStarted) -> None:
        """Handle the start of a turn: it is ours if it takes our message, or if we sent none and it is the first."""
        if self._message in started.messages or (self._message is None and self._turn is None):
            self._turn = started.turn
        ahead, self._ahead = self._ahead, []
        for live in ahead:
            if live.turn == self._turn:
                self._writer.add_live(live.text)

    async def _report_silence(self) -> None:
        """Report once if another process that works on the session has been silent for too long."""
        activity = self._activity
        owner = await self._silence.wait_for_silent_owner(self._session, lambda: not activity.asks and not activity.is_parked)
        for words in silence_words(self._session, owner, self._settings.owner_watch.patience, is_kept=self._message is not None):
            self._note(words)

    async def _follow(self, cursor: int) -> None:
        stream = session_stream(self._session)
        recent = self._line.feed.read(stream, cursor)
        for recorded in recent:
            await self._take(recorded)
        await self._check_open_asks()
        self._check_reader()
        if self._message is None and self._activity.turn is None and not self._activity.queue:
            self._note("nothing waits in this session; give a TASK to go on with it")
            self._finish(TaskEnd(TaskStatus.DONE))
        async for recorded in self._line.feed.follow(stream, recent[-1].seq if recent else cursor):
            await self._take(recorded)
            await self._check_open_asks()
            self._check_reader()
        self._finish(TaskEnd(TaskStatus.FAILED, "the session was deleted"))

    async def _take(self, recorded: Recorded) -> None:
        event = recorded.event
        self._silence.reset()
        if self._settings.shape == "stream-json":
            self._write(event_json(recorded))
        self._progress(event)
        self._take_text(event)
        self._activity.take(event)
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
                    # The turn reached an ask before the interrupt reached the turn: nothing is left to stop.
                    self._finish(TaskEnd(TaskStatus.INTERRUPTED))
            case SessionClosed():
                self._finish(TaskEnd(TaskStatus.FAILED, f"the session is closed: {event.reason}"))
            case TurnEnded() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded() | ModelFailed():
                pass
            case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed() | SessionReopened():
                pass
            case _:
                assert_never(event)

    def _take_text(self, event: AnyEvent) -> None:
        """Add what the agent says in our own turn."""
        if not isinstance(event, SpeechEvent | TurnEvent | ModelEvent):
            return
        match event:
            case TextStreamed() | AgentSpoke() | ModelFailed() | TurnEnded() if event.turn != self._turn:
                pass
            case TextStreamed():
                self._writer.logged(event.text)
            case AgentSpoke():
                self._writer.spoke(event.text)
            case ModelFailed() if self._activity.holds_calls:
                pass  # an external agent retries on its own, and its text continues
            case ModelFailed() | TurnEnded():
                self._writer.broke_off()
            case TurnStarted() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)

    # Asks

    async def _check_open_asks(self) -> None:
        """Handle open asks as `on_ask` says."""
        on_ask = self._settings.on_ask
        if on_ask == "deny":
            for approval in [id_ for id_ in self._activity.asks if id_ not in self._answered]:
                self._answered.add(approval)
                if await self._deny(approval):
                    self._denied.add(approval)
            if not self._denied.isdisjoint(self._activity.asks):
                # The denial is in the log after our cursor: the agent receives it and continues.
                return
        elif on_ask == "wait":
            await self._ask_next()
        if self._activity.is_parked and (on_ask != "wait" or not self._activity.asks):
            # A wait without an ask, such as for an exhausted budget, cannot be resolved here, so end.
            self._finish(TaskEnd(TaskStatus.WAITING))

    async def _deny(self, approval: ApprovalId) -> bool:
        """Deny an ask; return False if that was refused and the ask may stay open."""
        ask = self._activity.asks.get(approval)
        # With a reason, an agent works on a change set that was denied and presents it again, which would never end.
        reason = "" if ask is not None and ask.subject.changes is not None else _DENIED
        command = AnswerApproval(by=self._who, approval=approval, granted=False, reason=reason)
        try:
            await self._line.desk.send(self._session, command)
        except CurtainwallError as error:
            self._note(plain_line(str(error)))
            return False
        return True

    async def _ask_next(self) -> None:
        """Show the next open ask to the user, or say where it can be answered."""
        if self._prompt.about in self._activity.asks:
            return
        await self._prompt.end()
        has_keys = self._settings.keys and self._settings.shape == "text"
        for ask in self._activity.asks.values():
            if ask.approval in self._answered:
                continue
            if has_keys:
                # Until the answer, no agent text comes between the card and its reader.
                self._writer.hold()
                self._prompt.ask(ask, "the agent asks")
                return
            self._answered.add(ask.approval)
            for words in open_words((ask,)):
                self._note(words)
        self._writer.release()

    async def _press(self, key: str, approval: ApprovalId) -> bool:
        """Carry out the request of a key; return whether it was an answer."""
        # Start-up time: most tasks ask nobody at this terminal.
        from curtainwall.channels.slash import Control

        control = Control(self._line, self._who, lambda _: ())
        outcome = await control.do(self._session, request_for_key(key, approval))
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
            yield  # signals only reach the main thread; in another thread the caller stops us in its own way
            return
        try:
            yield
        finally:
            hold_interrupts()

    def _stop_for_good(self, code: int) -> None:
        self._ended_with = code
        self._stop()

    def _stop(self) -> None:
        """Interrupt our turn; if it is not running or already being interrupted, stop without interrupting."""
        if self._activity.works and self._activity.turn == self._turn and self._interrupting is None:
            self._interrupting = asyncio.create_task(self._interrupt())
        else:
            self._finish(TaskEnd(TaskStatus.INTERRUPTED))

    @property
    def _is_unread(self) -> bool:
        """Whether a reader of the output has gone."""
        return self._out.is_closed or self._err.is_closed

    def _check_reader(self) -> None:
        """Stop if nobody reads any more; work that has not begun is stopped when it begins."""
        activity = self._activity
        is_to_begin = self._message in activity.queue if self._message is not None else activity.turn is None and bool(activity.queue)
        if self._is_unread and self._interrupting is None and not is_to_begin:
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
        if isinstance(event, SessionClosed) and event.by == SYSTEM:
            # It ends with its task, which is reported anyway.
            return
        line = describe_event(event, self._activity, self._typed)
        if line is None or self._settings.shape == "stream-json":
            return
        if not self._settings.quiet or line.tone in ("warn", "bad"):
            self._note(line.text)

    def _progress_files(self) -> None:
        words = self._activity.change_words()
        if words and self._settings.shape == "text" and not self._settings.quiet:
            self._note(plain_line(f"files: {words}"))

    def _report_end(self, end: TaskEnd) -> None:
        view = self._line.desk.view(self._session)
        result = document(end, self._writer.text, self._usage.total(), view, self._activity.changes)
        if self._settings.shape == "json":
            self._write(json.dumps(result, ensure_ascii=True))
        elif self._settings.shape == "stream-json":
            self._write(json.dumps({"event": "result", **result}, ensure_ascii=True))
        if end.status is TaskStatus.WAITING or (end.status is TaskStatus.INTERRUPTED and view.pending):
            for words in (*open_words(view.pending), *budget_words(view)):
                self._note(words)
            self._note(f"then {resume_words(self._session)} goes on")
        elif end.status in (TaskStatus.FAILED, TaskStatus.INTERRUPTED) and view.status != "closed":
            # If nothing is queued, continuing takes another message.
            task = "TASK" if view.status == "ready" and not view.queue else ""
            self._note(f"{resume_words(self._session, task)} goes on with this session")

    def _write(self, text: str) -> None:
        self._out.write(f"{text}\n")

    def _note(self, text: str) -> None:
        self._err.note(text)
