"""How a model's reply is heard while it comes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from curtainwall.agents.builtin.compaction import estimate_tokens
from curtainwall.agents.builtin.language_model import Delta, LanguageModel, ModelFault, ModelReply, ModelRetry, Prompt
from curtainwall.facts import Masker, StreamMasker
from curtainwall.model import Basis, Usage

_KEPT_EVERY = 1.0


class ReplyStream:
    """One reply while it comes: masked, shown, and kept about every second; without `show` nobody sees it, and only the whole is kept.

    `again` is told in words that the model failed and is asked once more.
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
        self._unkept = ""
        self._heard = 0

    async def reply(self, model: LanguageModel, prompt: Prompt) -> ModelReply:
        """Return the whole reply."""
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
        """Return what a request that was cut off has probably used: all of the prompt and what was shown, once anything was."""
        if not self._heard:
            return Usage()
        sent = estimate_tokens(prompt.system) + sum(estimate_tokens(item.model_dump_json()) for item in prompt.items)
        return Usage(
            input_tokens=sent, output_tokens=estimate_tokens("x" * self._heard), tokens_basis=Basis.ESTIMATED, dollars_basis=Basis.UNKNOWN
        )

    def rest(self) -> str:
        """Return what is not kept yet, where no whole reply will come; nothing where nobody sees it."""
        rest, self._unkept = f"{self._unkept}{self._masker.finish()}", ""
        return rest if self._show is not None else ""

    def _take(self, text: str) -> None:
        self._heard += len(text)
        if text and self._show is not None:
            self._show(text)
            self._unkept += text

    async def _keep_on(self) -> None:
        """Keep what was shown, about every second, also while nothing more comes."""
        while True:
            await asyncio.sleep(_KEPT_EVERY)
            if self._unkept:
                kept, self._unkept = self._unkept, ""
                writing = asyncio.ensure_future(self._keep(kept))
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # What was taken out is told nowhere else, so it is written to its end.
                    await asyncio.wait((writing,))
                    raise
