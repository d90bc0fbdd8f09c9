"""A conversation on a terminal: shows the log as it grows, and turns the user's actions into commands, in order."""

import asyncio
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from curtainwall.channels.plain import plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import Control, SlashResult, SuggestionSource, suggest
from curtainwall.channels.terminal.asks import request_for_key
from curtainwall.channels.terminal.exit import hold_interrupts, on_end_signal, parting_words, silence_words
from curtainwall.channels.terminal.line_screen import LineScreen
from curtainwall.channels.terminal.prompt import ExitPressed, KeyPressed, PromptScreen, StopPressed, TakeBackPressed, TextSubmitted
from curtainwall.channels.terminal.renderer import Renderer
from curtainwall.channels.terminal.settings import ConversationSettings, SilenceTimer
from curtainwall.channels.terminal.view import ConversationView
from curtainwall.model import (
    ApprovalId,
    CurtainwallError,
    InterruptTurn,
    SessionId,
    SessionQuery,
    TextStreamed,
    TurnId,
    Who,
    WithdrawMessage,
    session_stream,
)


class SlashCompleter(Completer):
    """Completes slash words and their arguments, and nothing in a message."""

    def __init__(self, source: SuggestionSource) -> None:
        self._source = source

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the library's name
        """Yield completions for the text before the cursor."""
        try:
            for suggestion in suggest(document.text_before_cursor, self._source):
                yield Completion(suggestion.text, start_position=-suggestion.length, display_meta=suggestion.meaning)
        except CurtainwallError:
            return


_INTERRUPTED = 130
_TICK = 0.1
_REFRESH_PAUSE = 0.25


class TerminalConversation:
    """One person, one terminal, one session at a time."""

    def __init__(self, line: ChannelPorts, session: SessionId, who: Who, settings: ConversationSettings) -> None:
        self._line = line
        self._who = who
        self._colour = settings.colour
        self._attend = settings.attend
        self._control = Control(line, who, settings.log_places)
        self._view = ConversationView(line, who, session)
        source = SuggestionSource(self._view.refresh, lambda: line.desk.find(SessionQuery()))
        self._prompt = LineScreen(self._view) if settings.is_dumb else PromptScreen(self._view, SlashCompleter(source), settings)
        self._actions: asyncio.Queue[TextSubmitted | KeyPressed | TakeBackPressed] = asyncio.Queue()
        self._stale = asyncio.Event()
        self._is_deleted = False
        self._switched = asyncio.Event()
        self._holding = settings.owner_watch
        self._silence = SilenceTimer(settings.owner_watch)
        self._stopped: TurnId | None = None
        self._answered: ApprovalId | None = None

    async def run(self) -> int:
        """Run until the user leaves, and return the exit code."""
        self._go_to(self._view.session)
        work = (self._receive_actions(), self._do_actions(), self._refresh_status(), self._tick(), self._follow_sessions())
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(coroutine) for coroutine in work]
            on_end_signal(lambda code: others.append(tasks.create_task(self._end(code))))
            code = await self._prompt.run()
            hold_interrupts()
            for task in others:
                task.cancel()
        if not self._is_deleted:
            self._show(parting_words(self._view.refresh()), "dim")
        return code

    @property
    def _renderer(self) -> Renderer:
        return Renderer(self._prompt.columns, self._colour)

    # The session

    def _go_to(self, session: SessionId) -> None:
        self._prompt.show(self._view.open(session, self._renderer))
        self._is_deleted = False
        self._switched.set()
        self._attend(session)

    async def _follow_sessions(self) -> None:
        """Follow the open session, and after a switch the next one."""
        while True:
            self._switched.clear()
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(coroutine) for coroutine in (self._follow(), self._listen(), self._report_silence())]
                await self._switched.wait()
                for task in work:
                    task.cancel()

    async def _follow(self) -> None:
        view = self._view
        async for recorded in self._line.feed.follow(session_stream(view.session), view.cursor):
            view.cursor = recorded.seq
            self._silence.reset()
            self._prompt.show(view.apply(recorded.event, self._renderer))
            if not isinstance(recorded.event, TextStreamed):
                self._stale.set()
            self._prompt.refresh()
        self._is_deleted = True
        self._show(("this session was deleted; `/new` opens another, and `/resume` goes to one that is there",), "red")

    async def _listen(self) -> None:
        async with self._line.live.listen(self._view.session) as lives:
            async for live in lives:
                self._silence.reset()
                self._prompt.show(self._view.add_live_text(live, self._renderer))

    async def _report_silence(self) -> None:
        """Report once if another process that works on the session has been silent for too long while a turn runs or is queued."""
        session, activity = self._view.session, self._view.activity
        owner = await self._silence.wait_for_silent_owner(
            session, lambda: not activity.is_parked and not activity.asks and bool(activity.works or activity.queue)
        )
        self._show(silence_words(session, owner, self._holding.patience, is_kept=bool(activity.queue)), "dim")

    async def _refresh_status(self) -> None:
        """Keep the status line current; a refresh is costly, so several events share one."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._view.refresh()
            self._prompt.refresh()
            await asyncio.sleep(_REFRESH_PAUSE)

    async def _tick(self) -> None:
        """Redraw what changes over time: streaming text, the spinner, and how long a card has been visible."""
        while True:
            await asyncio.sleep(_TICK)
            self._prompt.settle(self._line.clock.elapsed())
            if self._view.activity.works:
                self._prompt.refresh()

    # What the human does

    async def _receive_actions(self) -> None:
        """Receive the user's actions; stopping and leaving never wait for earlier ones."""
        while True:
            match await self._prompt.actions.get():
                case StopPressed(turn=turn):
                    await self._stop(turn)
                case ExitPressed():
                    self._prompt.leave(0)
                case TextSubmitted() | KeyPressed() | TakeBackPressed() as action:
                    self._actions.put_nowait(action)

    async def _do_actions(self) -> None:
        while True:
            match await self._actions.get():
                case TextSubmitted() as action:
                    await self._on_text(action)
                case KeyPressed() as key:
                    await self._on_key(key)
                case TakeBackPressed():
                    await self._take_back()

    async def _stop(self, turn: TurnId | None) -> None:
        """Interrupt the turn that ran when the key was pressed; if none ran or it is already being interrupted, leave. Asks stay open."""
        activity = self._view.activity
        if turn is None:
            self._prompt.leave(0)
        elif turn == self._stopped or (activity.interrupting and turn == activity.turn):
            self._prompt.leave(_INTERRUPTED)
        elif turn == self._view.works():
            self._stopped = turn
            await self._attempt(self._view.session, InterruptTurn(by=self._who))

    async def _end(self, code: int) -> None:
        """Interrupt the running turn, and leave."""
        try:
            if self._view.works() is not None:
                await self._attempt(self._view.session, InterruptTurn(by=self._who))
        finally:
            self._prompt.leave(code)

    async def _on_text(self, submitted: TextSubmitted) -> None:
        about = None if submitted.about is None else ApprovalId(submitted.about)
        outcome = await self._control.take(self._view.session, submitted.text, about)
        self._show_outcome(outcome)
        if outcome.refused and not submitted.text.lstrip().startswith("/"):
            self._prompt.put_back(submitted.text)
        self._follow_up(outcome)

    def _follow_up(self, outcome: SlashResult) -> None:
        if outcome.clears:
            self._prompt.clear()
        if outcome.go_to is not None:
            self._go_to(outcome.go_to)
        if outcome.quits:
            self._prompt.leave(0)
        self._stale.set()

    async def _on_key(self, pressed: KeyPressed) -> None:
        """Carry out the request of a key for the ask that it was pressed about."""
        if pressed.about == self._answered:
            return
        request = request_for_key(pressed.key, ApprovalId(pressed.about))
        outcome = await self._control.do(self._view.session, request)
        self._answered = outcome.answered or self._answered
        self._show_outcome(outcome)

    async def _take_back(self) -> None:
        message = self._view.last_queued()
        if message is not None and await self._attempt(self._view.session, WithdrawMessage(by=self._who, message=message.message)):
            self._prompt.put_back(message.text)

    async def _attempt(self, session: SessionId, command: InterruptTurn | WithdrawMessage) -> bool:
        try:
            await self._line.desk.send(session, command)
        except CurtainwallError as error:
            self._show([plain_line(str(error))], "red")
            return False
        return True

    def _show_outcome(self, outcome: SlashResult) -> None:
        if outcome.is_card:
            self._prompt.show("".join(map(self._renderer.rows, outcome.lines)))
        else:
            self._show(() if outcome.answered else outcome.lines, "red" if outcome.refused else "")

    def _show(self, lines: Iterable[str], style: str) -> None:
        self._prompt.show("".join(self._renderer.item(line, style) for line in lines))
