"""The built-in agent: ask the model, run its programs, tell it what came of them, until it has nothing more to run."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from curtainwall.agents.builtin.history import Conversation
from curtainwall.agents.builtin.stubs import Surface, surface_of
from curtainwall.agents.builtin.talk import ModelFault
from curtainwall.agents.builtin.turn import Around, Known, Turn, surely
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


class BuiltinAgent:
    """Our own agent, for any number of sessions. The log knows all that it holds in memory, but for what is masked there."""

    def __init__(self, around: Around, threshold: float | None) -> None:
        self._around = around
        self._threshold = threshold
        self._known: OrderedDict[SessionId, Known] = OrderedDict()
        self._written: dict[SessionId, dict[str, str]] = {}
        self._surface: tuple[Sequence[ToolSpec], Surface] | None = None

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        written = self._written.setdefault(at.session, {})
        turn = Turn(self._around, at, self._synced(at.session), self._seen_tools(), self._synced, self._threshold, written)
        try:
            result = await turn.work()
        except ModelFault as fault:
            result = TurnResult(status=TurnStatus.FAILED, failure=self._around.masker.mask_text(str(fault)))
        except asyncio.CancelledError:
            # Work that was interrupted was work.
            await surely(turn.settle_up())
            raise
        await turn.settle_up()
        if result.status is not TurnStatus.WAITING:
            self._written.pop(at.session, None)
        return result

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages by a summary, or record why not."""
        at = TurnAt(session=session, turn=TurnId("between turns"))
        turn = Turn(self._around, at, self._synced(session), self._seen_tools(), self._synced, self._threshold)
        try:
            await turn.compact("asked", instructions)
        except CurtainwallError as fault:
            await turn.record(CompactionSkipped(at=self._around.clock.now(), why=self._around.masker.mask_text(str(fault))))

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session."""
        self._known.pop(session, None)
        self._written.pop(session, None)

    def last_words(self, session: SessionId) -> str:
        """Return what the agent said last."""
        return self._synced(session).talk.last_words

    def _synced(self, session: SessionId) -> Known:
        """Return the session's conversation up to the end of its log."""
        known = self._known.pop(session, None) or Known(Conversation(self._around.journal.load))
        self._known[session] = known
        if len(self._known) > _KEPT_IN_MEMORY:
            self._known.popitem(last=False)
        for recorded in self._around.feed.read(session_stream(session), known.cursor):
            known.talk.take(recorded.event)
            known.cursor = recorded.seq
        if known.talk.workspace is None:
            raise NotFound(f"there is no session `{session}`")
        return known

    def _seen_tools(self) -> tuple[Sequence[ToolSpec], Surface]:
        tools = self._around.tools()
        if self._surface is None or self._surface[0] != tools:
            self._surface = (tools, surface_of(tools))
        return self._surface
