"""Claude Code as a process of this machine: each session's conversation, resumed by its own id, behind the port of all agents."""

import os

from curtainwall.agents.external import Telling
from curtainwall.agents.external.process.keeper import Around, Keeper
from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.pool import Pool
from curtainwall.agents.external.process.running_process import Means
from curtainwall.agents.external.process.terms import EXTENSION
from curtainwall.agents.external.process.work import Work
from curtainwall.model import (
    AWAKE,
    CompactionSkipped,
    CurtainwallError,
    Live,
    SessionId,
    TurnAt,
    TurnFailed,
    TurnResult,
    TurnStatus,
)


class ProcessAgent:
    """Local processes, for any number of sessions. What is held in memory is only there to be quick; the log and the disk know it all."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._pool = Pool(Means(around.outside, around.limits, os.getuid(), around.shares))
        self._known: dict[SessionId, Past] = {}

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
        telling = Telling(at, around.journal, around.clock, around.masker)
        async with self._pool.borrow(at.session, telling.does) as seat:
            keeper = Keeper(around, self._pool, seat, past, telling.does)
            try:
                return await Work(at, keeper, telling, lambda: self._synced(at.session)).work()
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
                keeper = Keeper(around, self._pool, seat, self._synced(session), tell)
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
            running = await Keeper(self._around, self._pool, seat, self._synced(session), lambda _: None).resumed()
        return AWAKE if running is not None else "it has no conversation to go on with yet; its process starts with the next message"

    async def close(self) -> None:
        """End the processes of this process."""
        await self._pool.close()

    def _synced(self, session: SessionId) -> Past:
        past = self._known.get(session)
        if past is None:
            past = self._known[session] = Past(EXTENSION, self._around.journal.load)
        past.sync(self._around.feed, session)
        return past
