"""Claude Code as a local process behind the port of all agents: each turn in a running, a resumed or a new conversation."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.external import USED_UP, LiveText
from curtainwall.agents.external.process.conversation import (
    ConversationOpening,
    ProcessHistory,
    open_conversation,
    replace_lost_conversation,
)
from curtainwall.agents.external.process.launch import EXTENSION, AgentCrashed, AgentErred, AgentGarbled, AgentSilent, LoginNeeded, NoAnswer
from curtainwall.agents.external.process.pool import ProcessPool
from curtainwall.agents.external.process.running_process import ProcessMeans, RunningProcess
from curtainwall.agents.external.process.session_process import ProcessPorts, SessionProcess
from curtainwall.agents.external.process.turn import ConversationLost, ProcessTurn, ProcessTurnPorts
from curtainwall.agents.external.process.wire import message_mark
from curtainwall.model import (
    AWAKE,
    CompactionSkipped,
    CurtainwallError,
    ExtensionNoted,
    Live,
    SessionId,
    TurnAt,
    TurnFailed,
    TurnResult,
    TurnStatus,
)

_BAD_ENDS: Final = (AgentCrashed, AgentGarbled, AgentSilent, NoAnswer)


@dataclass(slots=True)
class TurnWork:
    """One turn's work, from the log to the log."""

    at: TurnAt
    keeper: SessionProcess
    telling: LiveText
    sync: Callable[[], ProcessHistory]

    async def work(self) -> TurnResult:
        """Do it."""
        keeper = self.keeper
        if keeper.past.conversation and keeper.past.share() >= keeper.around.limits.full:
            await self._carry_over()
            if keeper.past.exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
        wanted = "\n\n".join(keeper.past.wanted)
        text, mark = keeper.past.message(), message_mark(self.at.turn, wanted) if wanted else keeper.fresh()
        running = keeper.warm()
        if running is not None:
            return await self._send(running, text, mark)
        folders = keeper.folders
        taken = await asyncio.to_thread(open_conversation, keeper.past, folders.state, folders.workspace, mark, keeper.fresh())
        return await self._taken_up(taken, text, mark)

    async def _taken_up(self, taken: ConversationOpening, text: str, mark: str) -> TurnResult:
        if taken.is_delivered:
            await self._note_delivery(taken, mark)
            if taken.answer is not None:
                await self.telling.whole(taken.answer)
                return TurnResult(status=TurnStatus.DONE)
            text, mark = self.sync().message(), self.keeper.fresh()
        if taken.lost:
            await self._say_lost(taken.lost)
        running = await self.keeper.started(taken.conversation, is_new=taken.is_new)
        try:
            return await self._send(running, f"{taken.preface}{text}", mark)
        except ConversationLost as fault:
            if taken.is_new:
                raise TurnFailed("the agent does not know a conversation that has just begun") from fault
            again = replace_lost_conversation(self.keeper.past, "the agent cannot go on with it", self.keeper.fresh())
            return await self._taken_up(again, text, mark)

    async def _send(self, running: RunningProcess, text: str, mark: str) -> TurnResult:
        around, seat = self.keeper.around, self.keeper.seat
        ports = ProcessTurnPorts(around.feed, around.journal, around.clock)
        turn = ProcessTurn(ports, self.at, self.keeper.past, running, self.telling, around.limits, mark)
        try:
            async with running.reach.turn(self.at):
                result = await turn.work(text)
        except asyncio.CancelledError:
            if not self.at.presence.has_left:
                await asyncio.shield(self._withdraw())
            raise
        except (AgentErred, LoginNeeded):
            # A refusal for want of budget is, to the agent, one for want of a key.
            if self.sync().exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
            raise
        except _BAD_ENDS:
            seat.failed()
            raise
        else:
            seat.failures = 0
            return result
        finally:
            if turn.must_end or not running.is_alive:
                await self.keeper.pool.stop(seat, grace=0)

    async def _withdraw(self) -> None:
        """Take back what the agent asked for in a turn that nobody wants any more."""
        for call in self.sync().asks.open_in(self.at.turn):
            await self.keeper.around.gate.drop(self.at.session, call, "the turn was interrupted")

    async def _carry_over(self) -> None:
        try:
            await self.keeper.carried_over(self.at)
        except TurnFailed as fault:
            if not self.sync().exhausted:
                await self.telling.note(f"the conversation is nearly too long, and could not be summarised: {fault}")
        self.sync()

    async def _note_delivery(self, taken: ConversationOpening, mark: str) -> None:
        """Write down what the transcript says: the message arrived before our process ended."""
        data = {"conversation": taken.conversation, "delivered": self.at.turn, "mark": mark}
        await self.telling.record(ExtensionNoted(at=self.keeper.around.clock.now(), extension=EXTENSION, data=dict(data)))

    async def _say_lost(self, why: str) -> None:
        await self.telling.note(f"the agent's conversation is lost ({why}); it starts a new one, and is told what was said before")


class ProcessAgent:
    """Local processes, for any number of sessions. What is held in memory is only there to be quick; the log and the disk know it all."""

    def __init__(self, around: ProcessPorts) -> None:
        self._around = around
        self._pool = ProcessPool(ProcessMeans(around.outside, around.limits, os.getuid(), around.shares))
        self._known: dict[SessionId, ProcessHistory] = {}

    @property
    def alive(self) -> int:
        """Return how many processes there are."""
        return self._pool.alive

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done."""
        around, past = self._around, self._synced(at.session)
        granted = past.asks.granted_in(at.turn)
        for call in granted:
            await around.gate.drop(at.session, call, "the agent was gone when the answer came")
        waits_for = past.asks.open_in(at.turn)
        if waits_for and not granted and not past.asks.refusals:
            # Whoever asked is gone, and nothing was answered since: all that the agent could do is ask again.
            return TurnResult(status=TurnStatus.WAITING, waits_for=waits_for)
        telling = LiveText(at, around.journal, around.clock, around.masker)
        async with self._pool.borrow(at.session, telling.does) as seat:
            keeper = SessionProcess(around, self._pool, seat, past, telling.does)
            try:
                return await TurnWork(at, keeper, telling, lambda: self._synced(at.session)).work()
            except TurnFailed as fault:
                # It may say what the agent said.
                raise type(fault)(telling.masked(str(fault))) from fault

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Have the agent replace its history by a summary, or record why not."""
        around, now = self._around, self._around.clock.now

        def tell(words: str) -> None:
            around.journal.say(session, Live(kind="doing", text=words))

        tell("summarising older messages")
        try:
            async with self._pool.borrow(session, tell) as seat:
                keeper = SessionProcess(around, self._pool, seat, self._synced(session), tell)
                done = await keeper.shortened(instructions)
            why = "there is nothing that a summary could replace"
        except CurtainwallError as fault:
            done, why = None, around.masker.mask_text(str(fault))
        if done is None:
            await around.journal.record(session, (CompactionSkipped(at=now(), why=why),))

    def last_words(self, session: SessionId) -> str:
        """Return what the agent said last."""
        return self._synced(session).last_words()

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session; its process rests, and goes by itself."""
        self._known.pop(session, None)

    async def sleep(self, session: SessionId) -> None:
        """End a session's process, unless it is at work; the next message resumes the conversation."""
        await self._pool.drop(session)

    async def wake(self, session: SessionId) -> str:
        """Start a session's process before anybody needs it, and say what came of it; before the first message none can be resumed."""
        async with self._pool.borrow(session, lambda _: None) as seat:
            running = await SessionProcess(self._around, self._pool, seat, self._synced(session), lambda _: None).resumed()
        return AWAKE if running is not None else "it has no conversation to go on with yet; its process starts with the next message"

    async def close(self) -> None:
        """End the processes of this process."""
        await self._pool.close()

    def _synced(self, session: SessionId) -> ProcessHistory:
        past = self._known.get(session)
        if past is None:
            past = self._known[session] = ProcessHistory(EXTENSION, self._around.journal.load)
        past.sync(self._around.feed, session)
        return past
