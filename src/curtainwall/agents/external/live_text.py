"""What an agent says while it says it: shown at once, kept about every second, and whole in the end. Secrets are masked on the way."""

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
_MOST_SAID = 4_000_000
# What an agent says of its own tools, in one turn.
_MOST_USES = 300
_LONGEST_NAME = 100
_LONGEST_ARGUMENTS = 2_000


class SaidTooMuch(TurnFailed):
    """The agent said more in one turn than anybody reads, and was ended: the log is not its to fill."""


class LiveText:
    """The words of one turn."""

    def __init__(self, at: TurnAt, journal: Journal, clock: Clock, masker: Masker) -> None:
        self._at = at
        self._journal = journal
        self._clock = clock
        self._masker = masker
        self._stream = StreamMasker(masker)
        self._heard = ""
        self._unkept = ""
        self._kept_at = clock.elapsed()
        self._is_begun = False
        self._room = _MOST_SAID
        self._uses = 0

    async def piece(self, text: str) -> None:
        """Show a piece of a message while it comes; raise `SaidTooMuch`, once."""
        self._spend_room(len(text))
        self._heard += text
        await self._show(self._stream.feed(text))
        if self._unkept and not self._is_begun:
            # How a message begins is in the log at once: an agent may fall silent after it, or we may be killed.
            await self._keep(self._unkept)
            self._is_begun = True

    async def whole(self, text: str) -> None:
        """Keep a whole message; it is shown now where it did not come in pieces."""
        await self.record(await self.worded(text))

    async def worded(self, text: str) -> AgentSpoke:
        """Show what is left of a whole message, and return its event for whoever records it with others; raise `SaidTooMuch`, once."""
        # What came in pieces was counted with them; a whole that is longer than they were says more.
        self._spend_room(max(0, len(text) - len(self._heard)))
        masked = self._masker.mask_text(text)
        if not self._heard:
            await self._show(masked)
        await self._show(self._stream.finish())
        self._heard = self._unkept = ""
        self._is_begun = False
        self._stream = StreamMasker(self._masker)
        return AgentSpoke(at=self._clock.now(), turn=self._at.turn, text=masked)

    async def end(self) -> None:
        """Keep as a message what came in pieces and was never told as a whole."""
        if self._heard:
            await self.whole(self._heard)

    async def cut(self) -> None:
        """Keep what was shown of a message that will not come to its end."""
        rest = self._stream.finish()
        if rest:
            self._journal.say(self._at.session, Live(kind="text", text=rest, turn=self._at.turn))
        await self._keep(f"{self._unkept}{rest}")
        self._heard = ""
        self._is_begun = False

    def does(self, text: str) -> None:
        """Show a word on what the agent is doing."""
        self._journal.say(self._at.session, Live(kind="doing", text=self._masker.mask_text(text), turn=self._at.turn))

    def used(self, use: OwnToolUse) -> Sequence[Progress]:
        """Show a tool that the agent says it uses, and return what is to be recorded of it: past so many in one turn, nothing yet."""
        tool, arguments = masked_excerpt(self._masker, use.tool, _LONGEST_NAME), self._arguments(use)
        self._journal.say(self._at.session, Live(kind="doing", text=f"{tool} {arguments}".strip()[:200]))
        self._uses += 1
        if self._uses > _MOST_USES:
            return ()
        return (ToolUsesReported(at=self._clock.now(), turn=self._at.turn, uses=(ReportedUse(tool=tool, arguments=arguments),)),)

    def unlisted_uses(self) -> Sequence[Progress]:
        """Return, once, how many tools the agent says it used that were only counted."""
        more, self._uses = max(0, self._uses - _MOST_USES), min(self._uses, _MOST_USES)
        return (ToolUsesReported(at=self._clock.now(), turn=self._at.turn, more=more),) if more else ()

    def _arguments(self, use: OwnToolUse) -> str:
        if use.arguments in (None, {}):
            return ""
        text = use.arguments if isinstance(use.arguments, str) else json.dumps(use.arguments, ensure_ascii=False)
        # Half a character of an escape can be written in JSON and nowhere else.
        return masked_excerpt(self._masker, text.encode("utf-8", "replace").decode(), _LONGEST_ARGUMENTS)

    async def note(self, text: str) -> None:
        """Say something ourselves, in brackets, among what the agent says."""
        await self.cut()
        spoke = await self.worded(f"[{text}]")
        await self.record(spoke.model_copy(update={"ours": True}))

    def masked(self, text: str) -> str:
        """Return a text without secrets."""
        return self._masker.mask_text(text)

    async def record(self, *events: Progress) -> Sequence[AnyEvent]:
        """Write down what happened."""
        return await self._journal.record(self._at.session, events)

    def _spend_room(self, letters: int) -> None:
        had_room, self._room = self._room > 0, self._room - letters
        if had_room and self._room <= 0:
            raise SaidTooMuch(
                f"the agent said more than {_MOST_SAID:,} letters in one turn and was ended; send a message, and it starts again"
            )

    async def _show(self, text: str) -> None:
        if not text:
            return
        self._journal.say(self._at.session, Live(kind="text", text=text, turn=self._at.turn))
        self._unkept += text
        if self._clock.elapsed() - self._kept_at >= _KEPT_EVERY:
            await self._keep(self._unkept)

    async def _keep(self, text: str) -> None:
        self._unkept, self._kept_at = "", self._clock.elapsed()
        if text:
            await self.record(TextStreamed(at=self._clock.now(), turn=self._at.turn, text=text))
