"""The provider libraries' models, each on an HTTP client that records what was received and does not retry.

The library keeps everything it receives, so a response that is endless, or unpacks endlessly, is cut off here.
"""

import importlib
import warnings
import zlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Final, Literal, assert_never, cast

import httpx2
from pydantic import JsonValue
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.settings import ModelSettings as LibrarySettings

from curtainwall.model import record

MOST_KEPT: Final = 8 * 1024 * 1024
MOST_RECEIVED: Final = 64 * 1024 * 1024
"""How many unpacked bytes of a response are read; the longest ones that providers send take half of it."""
_MOST_IN_A_LINE: Final = 16 * 1024 * 1024
_MOST_OF_A_REFUSAL: Final = 1024 * 1024
_PIECE: Final = 64 * 1024
_CONNECT_SECONDS: Final = 30.0
_LAST_PIECES: Final = 16
_REFUSED: Final = 400
_POOL: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=30.0)


class ResponseRecorder:
    """The response to one request as it was received."""

    def __init__(self) -> None:
        self.status = 0
        self.size = 0
        self.excess = ""
        """Which limit the response exceeded, if it was cut off."""
        self._pieces: list[bytes] = []

    def begin(self, response: httpx2.Response) -> None:
        """Start to record a response; drop what was recorded before."""
        self.status, self.size, self._pieces = response.status_code, 0, []
        # Hidden from the library, which would unpack without a limit.
        encoding = response.headers.pop("content-encoding", "").strip().lower()
        bound = MOST_RECEIVED if response.status_code < _REFUSED else _MOST_OF_A_REFUSAL
        response.stream = _RecordedStream(cast("httpx2.AsyncByteStream", response.stream), self, _Unpacked(encoding), bound)

    def take(self, piece: bytes) -> None:
        """Record a piece, as far as there is room."""
        room = MOST_KEPT - self.size
        if room > 0:
            self._pieces.append(piece[:room])
        self.size += len(piece)

    def ending(self) -> bytes:
        """Return the last bytes, which show whether the response is complete."""
        return b"".join(self._pieces[-_LAST_PIECES:])

    def recording(self) -> dict[str, JsonValue]:
        """Return what was recorded: the status, the text, and how many bytes did not fit."""
        recording: dict[str, JsonValue] = {"status": self.status, "body": b"".join(self._pieces).decode(errors="replace")}
        if self.size > MOST_KEPT:
            recording["left_out"] = self.size - MOST_KEPT
        return recording


class _Unpacked:
    """Unpacks received bytes. We ask for plain ones, but some servers compress them anyway."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflate = zlib.decompressobj(wbits=47) if encoding in {"gzip", "x-gzip", "deflate"} else None

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        """Yield the unpacked bytes of a piece, never many at once; raise `httpx2.DecodingError`."""
        if self._inflate is None:
            if self._encoding not in {"", "identity"}:
                raise httpx2.DecodingError("the answer is packed in a way that was not asked for")
            yield piece
            return
        try:
            while piece and not self._inflate.eof:
                yield self._inflate.decompress(piece, _PIECE)
                piece = self._inflate.unconsumed_tail
        except zlib.error:
            raise httpx2.DecodingError("the answer says that it is packed, and is not") from None


class _RecordedStream(httpx2.AsyncByteStream):
    """A stream of bytes that records each on a tape, and ends if there are too many."""

    def __init__(self, stream: httpx2.AsyncByteStream, tape: ResponseRecorder, unpacked: _Unpacked, bound: int) -> None:
        self._stream = stream
        self._tape = tape
        self._unpacked = unpacked
        self._bound = bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = line = 0
        async for packed in self._stream:
            for piece in self._unpacked.pieces(packed):
                self._tape.take(piece)
                size += len(piece)
                end = piece.rfind(b"\n")
                line = line + len(piece) if end < 0 else len(piece) - end
                if size > self._bound or line > _MOST_IN_A_LINE:
                    self._tape.excess = f"more than {(self._bound if size > self._bound else _MOST_IN_A_LINE) // 1024**2} MiB"
                    self._tape.excess += "" if size > self._bound else " in one line"
                    raise httpx2.ReadError("the answer has no end")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


LISTENING: ContextVar[ResponseRecorder | None] = ContextVar("LISTENING", default=None)
"""The tape of the request that is being sent."""


async def _record(response: httpx2.Response) -> None:
    tape = LISTENING.get()
    if tape is not None:
        tape.begin(response)


def timeouts(silence_seconds: float) -> httpx2.Timeout:
    """Return the time limits for a provider that sends nothing."""
    return httpx2.Timeout(connect=min(_CONNECT_SECONDS, silence_seconds), read=silence_seconds, write=silence_seconds, pool=silence_seconds)


def recording_client(silence_seconds: float) -> httpx2.AsyncClient:
    """Return a client that records responses. It follows no redirects, which would leak the key."""
    return httpx2.AsyncClient(
        timeout=timeouts(silence_seconds),
        limits=_POOL,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_record]},
    )


Speech = Literal["anthropic", "openai", "chat"]
"""The API that a provider speaks: Anthropic's Messages, OpenAI's Responses, or Chat Completions."""


@record
class Upstream:
    """One model at one address."""

    speech: Speech
    provider: str
    model: str
    url: str


def load_library(speech: Speech) -> None:
    """Load a provider's library, and the prices. This takes a second or two, and may run in a thread."""
    for module in ("genai_prices", "pydantic_ai.models.anthropic" if speech == "anthropic" else "pydantic_ai.models.openai"):
        importlib.import_module(module)


def library_model(upstream: Upstream, key: str, client: httpx2.AsyncClient, silence_seconds: float) -> LibraryModel:
    """Return the library's model for an upstream, loading only the library that it needs."""
    _quiet_the_library()
    limit = timeouts(silence_seconds)
    match upstream.speech:
        case "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            claude = AsyncAnthropic(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return AnthropicModel(upstream.model, provider=AnthropicProvider(anthropic_client=claude))
        case "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            gpt = AsyncOpenAI(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return OpenAIResponsesModel(upstream.model, provider=OpenAIProvider(openai_client=gpt))
        case "chat":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            other = AsyncOpenAI(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return OpenAIChatModel(upstream.model, provider=OpenAICompatibleProvider(upstream.provider, openai_client=other))
        case _:
            assert_never(upstream.speech)


def _quiet_the_library() -> None:
    """Suppress warnings that are not for the user: we check counts ourselves, and the user chooses the model."""
    warnings.filterwarnings("ignore", message="Failed to extract usage", category=Warning)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
    warnings.filterwarnings("ignore", message="The model .* is deprecated", category=DeprecationWarning)


def library_settings(upstream: Upstream, *, may_run: bool) -> LibrarySettings:
    """Return the settings of a request: cache the prompt where that must be requested, and opt out of storage where possible."""
    settings = LibrarySettings() if may_run else LibrarySettings(tool_choice="none")
    match upstream.speech:
        case "anthropic":
            settings["cache"] = True
            return settings
        case "openai":
            from pydantic_ai.models.openai import OpenAIResponsesModelSettings

            return OpenAIResponsesModelSettings(**settings, openai_store=False)
        case "chat":
            return settings
        case _:
            assert_never(upstream.speech)
