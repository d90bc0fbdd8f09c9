"""Claude Code as a local process behind the agent port: each turn continues, resumes or starts a conversation."""

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
from curtainwall.agents.external.process.packed_state import unpack_state
from curtainwall.agents.external.process.pool import ProcessPool, Seat
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
    """One turn, from reading the log to recording the result."""

    at: TurnAt
    keeper: SessionProcess
    telling: LiveText
    sync: Callable[[], ProcessHistory]

    async def work(self) -> TurnResult:
        """Run the turn."""
        keeper = self.keeper
        if keeper.past.conversation and keeper.past.share() >= keeper.around.limits.full:
            await self._carry_over()
            if keeper.past.exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
        wanted = "\n\n".join(keeper.past.undelivered)
        text, mark = keeper.past.message(), message_mark(self.at.turn, wanted) if wanted else keeper.fresh()
        running = keeper.warm()
        if running is not None:
            return await self._send(running, text, mark)
        folders = keeper.folders
        opening = await asyncio.to_thread(open_conversation, keeper.past, folders.state, folders.workspace, mark, keeper.fresh())
        return await self._open(opening, text, mark)

    async def _open(self, opening: ConversationOpening, text: str, mark: str) -> TurnResult:
        if opening.is_delivered:
            await self._note_delivery(opening, mark)
            if opening.answer is not None:
                await self.telling.whole(opening.answer)
                return TurnResult(status=TurnStatus.DONE)
            text, mark = self.sync().message(), self.keeper.fresh()
        if opening.lost:
            await self._say_lost(opening.lost)
        running = await self.keeper.started(opening.conversation, is_new=opening.is_new)
        try:
            return await self._send(running, f"{opening.preface}{text}", mark)
        except ConversationLost as fault:
            if opening.is_new:
                raise TurnFailed("the agent does not know a conversation that has just begun") from fault
            replacement = replace_lost_conversation(self.keeper.past, "the agent cannot go on with it", self.keeper.fresh())
            return await self._open(replacement, text, mark)

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
            # To the agent, a refusal for lack of budget looks like a missing key.
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
        """Withdraw the open calls of an interrupted turn."""
        for call in self.sync().asks.open_in(self.at.turn):
            await self.keeper.around.gate.drop(self.at.session, call, "the turn was interrupted")

    async def _carry_over(self) -> None:
        try:
            await self.keeper.carried_over(self.at)
        except TurnFailed as fault:
            if not self.sync().exhausted:
                await self.telling.note(f"the conversation is nearly too long, and could not be summarised: {fault}")
        self.sync()

    async def _note_delivery(self, opening: ConversationOpening, mark: str) -> None:
        """Record what the transcript shows: the message arrived before our process ended."""
        data = {"conversation": opening.conversation, "delivered": self.at.turn, "mark": mark}
        await self.telling.record(ExtensionNoted(at=self.keeper.around.clock.now(), extension=EXTENSION, data=dict(data)))

    async def _say_lost(self, why: str) -> None:
        await self.telling.note(f"the agent's conversation is lost ({why}); it starts a new one, and is told what was said before")


class ProcessAgent:
    """Runs local processes for any number of sessions. Memory is only a cache; the log and the disk hold everything."""

    def __init__(self, around: ProcessPorts) -> None:
        self._around = around
        self._pool = ProcessPool(ProcessMeans(around.outside, around.limits, os.getuid(), around.shares))
        self._histories: dict[SessionId, ProcessHistory] = {}

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
            # The process that asked is gone and nothing was answered since: the agent could only ask again.
            return TurnResult(status=TurnStatus.WAITING, waits_for=waits_for)
        telling = LiveText(at, around.journal, around.clock, around.masker)
        async with self._pool.borrow(at.session, telling.does) as seat:
            keeper = await self._keeper(seat, past, telling.does)
            try:
                return await TurnWork(at, keeper, telling, lambda: self._synced(at.session)).work()
            except TurnFailed as fault:
                # The message may quote the agent, secrets included.
                raise type(fault)(telling.masked(str(fault))) from fault

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Have the agent replace its history with a summary, or record why it did not."""
        around, now = self._around, self._around.clock.now

        def tell(text: str) -> None:
            around.journal.publish(session, Live(kind="doing", text=text))

        tell("summarising older messages")
        try:
            async with self._pool.borrow(session, tell) as seat:
                keeper = await self._keeper(seat, self._synced(session), tell)
                done = await keeper.shortened(instructions)
            why = "there is nothing that a summary could replace"
        except CurtainwallError as fault:
            done, why = None, around.masker.mask_text(str(fault))
        if done is None:
            await around.journal.record(session, (CompactionSkipped(at=now(), why=why),))

    def last_words(self, session: SessionId) -> str:
        """Return the agent's last reply."""
        return self._synced(session).last_words()

    def forget(self, session: SessionId) -> None:
        """Discard what is held in memory for a session; its process ends once it has been idle long enough."""
        self._histories.pop(session, None)

    async def sleep(self, session: SessionId) -> None:
        """End a session's process unless it is working; the next message resumes the conversation."""
        await self._pool.drop(session)

    async def wake(self, session: SessionId) -> str:
        """Start a session's process ahead of its next turn and return the outcome; without a first message there is none to resume."""
        async with self._pool.borrow(session, lambda _: None) as seat:
            running = await (await self._keeper(seat, self._synced(session), lambda _: None)).resumed()
        return AWAKE if running is not None else "it has no conversation to go on with yet; its process starts with the next message"

    async def close(self) -> None:
        """End all processes."""
        await self._pool.close()

    async def _keeper(self, seat: Seat, past: ProcessHistory, tell: Callable[[str], None]) -> SessionProcess:
        """Return the session's process in a borrowed seat, with its files at hand."""
        keeper = SessionProcess(self._around, self._pool, seat, past, tell)
        await asyncio.to_thread(unpack_state, keeper.folders)
        return keeper

    def _synced(self, session: SessionId) -> ProcessHistory:
        past = self._histories.get(session)
        if past is None:
            past = self._histories[session] = ProcessHistory(EXTENSION, self._around.journal.load)
        past.sync(self._around.feed, session)
        return past
