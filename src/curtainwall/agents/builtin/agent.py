"""The built-in agent: ask the model, run its programs, report their results, until it has nothing more to run."""

import asyncio
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import islice

from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.agents.builtin.language_model import ModelFault
from curtainwall.agents.builtin.stubs import ToolStubs, stubs_for
from curtainwall.agents.builtin.turn import BuiltinPorts, BuiltinTurn, CachedSession, Held, write_uninterrupted
from curtainwall.model import (
    CompactionSkipped,
    CurtainwallError,
    NotFound,
    SessionId,
    ToolSpec,
    TurnAt,
    TurnId,
    TurnResult,
    TurnStatus,
    session_stream,
)

_KEPT_IN_MEMORY = 64
_KEPT_UNPACKED = 16 * 1024 * 1024
_KEPT_PACKED = 32 * 1024 * 1024


class BuiltinAgent:
    """The built-in agent, for any number of sessions. Memory is a cache of the log, except for values that are masked there.

    The conversations of recently used sessions stay in memory between turns, so that a turn does not have to read a whole log. A fixed
    number of bytes stays unpacked, whatever the number of sessions; the rest is packed, even for working sessions that are not asking
    their model right now. The packed ones are limited too.
    """

    def __init__(self, around: BuiltinPorts, threshold: float | None, unpacked: int = _KEPT_UNPACKED) -> None:
        self._around = around
        self._threshold = threshold
        self._unpacked = unpacked
        self._known: OrderedDict[SessionId, CachedSession] = OrderedDict()
        self._at_work: set[SessionId] = set()
        self._looked_at: set[SessionId] = set()
        self._written: dict[SessionId, dict[str, str]] = {}
        self._surface: tuple[Sequence[ToolSpec], ToolStubs] | None = None

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        with self._working(at.session):
            return await self._work(at)

    async def _work(self, at: TurnAt) -> TurnResult:
        written = self._written.setdefault(at.session, {})
        held = Held(self._synced, self._looking_at)
        turn = BuiltinTurn(self._around, at, self._synced(at.session), self._seen_tools(), held, self._threshold, written)
        try:
            result = await turn.work()
        except ModelFault as fault:
            result = TurnResult(status=TurnStatus.FAILED, failure=self._around.masker.mask_text(str(fault)))
        except asyncio.CancelledError:
            # Interrupted work counts as work.
            await write_uninterrupted(turn.settle_up())
            raise
        await turn.settle_up()
        if result.status is not TurnStatus.WAITING:
            self._written.pop(at.session, None)
        return result

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages with a summary, or record why that was not done."""
        at = TurnAt(session=session, turn=TurnId("between turns"))
        with self._working(session):
            held = Held(self._synced, self._looking_at)
            turn = BuiltinTurn(self._around, at, self._synced(session), self._seen_tools(), held, self._threshold)
            try:
                await turn.compact("asked", instructions)
            except CurtainwallError as fault:
                await turn.record(CompactionSkipped(at=self._around.clock.now(), why=self._around.masker.mask_text(str(fault))))

    def forget(self, session: SessionId) -> None:
        """Discard what is held in memory for a session."""
        self._known.pop(session, None)
        self._written.pop(session, None)

    def last_words(self, session: SessionId) -> str:
        """Return the agent's last reply."""
        return self._synced(session).history.last_words

    def _synced(self, session: SessionId) -> CachedSession:
        """Return the session's conversation up to the end of its log."""
        known = self._known.pop(session, None) or CachedSession(ConversationHistory(self._around.journal.load))
        self._known[session] = known
        for recorded in self._around.feed.read(session_stream(session), known.cursor):
            known.history.take(recorded.event)
            known.cursor = recorded.seq
        if known.history.workspace is None:
            raise NotFound(f"there is no session `{session}`")
        return known

    @contextmanager
    def _working(self, session: SessionId) -> Generator[None]:
        """Keep a session's conversation in memory for the duration; afterwards it is idle and may be dropped."""
        self._at_work.add(session)
        try:
            yield
        finally:
            self._at_work.discard(session)
            self._make_room()

    @contextmanager
    def _looking_at(self, session: SessionId) -> Generator[None]:
        """Keep a session's conversation unpacked for the duration, while a model request or a summary is built from it."""
        self._looked_at.add(session)
        try:
            self._make_room()
            yield
        finally:
            self._looked_at.discard(session)
            self._make_room()

    def _make_room(self) -> None:
        """Pack conversations that are not in use and drop idle ones, the least recently used first."""
        resting = [session for session in self._known if session not in self._at_work]
        for session in resting[: max(0, len(self._known) - _KEPT_IN_MEMORY)]:
            del self._known[session]
        # A single working conversation, however long, is not packed and unpacked for each request.
        looked_at = self._looked_at | (self._at_work & {*islice(reversed(self._known), 1)})
        too_much = sum(known.history.held.weight for known in self._known.values()) - self._unpacked
        for session, known in self._known.items():
            if too_much <= 0:
                break
            if session not in looked_at:
                too_much -= known.history.held.pack()
        packed = sum(known.history.held.packed_size for known in self._known.values()) - _KEPT_PACKED
        for session in resting:
            if packed <= 0:
                break
            if session in self._known:
                packed -= self._known.pop(session).history.held.packed_size

    def _seen_tools(self) -> tuple[Sequence[ToolSpec], ToolStubs]:
        tools = self._around.tools()
        if self._surface is None or self._surface[0] != tools:
            self._surface = (tools, stubs_for(tools))
        return self._surface
