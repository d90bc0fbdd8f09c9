"""An agent's text as it streams in: shown at once, recorded about every second, and recorded whole at the end. Secrets are masked."""

import json
from collections.abc import Sequence

from curtainwall.agents.external.reports import OwnToolUse
from curtainwall.facts import Masker, StreamMasker, masked_excerpt
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Clock,
    Journal,
    Live,
    Progress,
    ReportedUse,
    TextStreamed,
    ToolUsesReported,
    TurnAt,
    TurnFailed,
)

_KEPT_EVERY = 1_000
_LARGEST_TURN = 4_000_000
# Limits on what is recorded in one turn about the agent's own tools.
_MOST_USES = 300
_LONGEST_NAME = 100
_LONGEST_ARGUMENTS = 2_000


class SaidTooMuch(TurnFailed):
    """The agent produced too much text in one turn and was stopped, so that it does not fill the log."""


class LiveText:
    """The text of one turn."""

    def __init__(self, at: TurnAt, journal: Journal, clock: Clock, masker: Masker) -> None:
        self._at = at
        self._journal = journal
        self._clock = clock
        self._masker = masker
        self._stream = StreamMasker(masker)
        self._received = ""
        self._unrecorded = ""
        self._kept_at = clock.elapsed()
        self._is_begun = False
        self._room = _LARGEST_TURN
        self._uses = 0

    async def piece(self, text: str) -> None:
        """Show a piece of a message as it arrives; raise `SaidTooMuch`, once."""
        self._spend_room(len(text))
        self._received += text
        await self._show(self._stream.feed(text))
        if self._unrecorded and not self._is_begun:
            # Record the beginning of a message at once: the agent may fall silent after it, or we may be killed.
            await self._keep(self._unrecorded)
            self._is_begun = True

    async def whole(self, text: str) -> None:
        """Record a complete message; show it now if it did not arrive in pieces."""
        await self.record(await self.worded(text))

    async def worded(self, text: str) -> AgentSpoke:
        """Show the rest of a complete message and return its event, which the caller records; raise `SaidTooMuch`, once."""
        # The pieces were already counted; count only what the complete message adds to them.
        self._spend_room(max(0, len(text) - len(self._received)))
        masked = self._masker.mask_text(text)
        if not self._received:
            await self._show(masked)
        await self._show(self._stream.finish())
        self._received = self._unrecorded = ""
        self._is_begun = False
        self._stream = StreamMasker(self._masker)
        return AgentSpoke(at=self._clock.now(), turn=self._at.turn, text=masked)

    async def end(self) -> None:
        """Record as a message the pieces that no complete message followed."""
        if self._received:
            await self.whole(self._received)

    async def cut(self) -> None:
        """Record what was shown of a message that will not be completed."""
        rest = self._stream.finish()
        if rest:
            self._journal.publish(self._at.session, Live(kind="text", text=rest, turn=self._at.turn))
        await self._keep(f"{self._unrecorded}{rest}")
        self._received = ""
        self._is_begun = False

    def does(self, text: str) -> None:
        """Show a short note on what the agent is doing."""
        self._journal.publish(self._at.session, Live(kind="doing", text=self._masker.mask_text(text), turn=self._at.turn))

    def used(self, use: OwnToolUse) -> Sequence[Progress]:
        """Show a tool that the agent reports using, and return the events to record: none past the limit of one turn."""
        tool, arguments = masked_excerpt(self._masker, use.tool, _LONGEST_NAME), self._arguments(use)
        self._journal.publish(self._at.session, Live(kind="doing", text=f"{tool} {arguments}".strip()[:200]))
        self._uses += 1
        if self._uses > _MOST_USES:
            return ()
        return (ToolUsesReported(at=self._clock.now(), turn=self._at.turn, uses=(ReportedUse(tool=tool, arguments=arguments),)),)

    def unlisted_uses(self) -> Sequence[Progress]:
        """Return, once, the event for the reported tool uses that were only counted."""
        more, self._uses = max(0, self._uses - _MOST_USES), min(self._uses, _MOST_USES)
        return (ToolUsesReported(at=self._clock.now(), turn=self._at.turn, more=more),) if more else ()

    def _arguments(self, use: OwnToolUse) -> str:
        if use.arguments in (None, {}):
            return ""
        text = use.arguments if isinstance(use.arguments, str) else json.dumps(use.arguments, ensure_ascii=False)
        # JSON can escape half a surrogate pair, which UTF-8 cannot encode.
        return masked_excerpt(self._masker, text.encode("utf-8", "replace").decode(), _LONGEST_ARGUMENTS)

    async def note(self, text: str) -> None:
        """Record a message of ours, in brackets, among those of the agent."""
        await self.cut()
        spoke = await self.worded(f"[{text}]")
        await self.record(spoke.model_copy(update={"ours": True}))

    def masked(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return self._masker.mask_text(text)

    async def record(self, *events: Progress) -> Sequence[AnyEvent]:
        """Record events."""
        return await self._journal.record(self._at.session, events)

    def _spend_room(self, letters: int) -> None:
        had_room, self._room = self._room > 0, self._room - letters
        if had_room and self._room <= 0:
            raise SaidTooMuch(
                f"the agent said more than {_LARGEST_TURN:,} letters in one turn and was ended; send a message, and it starts again"
            )

    async def _show(self, text: str) -> None:
        if not text:
            return
        self._journal.publish(self._at.session, Live(kind="text", text=text, turn=self._at.turn))
        self._unrecorded += text
        if self._clock.elapsed() - self._kept_at >= _KEPT_EVERY:
            await self._keep(self._unrecorded)

    async def _keep(self, text: str) -> None:
        self._unrecorded, self._kept_at = "", self._clock.elapsed()
        if text:
            await self.record(TextStreamed(at=self._clock.now(), turn=self._at.turn, text=text))
