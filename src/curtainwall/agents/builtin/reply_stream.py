"""Receives a model's reply as it streams in."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from curtainwall.agents.builtin.compaction import estimate_tokens
from curtainwall.agents.builtin.language_model import Delta, LanguageModel, ModelFault, ModelReply, ModelRetry, Prompt
from curtainwall.facts import Masker, StreamMasker
from curtainwall.model import Basis, Usage

_KEPT_EVERY = 1.0


class ReplyStream:
    """One reply as it streams in: masked, shown, and recorded about every second. Without `show`, only the complete reply counts.

    `again` gets a message if the model failed and is asked again.
    """

    def __init__(
        self,
        masker: Masker,
        keep: Callable[[str], Awaitable[object]],
        show: Callable[[str], None] | None,
        again: Callable[[str], None],
    ) -> None:
        self._masker = StreamMasker(masker)
        self._keep = keep
        self._show = show
        self._again = again
        self._unrecorded = ""
        self._received = 0

    async def reply(self, model: LanguageModel, prompt: Prompt) -> ModelReply:
        """Return the complete reply."""
        keeping = asyncio.create_task(self._keep_on())
        try:
            async with aclosing(model.reply(prompt)) as pieces:
                async for piece in pieces:
                    match piece:
                        case Delta():
                            self._take(self._masker.feed(piece.text))
                        case ModelRetry():
                            self._again(str(piece))
                        case ModelReply():
                            self._take(self._masker.finish())
                            return piece
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
        raise ModelFault("rejected", f"`{model.name}` ended without a reply")

    def used(self, prompt: Prompt) -> Usage:
        """Estimate the usage of an interrupted request: once any text came, the whole prompt and that text."""
        if not self._received:
            return Usage()
        sent = estimate_tokens(prompt.system) + sum(estimate_tokens(item.model_dump_json()) for item in prompt.items)
        return Usage(
            input_tokens=sent,
            output_tokens=estimate_tokens("x" * self._received),
            tokens_basis=Basis.ESTIMATED,
            dollars_basis=Basis.UNKNOWN,
        )

    def rest(self) -> str:
        """Return the text not recorded yet, if no complete reply will come; nothing if the reply is not shown."""
        rest, self._unrecorded = f"{self._unrecorded}{self._masker.finish()}", ""
        return rest if self._show is not None else ""

    def _take(self, text: str) -> None:
        self._received += len(text)
        if text and self._show is not None:
            self._show(text)
            self._unrecorded += text

    async def _keep_on(self) -> None:
        """Record what was shown, about every second, even while nothing more arrives."""
        while True:
            await asyncio.sleep(_KEPT_EVERY)
            if self._unrecorded:
                kept, self._unrecorded = self._unrecorded, ""
                writing = asyncio.ensure_future(self._keep(kept))
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # The text taken out exists nowhere else, so finish writing it.
                    await asyncio.wait((writing,))
                    raise
