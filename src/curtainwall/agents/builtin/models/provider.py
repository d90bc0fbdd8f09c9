"""Models behind a provider's API: streamed text, the complete reply, the raw response, and the cost."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Final

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.tools import ToolDefinition

from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelFault, ModelReply, Prompt
from curtainwall.agents.builtin.models.clients import (
    LISTENING,
    ResponseRecorder,
    Speech,
    Upstream,
    library_model,
    library_settings,
    load_library,
    recording_client,
)
from curtainwall.agents.builtin.models.faults import UPSTREAM, ProviderFaults
from curtainwall.agents.builtin.models.messages import TOOL, MessageConverter, dump_reply, reply_text, with_valid_calls
from curtainwall.agents.builtin.models.settings import Price
from curtainwall.agents.builtin.models.usage import Counts, Sizes, item_size, prompt_size, usage_of
from curtainwall.facts import Masker
from curtainwall.host import CredentialSource, Unavailable
from curtainwall.model import Usage, record

_CHAT_END: Final = re.compile(rb'data: ?\[DONE\]|"finish_reason": ?"')
_MOST_LETTERS: Final = 4_000_000
_NO_KEY: Final = "none"  # the library insists on one; a server without keys ignores it
_TOOL: Final = ToolDefinition(
    name=TOOL,
    description=(
        "Run a Python program whose functions are the session's tools, such as `await filesystem.read_file(path='notes.txt')`. "
        "Returns what it printed, followed by the value of its last expression."
    ),
    parameters_json_schema={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "the program"}},
        "required": ["code"],
        "additionalProperties": False,
    },
)


@record
class ProviderConfig:
    """The settings of a provider's model: its key and how to set one, its context size, its price, and how long it may be silent."""

    key: CredentialSource | None
    key_hint: str
    context_size: int
    price: Price | None
    silence_seconds: float


@record
class _ProviderLine:
    """An open connection to the provider, for one event loop."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    model: LibraryModel
    masker: Masker

    def without_key(self, text: str) -> str:
        return self.masker.mask_text(text) if self.masker.holds_known(text) else text


class ProviderModel:
    """One model of one provider. Its key is read when it is first needed, and never shown."""

    def __init__(self, name: str, upstream: Upstream, terms: ProviderConfig, learn: Callable[[str, str], None]) -> None:
        self._name = name
        self._upstream = upstream
        self._terms = terms
        self._learn = learn
        self._conversations = MessageConverter()
        self._line: _ProviderLine | None = None

    def __repr__(self) -> str:
        return f"ProviderModel({self._name!r})"

    @property
    def name(self) -> str:
        """Return the user's name for the model."""
        return self._name

    @property
    def context_size(self) -> int:
        """Return the size of the context in tokens."""
        return self._terms.context_size

    async def aclose(self) -> None:
        """Close the connections that are kept for the next request."""
        line, self._line = self._line, None
        if line is not None:
            await line.client.aclose()

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield text as it streams in and then the complete reply; leaving early closes the connection at once."""
        line = await self._open()
        tape, words = ResponseRecorder(), _ReplyText()
        speaks = ProviderFaults(self._name, self._upstream.url, self._terms.key_hint, line.masker.mask_text, self._terms.silence_seconds)
        try:
            async with AsyncExitStack() as stack:
                stream = await self._send(stack, line, prompt, tape)
                async for event in stream:
                    if piece := words.piece(event):
                        yield Delta(piece)
                    if words.letters > _MOST_LETTERS:
                        raise speaks.endless(f"more than {_MOST_LETTERS:,} letters")
                response = stream.get()
        except UPSTREAM as error:
            fault = speaks.endless(tape.excess) if tape.excess else speaks.fault(error)
            if fault.kind == "key":
                await self.aclose()  # the next try reads the key again
            raise fault from None
        if not _is_whole(response, tape, self._upstream.speech):
            raise speaks.cut()
        yield self._reply(prompt, line, response, tape)

    async def _send(self, stack: AsyncExitStack, line: _ProviderLine, prompt: Prompt, tape: ResponseRecorder) -> StreamedResponse:
        parameters = ModelRequestParameters(
            function_tools=[_TOOL], instruction_parts=[InstructionPart(content=prompt.system)] if prompt.system else []
        )
        opening = model_request_stream(
            line.model,
            self._conversations.messages_of(prompt.items),
            model_settings=library_settings(self._upstream, may_run=prompt.may_run),
            model_request_parameters=parameters,
            instrument=False,
        )
        listening = LISTENING.set(tape)
        try:
            return await stack.enter_async_context(opening)
        finally:
            LISTENING.reset(listening)

    def _reply(self, prompt: Prompt, line: _ProviderLine, response: ModelResponse, tape: ResponseRecorder) -> ModelReply:
        response, programs = with_valid_calls(response)
        text = reply_text(response)
        if prompt.may_run:
            message = AgentMessage(text=text, programs=programs, kept=dump_reply(response))
        else:
            message = AgentMessage(text=text)
        raw = tape.recording()
        raw["body"] = line.without_key(str(raw["body"]))
        return ModelReply(message=message, raw=raw, usage=self._usage(prompt, message, response), stop_reason=_stop_reason(response))

    def _usage(self, prompt: Prompt, reply: AgentMessage, response: ModelResponse) -> Usage:
        used = response.usage
        counts = Counts(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
        sizes = Sizes(prompt_size(prompt), item_size(reply))
        return usage_of(counts, sizes, provider=self._upstream.provider, model=self._upstream.model, price=self._terms.price)

    async def _open(self) -> _ProviderLine:
        loop = asyncio.get_running_loop()
        if self._line is not None and self._line.loop is loop:
            return self._line
        key = await self._key()
        await asyncio.to_thread(load_library, self._upstream.speech)
        # Another reply may have opened the connection meanwhile; from here on no other task runs.
        if self._line is None or self._line.loop is not loop:
            client = recording_client(self._terms.silence_seconds)
            model = library_model(self._upstream, key or _NO_KEY, client, self._terms.silence_seconds)
            masker = Masker(os.urandom(32), {self._upstream.provider: key} if key else {})
            self._line = _ProviderLine(loop, client, model, masker)
        return self._line

    async def _key(self) -> str:
        if self._terms.key is None:
            return ""
        try:
            key = await self._terms.key.read()
        except Unavailable as fault:
            raise ModelFault("key", f"there is no key for `{self._name}`: {fault}; {self._terms.key_hint}") from None
        self._learn(self._upstream.provider, key)
        if not key.isascii() or not key.isprintable():
            raise ModelFault("key", f"the key for `{self._name}` holds what cannot be sent; {self._terms.key_hint}")
        return key


class _ReplyText:
    """The text of a reply as it streams in; each further part of text begins a new paragraph."""

    def __init__(self) -> None:
        self.letters = 0
        """How many pieces have come, including programs and reasoning: the library rewrites a whole part for each piece of it."""
        self._index: int | None = None

    def piece(self, event: ModelResponseStreamEvent) -> str:
        """Return the text in an event."""
        self.letters += _letters_of(event)
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text)):
                return self._with_break(index, text)
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                return self._with_break(index, text)
            case _:
                return ""

    def _with_break(self, index: int, text: str) -> str:
        if not text:
            return ""
        begins = self._index is not None and index != self._index
        self._index = index
        return f"\n\n{text}" if begins else text


def _letters_of(event: ModelResponseStreamEvent) -> int:
    match event:
        case PartDeltaEvent(delta=TextPartDelta(content_delta=str(text)) | ThinkingPartDelta(content_delta=str(text))):
            return len(text)
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
            return len(text)
        case _:
            return 0


def _is_whole(response: ModelResponse, tape: ResponseRecorder, speech: Speech) -> bool:
    """Tell whether a reply is complete. For Chat Completions the library accepts any end, so we check ourselves."""
    if response.state != "complete" or response.finish_reason is None:
        return False
    return speech != "chat" or _CHAT_END.search(tape.ending()) is not None


def _stop_reason(response: ModelResponse) -> str:
    own = (response.provider_details or {}).get("finish_reason")
    return own if isinstance(own, str) else response.finish_reason or ""
