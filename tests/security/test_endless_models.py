"""A model's provider that is hostile or broken: what has no end, or unpacks without one, takes neither memory nor time."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from curtainwall.agents.builtin.language_model import LanguageModel, ModelFault, Prompt, UserMessage
from curtainwall.agents.builtin.models import ModelEndpoint, ModelSettings, find_model
from curtainwall.agents.builtin.models.provider import ProviderModel
from curtainwall.host import FromEnvironment
from tests.support.stand_in import whole

MIB = 1024 * 1024
NAMES = ["anthropic:claude-sonnet-5", "openai:gpt-5.5", "local:llama3"]
HEAD = b"HTTP/1.1 %s\r\ncontent-type: text/event-stream\r\nconnection: close\r\n%s\r\n"
PACKED = b"content-encoding: gzip\r\n"

Pieces = Callable[[], Iterator[bytes]]


def line() -> Iterator[bytes]:
    yield b"data: "
    while True:
        yield b"a" * MIB


def lines() -> Iterator[bytes]:
    while True:
        yield b": " + b"x" * MIB + b"\n\n"


def packed() -> Iterator[bytes]:
    packing = zlib.compressobj(9, wbits=31)
    for piece in line():
        yield packing.compress(piece)


def chunk(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    told = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(told)}\n\n".encode()


def words() -> Iterator[bytes]:
    while True:
        yield chunk("b" * 100_000)


class Far:
    """A server that sends pieces for as long as anybody takes them, and counts."""

    def __init__(self, head: bytes, pieces: Pieces) -> None:
        self._head, self._pieces = head, pieces
        self.sent = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            writer.write(self._head)
            for piece in self._pieces():
                writer.write(piece)
                self.sent += len(piece)
                await writer.drain()
                # Where nothing has to be waited for, the other side gets its turn all the same.
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def model_at(far: Far, name: str) -> AsyncIterator[LanguageModel]:
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    key = FromEnvironment("KEY", {"KEY": "k" * 20})
    settings = ModelSettings(
        keys={"anthropic": key, "openai": key},
        urls={"anthropic": url, "openai": f"{url}/v1"},
        endpoints={"local": ModelEndpoint(f"{url}/v1", "llama3", key)},
        silence_seconds=20,
    )
    model = find_model(name, settings)
    assert isinstance(model, ProviderModel)
    try:
        yield model
    finally:
        await model.aclose()
        server.close()


PROMPT = Prompt("", (UserMessage(text="hello"),), 0, may_run=True)


def fault_of(name: str, head: bytes, pieces: Pieces) -> tuple[ModelFault, int]:
    async def ask() -> tuple[ModelFault, int]:
        far = Far(head, pieces)
        async with model_at(far, name) as model:
            with pytest.raises(ModelFault) as raised:
                await whole(model, PROMPT)
            await asyncio.wait_for(far.ended.wait(), 60)
            return raised.value, far.sent

    return asyncio.run(ask())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("head", "pieces", "most", "told"),
    [
        (HEAD % (b"200 OK", b""), line, 40 * MIB, "16 MiB in one line"),
        (HEAD % (b"200 OK", b""), lines, 100 * MIB, "more than 64 MiB"),
        (HEAD % (b"200 OK", PACKED), packed, MIB, "16 MiB in one line"),
        (HEAD % (b"500 Broken", b""), line, 20 * MIB, "more than 1 MiB"),
        (HEAD % (b"400 No", PACKED), packed, MIB, "more than 1 MiB"),
    ],
    ids=["line", "lines", "packed", "refusal", "packed refusal"],
)
def test_an_answer_without_an_end_is_ended(name: str, head: bytes, pieces: Pieces, most: int, told: str) -> None:
    fault, sent = fault_of(name, head, pieces)
    assert told in str(fault)
    assert not fault.passes, "whoever tried again would hear the same"
    assert sent < most


def test_words_without_an_end_are_ended() -> None:
    fault, sent = fault_of("local:llama3", HEAD % (b"200 OK", b""), words)
    assert "more than 4,000,000 letters" in str(fault)
    assert sent < 40 * MIB


def test_what_is_packed_in_another_way_is_not_unpacked() -> None:
    fault, _ = fault_of("local:llama3", HEAD % (b"200 OK", b"content-encoding: br\r\n"), line)
    assert "cannot be reached, or broke off" in str(fault)


def test_an_answer_that_is_packed_unasked_is_read() -> None:
    async def ask() -> str:
        packing = zlib.compressobj(wbits=31)
        body = packing.compress(chunk("hel") + chunk("lo", "stop") + b"data: [DONE]\n\n") + packing.flush()
        async with model_at(Far(HEAD % (b"200 OK", PACKED), lambda: iter([body])), "local:llama3") as model:
            return (await whole(model, PROMPT)).message.text

    assert asyncio.run(ask()) == "hello"
