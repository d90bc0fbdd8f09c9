"""A conversation on a terminal: the log is told as it grows, and what the human does becomes commands, in the order it was done."""

import asyncio
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from curtainwall.channels.plain import plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import Control, SlashResult, SuggestionSource, suggest
from curtainwall.channels.terminal.asks import request_for_key
from curtainwall.channels.terminal.exit import hold_interrupts, on_end_signal, parting_words, silence_words
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

    def __init__(self, known: SuggestionSource) -> None:
        self._known = known

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the library's name
        """Yield what the text before the cursor could go on with."""
        try:
            for it in suggest(document.text_before_cursor, self._known):
                yield Completion(it.text, start_position=-it.length, display_meta=it.meaning)
        except CurtainwallError:
            return


_INTERRUPTED = 130
_TICK = 0.1
_LOOK_AGAIN = 0.25


class TerminalConversation:
    """One person, one terminal, one session at a time."""

    def __init__(self, line: ChannelPorts, session: SessionId, who: Who, settings: ConversationSettings) -> None:
        self._line = line
        self._who = who
        self._colour = settings.colour
        self._attend = settings.attend
        self._control = Control(line, who, settings.log_places)
        self._view = ConversationView(line, who, session)
        known = SuggestionSource(self._view.look, lambda: line.desk.find(SessionQuery()))
        self._prompt = PromptScreen(self._view, SlashCompleter(known), settings)
        self._actions: asyncio.Queue[TextSubmitted | KeyPressed | TakeBackPressed] = asyncio.Queue()
        self._stale = asyncio.Event()
        self._is_deleted = False
        self._moved = asyncio.Event()
        self._holding = settings.holding
        self._silence = SilenceTimer(settings.holding)
        self._stopped: TurnId | None = None
        self._answered: ApprovalId | None = None

    async def run(self) -> int:
        """Converse until the human leaves, and return the exit code."""
        self._go_to(self._view.session)
        work = (self._watch(), self._serve(), self._keep_looking(), self._tick(), self._stay())
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(each) for each in work]
            on_end_signal(lambda code: others.append(tasks.create_task(self._end(code))))
            code = await self._prompt.run()
            hold_interrupts()
            for task in others:
                task.cancel()
        if not self._is_deleted:
            self._show(parting_words(self._view.look()), "dim")
        return code

    @property
    def _renderer(self) -> Renderer:
        return Renderer(self._prompt.columns, self._colour)

    # The session

    def _go_to(self, session: SessionId) -> None:
        self._prompt.show(self._view.open(session, self._renderer))
        self._is_deleted = False
        self._moved.set()
        self._attend(session)

    async def _stay(self) -> None:
        """Follow the session that is open, and after a move the next one."""
        while True:
            self._moved.clear()
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(each) for each in (self._follow(), self._listen(), self._report_silence())]
                await self._moved.wait()
                for task in work:
                    task.cancel()

    async def _follow(self) -> None:
        scene = self._view
        async for recorded in self._line.feed.follow(session_stream(scene.session), scene.cursor):
            scene.cursor = recorded.seq
            self._silence.broken()
            self._prompt.show(scene.tell(recorded.event, self._renderer))
            if not isinstance(recorded.event, TextStreamed):
                self._stale.set()
            self._prompt.refresh()
        self._is_deleted = True
        self._show(("this session was deleted; `/new` opens another, and `/resume` goes to one that is there",), "red")

    async def _listen(self) -> None:
        async with self._line.listening.listen(self._view.session) as lives:
            async for live in lives:
                self._silence.broken()
                self._prompt.show(self._view.hear(live, self._renderer))

    async def _report_silence(self) -> None:
        """Say once where another process that works on the session has been silent for long although its turn goes on, or one waits."""
        session, tale = self._view.session, self._view.tale
        owner = await self._silence.of_another(session, lambda: not tale.is_parked and not tale.asks and bool(tale.works or tale.queue))
        self._show(silence_words(session, owner, self._holding.patience, is_kept=bool(tale.queue)), "dim")

    async def _keep_looking(self) -> None:
        """Keep the status line true; looking costs something, so many events are one look."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._view.look()
            self._prompt.refresh()
            await asyncio.sleep(_LOOK_AGAIN)

    async def _tick(self) -> None:
        """Keep what changes by itself in motion: the text that comes, the spinner, and how long a card has been there."""
        while True:
            await asyncio.sleep(_TICK)
            self._prompt.settle(self._line.clock.elapsed())
            if self._view.tale.works:
                self._prompt.refresh()

    # What the human does

    async def _watch(self) -> None:
        """Take what the human does; stopping and leaving never wait for anything that was begun before."""
        while True:
            match await self._prompt.deeds.get():
                case StopPressed(turn=turn):
                    await self._stop(turn)
                case ExitPressed():
                    self._prompt.leave(0)
                case TextSubmitted() | KeyPressed() | TakeBackPressed() as wish:
                    self._actions.put_nowait(wish)

    async def _serve(self) -> None:
        while True:
            match await self._actions.get():
                case TextSubmitted() as typed:
                    await self._typed(typed)
                case KeyPressed() as pressed:
                    await self._pressed(pressed)
                case TakeBackPressed():
                    await self._take_back()

    async def _stop(self, turn: TurnId | None) -> None:
        """Interrupt what ran when that was wanted. Where nothing did, or it was asked for already, leave; an open ask stays open."""
        tale = self._view.tale
        if turn is None:
            self._prompt.leave(0)
        elif turn == self._stopped or (tale.interrupting and turn == tale.turn):
            self._prompt.leave(_INTERRUPTED)
        elif turn == self._view.works():
            self._stopped = turn
            await self._attempt(self._view.session, InterruptTurn(by=self._who))

    async def _end(self, code: int) -> None:
        """Interrupt what runs, and leave."""
        try:
            if self._view.works() is not None:
                await self._attempt(self._view.session, InterruptTurn(by=self._who))
        finally:
            self._prompt.leave(code)

    async def _typed(self, typed: TextSubmitted) -> None:
        about = None if typed.about is None else ApprovalId(typed.about)
        outcome = await self._control.take(self._view.session, typed.text, about)
        self._show_outcome(outcome)
        if outcome.refused and not typed.text.lstrip().startswith("/"):
            self._prompt.put_back(typed.text)
        self._follow_up(outcome)

    def _follow_up(self, outcome: SlashResult) -> None:
        if outcome.clears:
            self._prompt.clear()
        if outcome.go_to is not None:
            self._go_to(outcome.go_to)
        if outcome.quits:
            self._prompt.leave(0)
        self._stale.set()

    async def _pressed(self, pressed: KeyPressed) -> None:
        """Do what a key means, for the ask that it was pressed about."""
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
