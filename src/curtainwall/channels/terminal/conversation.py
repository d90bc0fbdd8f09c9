"""A conversation on a terminal: the log is told as it grows, and what the human does becomes commands, in the order it was done."""

import asyncio
from collections.abc import Iterable

from curtainwall.channels.line import Line
from curtainwall.channels.slash import Control, Known, Outcome
from curtainwall.channels.terminal.completion import SlashCompleter
from curtainwall.channels.terminal.farewell import parting_words, silence_words
from curtainwall.channels.terminal.keys import meant_by
from curtainwall.channels.terminal.looks import Looks
from curtainwall.channels.terminal.scene import Scene
from curtainwall.channels.terminal.settings import Conversing
from curtainwall.channels.terminal.signals import hold_interrupts, on_end_signal
from curtainwall.channels.terminal.silence import Silence
from curtainwall.channels.terminal.stage import Left, Pressed, Stage, Stopped, TookBack, Typed
from curtainwall.channels.text.plain import plain_line
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

_INTERRUPTED = 130
_TICK = 0.1
_LOOK_AGAIN = 0.25


class Conversation:
    """One person, one terminal, one session at a time."""

    def __init__(self, line: Line, session: SessionId, who: Who, settings: Conversing) -> None:
        self._line = line
        self._who = who
        self._colour = settings.colour
        self._attend = settings.attend
        self._control = Control(line, who, settings.log_places)
        self._scene = Scene(line, who, session)
        known = Known(self._scene.look, lambda: line.desk.find(SessionQuery()))
        self._stage = Stage(self._scene, SlashCompleter(known), settings)
        self._wishes: asyncio.Queue[Typed | Pressed | TookBack] = asyncio.Queue()
        self._stale = asyncio.Event()
        self._is_deleted = False
        self._moved = asyncio.Event()
        self._holding = settings.holding
        self._silence = Silence(settings.holding)
        self._stopped: TurnId | None = None
        self._answered: ApprovalId | None = None

    async def run(self) -> int:
        """Converse until the human leaves, and return the exit code."""
        self._go_to(self._scene.session)
        work = (self._watch(), self._serve(), self._keep_looking(), self._tick(), self._stay())
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(each) for each in work]
            on_end_signal(lambda code: others.append(tasks.create_task(self._end(code))))
            code = await self._stage.run()
            hold_interrupts()
            for task in others:
                task.cancel()
        if not self._is_deleted:
            self._show(parting_words(self._scene.look()), "dim")
        return code

    @property
    def _looks(self) -> Looks:
        return Looks(self._stage.columns, self._colour)

    # The session

    def _go_to(self, session: SessionId) -> None:
        self._stage.show(self._scene.open(session, self._looks))
        self._is_deleted = False
        self._moved.set()
        self._attend(session)

    async def _stay(self) -> None:
        """Follow the session that is open, and after a move the next one."""
        while True:
            self._moved.clear()
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(each) for each in (self._follow(), self._listen(), self._tell_silence())]
                await self._moved.wait()
                for task in work:
                    task.cancel()

    async def _follow(self) -> None:
        scene = self._scene
        async for recorded in self._line.feed.follow(session_stream(scene.session), scene.cursor):
            scene.cursor = recorded.seq
            self._silence.broken()
            self._stage.show(scene.tell(recorded.event, self._looks))
            if not isinstance(recorded.event, TextStreamed):
                self._stale.set()
            self._stage.refresh()
        self._is_deleted = True
        self._show(("this session was deleted; `/new` opens another, and `/resume` goes to one that is there",), "red")

    async def _listen(self) -> None:
        async with self._line.listening.listen(self._scene.session) as lives:
            async for live in lives:
                self._silence.broken()
                self._stage.show(self._scene.hear(live, self._looks))

    async def _tell_silence(self) -> None:
        """Say once where another process that works on the session has been silent for long although its turn goes on, or one waits."""
        session, tale = self._scene.session, self._scene.tale
        owner = await self._silence.of_another(session, lambda: not tale.is_parked and not tale.asks and bool(tale.works or tale.queue))
        self._show(silence_words(session, owner, self._holding.patience, is_kept=bool(tale.queue)), "dim")

    async def _keep_looking(self) -> None:
        """Keep the status line true; looking costs something, so many events are one look."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._scene.look()
            self._stage.refresh()
            await asyncio.sleep(_LOOK_AGAIN)

    async def _tick(self) -> None:
        """Keep what changes by itself in motion: the text that comes, the spinner, and how long a card has been there."""
        while True:
            await asyncio.sleep(_TICK)
            self._stage.settle(self._line.clock.elapsed())
            if self._scene.tale.works:
                self._stage.refresh()

    # What the human does

    async def _watch(self) -> None:
        """Take what the human does; stopping and leaving never wait for anything that was begun before."""
        while True:
            match await self._stage.deeds.get():
                case Stopped(turn=turn):
                    await self._stop(turn)
                case Left():
                    self._stage.leave(0)
                case Typed() | Pressed() | TookBack() as wish:
                    self._wishes.put_nowait(wish)

    async def _serve(self) -> None:
        while True:
            match await self._wishes.get():
                case Typed() as typed:
                    await self._typed(typed)
                case Pressed() as pressed:
                    await self._pressed(pressed)
                case TookBack():
                    await self._take_back()

    async def _stop(self, turn: TurnId | None) -> None:
        """Interrupt what ran when that was wanted. Where nothing did, or it was asked for already, leave; an open ask stays open."""
        tale = self._scene.tale
        if turn is None:
            self._stage.leave(0)
        elif turn == self._stopped or (tale.interrupting and turn == tale.turn):
            self._stage.leave(_INTERRUPTED)
        elif turn == self._scene.works():
            self._stopped = turn
            await self._attempt(self._scene.session, InterruptTurn(by=self._who))

    async def _end(self, code: int) -> None:
        """Interrupt what runs, and leave."""
        try:
            if self._scene.works() is not None:
                await self._attempt(self._scene.session, InterruptTurn(by=self._who))
        finally:
            self._stage.leave(code)

    async def _typed(self, typed: Typed) -> None:
        about = None if typed.about is None else ApprovalId(typed.about)
        outcome = await self._control.take(self._scene.session, typed.text, about)
        self._show_outcome(outcome)
        if outcome.refused and not typed.text.lstrip().startswith("/"):
            self._stage.put_back(typed.text)
        self._follow_up(outcome)

    def _follow_up(self, outcome: Outcome) -> None:
        if outcome.clears:
            self._stage.clear()
        if outcome.go_to is not None:
            self._go_to(outcome.go_to)
        if outcome.quits:
            self._stage.leave(0)
        self._stale.set()

    async def _pressed(self, pressed: Pressed) -> None:
        """Do what a key means, for the ask that it was pressed about."""
        if pressed.about == self._answered:
            return
        request = meant_by(pressed.key, ApprovalId(pressed.about))
        outcome = await self._control.do(self._scene.session, request)
        self._answered = outcome.answered or self._answered
        self._show_outcome(outcome)

    async def _take_back(self) -> None:
        message = self._scene.last_queued()
        if message is not None and await self._attempt(self._scene.session, WithdrawMessage(by=self._who, message=message.message)):
            self._stage.put_back(message.text)

    async def _attempt(self, session: SessionId, command: InterruptTurn | WithdrawMessage) -> bool:
        try:
            await self._line.desk.send(session, command)
        except CurtainwallError as error:
            self._show([plain_line(str(error))], "red")
            return False
        return True

    def _show_outcome(self, outcome: Outcome) -> None:
        if outcome.is_card:
            self._stage.show("".join(map(self._looks.rows, outcome.lines)))
        else:
            self._show(() if outcome.answered else outcome.lines, "red" if outcome.refused else "")

    def _show(self, lines: Iterable[str], style: str) -> None:
        self._stage.show("".join(self._looks.item(line, style) for line in lines))
