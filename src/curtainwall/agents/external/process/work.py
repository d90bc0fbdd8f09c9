"""The work on a turn: in the process that is there, in one that resumes the conversation, or in a new one where that is lost."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.external import USED_UP, Telling
from curtainwall.agents.external.process.keeper import Keeper
from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.resumption import Opening, lost, opening
from curtainwall.agents.external.process.running_process import Running
from curtainwall.agents.external.process.terms import EXTENSION, AgentCrashed, AgentErred, AgentGarbled, AgentSilent, LoginNeeded, NoAnswer
from curtainwall.agents.external.process.turn import ConversationLost, Ports, Turn
from curtainwall.agents.external.process.wire import mark_of
from curtainwall.model import ExtensionNoted, TurnAt, TurnFailed, TurnResult, TurnStatus

_BAD_ENDS: Final = (AgentCrashed, AgentGarbled, AgentSilent, NoAnswer)


@dataclass(slots=True)
class Work:
    """One turn's work, from the log to the log."""

    at: TurnAt
    keeper: Keeper
    telling: Telling
    sync: Callable[[], Past]

    async def work(self) -> TurnResult:
        """Do it."""
        keeper = self.keeper
        if keeper.past.conversation and keeper.past.share() >= keeper.around.limits.full:
            await self._carry_over()
            if keeper.past.exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
        wanted = "\n\n".join(keeper.past.wanted)
        text, mark = keeper.past.message(), mark_of(self.at.turn, wanted) if wanted else keeper.fresh()
        running = keeper.warm()
        if running is not None:
            return await self._told(running, text, mark)
        folders = keeper.folders
        taken = await asyncio.to_thread(opening, keeper.past, folders.state, folders.workspace, mark, keeper.fresh())
        return await self._taken_up(taken, text, mark)

    async def _taken_up(self, taken: Opening, text: str, mark: str) -> TurnResult:
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
            return await self._told(running, f"{taken.preface}{text}", mark)
        except ConversationLost as fault:
            if taken.is_new:
                raise TurnFailed("the agent does not know a conversation that has just begun") from fault
            again = lost(self.keeper.past, "the agent cannot go on with it", self.keeper.fresh())
            return await self._taken_up(again, text, mark)

    async def _told(self, running: Running, text: str, mark: str) -> TurnResult:
        around, seat = self.keeper.around, self.keeper.seat
        ports = Ports(around.feed, around.journal, around.clock)
        turn = Turn(ports, self.at, self.keeper.past, running, self.telling, around.limits, mark)
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

    async def _note_delivery(self, taken: Opening, mark: str) -> None:
        """Write down what the transcript says: the message arrived before our process ended."""
        data = {"conversation": taken.conversation, "delivered": self.at.turn, "mark": mark}
        await self.telling.record(ExtensionNoted(at=self.keeper.around.clock.now(), extension=EXTENSION, data=dict(data)))

    async def _say_lost(self, why: str) -> None:
        await self.telling.note(f"the agent's conversation is lost ({why}); it starts a new one, and is told what was said before")
