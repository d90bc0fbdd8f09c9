"""A session's process while it is lent: started, resumed, shortened, or carried over into a new conversation."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external.process.compaction import Shorter, shorten, summarise
from curtainwall.agents.external.process.launch import Start, model_of
from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.pool import Pool, Seat
from curtainwall.agents.external.process.resumption import opening
from curtainwall.agents.external.process.running_process import Running
from curtainwall.agents.external.process.terms import BETWEEN_TURNS, EXTENSION, Folders, Limits, Outside
from curtainwall.facts import Masker
from curtainwall.host import Shares
from curtainwall.model import Clock, ExtensionNoted, Feed, Gate, HistoryCompacted, Journal, SessionId, TurnAt, TurnId, Workspace

_BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Around:
    """Everything that the agent meets, each through its port."""

    feed: Feed
    gate: Gate
    journal: Journal
    clock: Clock
    masker: Masker
    outside: Outside
    folders_of: Callable[[SessionId, Workspace], Folders]
    program_of: Callable[[], Path]
    limits: Limits = field(default_factory=Limits)
    shares: Shares | None = None


@dataclass(slots=True)
class Keeper:
    """A seat that is lent, and the process in it."""

    around: Around
    pool: Pool
    seat: Seat
    past: Past
    tell: Callable[[str], None]

    @property
    def folders(self) -> Folders:
        assert self.past.workspace is not None
        return self.around.folders_of(self.seat.session, self.past.workspace)

    def warm(self) -> Running | None:
        """Return the process that is there already, where it is the right one."""
        running = self.seat.running
        if running is None or not running.is_alive or running.start.conversation != self.past.conversation:
            return None
        return running if running.start.model == model_of(self.past.model) else None

    async def started(self, conversation: str, *, is_new: bool) -> Running:
        """Start a process in a conversation; where it is a new one, the log says so first."""
        start = Start(self.around.program_of(), self.folders, conversation, is_new, model_of(self.past.model))
        if is_new and conversation != self.past.conversation:
            await self.note({"conversation": conversation})
        return await self.pool.start(self.seat, start, self.tell)

    async def resumed(self) -> Running | None:
        """Return a process in the conversation as it is, or None where there is none to go on with."""
        running = self.warm()
        if running is not None:
            return running
        taken = await asyncio.to_thread(opening, self.past, self.folders.state, self.folders.workspace, self.fresh(), self.fresh())
        return None if taken.is_new else await self.started(taken.conversation, is_new=False)

    async def shortened(self, instructions: str) -> Shorter | None:
        """Have the process shorten its conversation by its own means, and write down what came of it."""
        running = await self.resumed()
        if running is None:
            return None
        between = TurnAt(session=self.seat.session, turn=TurnId(BETWEEN_TURNS))
        async with running.reach.turn(between):
            done = await self._or_end(shorten(running, instructions, self.fresh(), self.around.limits.silence))
        if done is not None:
            await self.around.journal.record(self.seat.session, (await self._compacted("asked", done),))
        return done

    async def carried_over(self, at: TurnAt) -> None:
        """Summarise the conversation and let a new one go on with it; where that fails the old one goes on."""
        running = await self.resumed()
        self.tell("the conversation is nearly too long; summarising it")
        if running is None:
            return
        async with running.reach.turn(at):
            done = await self._or_end(summarise(running, self.fresh(), self.around.limits.silence))
        if done is None:
            return
        await self.pool.stop(self.seat)
        short = Shorter(done.text, self.past.used, len(done.text.encode()) // _BYTES_PER_TOKEN)
        data: dict[str, JsonValue] = {"conversation": self.fresh(), "from": self.past.conversation, "summary": self._masked(done.text)}
        noted = ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data)
        await self.around.journal.record(self.seat.session, (await self._compacted("overflow", short), noted))

    async def note(self, data: dict[str, JsonValue]) -> None:
        """Write down what only this room knows."""
        noted = ExtensionNoted(at=self.around.clock.now(), extension=EXTENSION, data=data)
        await self.around.journal.record(self.seat.session, (noted,))

    def fresh(self) -> str:
        """Return a name that nothing has yet."""
        return str(uuid.UUID(bytes=self.around.clock.entropy(16), version=4))

    async def _or_end(self, doing: Coroutine[None, None, Shorter | None]) -> Shorter | None:
        """Do something with the process that is no turn; one that does not do it well is ended."""
        try:
            return await doing
        except BaseException:
            await self.pool.stop(self.seat, grace=0)
            raise

    async def _compacted(self, trigger: str, done: Shorter) -> HistoryCompacted:
        summary = await self.around.journal.keep({"summary": self._masked(done.text)})
        return HistoryCompacted.model_validate(
            {
                "at": self.around.clock.now(),
                "trigger": trigger,
                "before": done.before,
                "after": done.after,
                "upto": self.past.cursor,
                "summary": summary.model_dump(),
            }
        )

    def _masked(self, text: str) -> str:
        return self.around.masker.mask_text(text)
