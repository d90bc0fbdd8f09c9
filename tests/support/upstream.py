"""A model provider on this machine that speaks Anthropic Messages, OpenAI Responses and Chat Completions from a script, on the wire."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

KEY = "sk-ant-upstream-0123456789abcdefghijklmnop"
"""The key that the server accepts."""

PAUSE = "\0pause"
"""Among the pieces of a reply: nothing more is sent until `go_on`."""

_PAUSED = json.dumps(PAUSE).encode()
# Claude Code takes two messages, or two calls, of the same id for one.
_NUMBERS = count(1)


@dataclass(frozen=True)
class Says:
    """A reply: text in pieces, programs as calls of `execute_code` (or of another tool), and what it is said to have used."""

    pieces: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    tool: str = "execute_code"
    arguments: tuple[str, ...] = ()  # raw, where they are no programs
    is_text: bool = False  # the tool takes plain text rather than JSON (Responses only)
    read: Any = 1000
    written: Any = 100
    cached: Any = 0
    thinking: str = ""
    stop: str = ""
    cut: bool = False  # the connection ends after the pieces
    quiet: bool = False  # nothing more is sent after the pieces
    ends: bool = True  # the last events are sent
    mark: str = ""  # in the ids of its calls, where a client must not take them for those of an earlier reply

    @property
    def calls(self) -> list[str]:
        return [*(json.dumps({"code": code}) for code in self.programs), *self.arguments]

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if piece != PAUSE)


@dataclass(frozen=True)
class Fails:
    """An error instead of a reply."""

    status: int
    message: str = "something is wrong"
    kind: str = "api_error"
    code: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True)
class Hangs:
    """Not even a status line."""


Turn = Says | Fails | Hangs


@dataclass
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Upstream:
    """The server: what it will say, what it was asked, and how many clients went away in the middle of an answer."""

    port: int = 0
    turns: list[Turn] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    left: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _goes_on: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def will(self, *turns: Turn) -> None:
        self.turns += turns

    def go_on(self) -> None:
        """Let a reply that pauses go on; from any thread."""
        assert self._loop is not None, "the server does not run"
        self._loop.call_soon_threadsafe(self._goes_on.release)

    async def until_left(self, count: int = 1) -> None:
        """Wait until so many clients have gone away."""
        async with asyncio.timeout(60):
            while self.left < count:
                self._changed.clear()
                await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while asked := await _read(reader):
                self.asked.append(asked)
                if not await self._answer(asked, reader, writer):
                    break
        writer.close()
        self._open.discard(writer)

    async def hang_up(self) -> None:
        """Close every connection, so that nobody waits for another request."""
        async with asyncio.timeout(60):
            while self._open:
                for writer in tuple(self._open):
                    writer.transport.abort()
                await asyncio.sleep(0)

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; say whether the connection goes on."""
        if KEY not in (asked.headers.get("x-api-key", ""), asked.headers.get("authorization", "").removeprefix("Bearer ")):
            return _send_fault(
                writer, Fails(401, f"invalid key {asked.headers.get('x-api-key', '')}", "authentication_error", "invalid_api_key")
            )
        turn = self.turns.pop(0) if self.turns else Fails(500, "the test has no more to say")
        match turn:
            case Fails():
                return _send_fault(writer, turn)
            case Hangs():
                await self._until_gone(reader)
                return False
            case Says():
                speech = _SPEECH[asked.path.partition("?")[0].rpartition("/")[2]]
                return await self._stream(speech(asked.body.get("model", ""), turn), turn, reader, writer)

    async def _stream(self, events: Iterator[str], says: Says, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in events:
            content = event.encode()
            if _PAUSED in content:
                if await self._is_left_in_a_pause(reader):
                    return False
                continue
            writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
            try:
                await writer.drain()
            except ConnectionError:
                self._note_that_it_left()
                return False
        if says.quiet:
            await self._until_gone(reader)
            return False
        if says.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _is_left_in_a_pause(self, reader: asyncio.StreamReader) -> bool:
        """Wait until the test goes on; tell whether the client went away before."""
        gone, goes_on = asyncio.create_task(reader.read(1)), asyncio.create_task(self._goes_on.acquire())
        await asyncio.wait((gone, goes_on), return_when=asyncio.FIRST_COMPLETED)
        # Nobody sends anything before the answer is over, so whatever comes of reading is the end.
        is_left = gone.done()
        for task in (gone, goes_on):
            task.cancel()
        await asyncio.gather(gone, goes_on, return_exceptions=True)
        if is_left:
            self._note_that_it_left()
        return is_left

    async def _until_gone(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read(1)
        self._note_that_it_left()

    def _note_that_it_left(self) -> None:
        self.left += 1
        self._changed.set()


S = TypeVar("S", bound=Upstream)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    line = (await reader.readline()).decode("latin-1")
    if not line.strip():
        return None
    headers: dict[str, str] = {}
    while head := (await reader.readline()).decode("latin-1").strip():
        name, _, value = head.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(line.split(" ")[1], headers, json.loads(body or b"{}"))


def _send_fault(writer: asyncio.StreamWriter, fault: Fails) -> bool:
    error = {"type": fault.kind, "message": fault.message, **({"code": fault.code} if fault.code else {})}
    content = json.dumps({"type": "error", "error": error}).encode()
    more = f"retry-after: {fault.retry_after}\r\n" if fault.retry_after is not None else ""
    head = f"HTTP/1.1 {fault.status} No\r\ncontent-type: application/json\r\n{more}content-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return True


def _event(name: str, /, **data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


def _anthropic(model: str, says: Says) -> Iterator[str]:
    fresh = says.read - says.cached if isinstance(says.read, int) and isinstance(says.cached, int) else says.read
    used = {"input_tokens": fresh, "cache_read_input_tokens": says.cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
    unique = next(_NUMBERS)
    empty = {
        "id": f"msg_{unique}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    yield _event("message_start", message={**empty, "usage": used})
    index = 0
    if says.thinking:
        yield _event("content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""})
        yield _event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": says.thinking})
        yield _event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": "signed-by-upstream"})
        yield _event("content_block_stop", index=index)
        index += 1
    if says.pieces:
        yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in says.pieces:
            yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
    if says.cut or says.quiet or not says.ends:
        return
    if says.pieces:
        yield _event("content_block_stop", index=index)
        index += 1
    for number, arguments in enumerate(says.calls):
        block = {"type": "tool_use", "id": f"toolu_{says.mark}{number}", "name": says.tool, "input": {}}
        yield _event("content_block_start", index=index, content_block=block)
        for at in range(0, len(arguments), 7):
            yield _event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": arguments[at : at + 7]})
        yield _event("content_block_stop", index=index)
        index += 1
    stop = says.stop or ("tool_use" if says.calls else "end_turn")
    yield _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": says.written})
    yield _event("message_stop")


def _responses(model: str, says: Says) -> Iterator[str]:
    base = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "model": model, "output": [], "tools": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "usage": None, "error": None, "incomplete_details": None,
    }  # fmt: skip
    yield _event("response.created", sequence_number=0, response=base)
    output: list[dict[str, Any]] = []
    if says.pieces:
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        yield _event("response.output_item.added", sequence_number=1, output_index=0, item=item)
        yield _event("response.content_part.added", sequence_number=2, **where, part=part)
        for number, piece in enumerate(says.pieces):
            yield _event("response.output_text.delta", sequence_number=3 + number, **where, delta=piece, logprobs=[])
        if says.cut or says.quiet or not says.ends:
            return
        whole = says.text
        yield _event("response.output_text.done", sequence_number=90, **where, text=whole, logprobs=[])
        output.append({**item, "status": "completed", "content": [{**part, "text": whole}]})
        yield _event("response.output_item.done", sequence_number=91, output_index=0, item=output[-1])
    if says.cut or says.quiet or not says.ends:
        return
    for number, arguments in enumerate(says.calls):
        index = len(output)
        call = {"id": f"fc_{says.mark}{number}", "type": "function_call", "call_id": f"call_{says.mark}{number}", "name": says.tool}
        added = {**call, "arguments": "", "status": "in_progress"}
        yield _event("response.output_item.added", sequence_number=92, output_index=index, item=added)
        yield _event("response.function_call_arguments.delta", sequence_number=93, item_id=call["id"], output_index=index, delta=arguments)
        done = {"item_id": call["id"], "output_index": index, "name": says.tool, "arguments": arguments}
        yield _event("response.function_call_arguments.done", sequence_number=94, **done)
        output.append({**call, "arguments": arguments, "status": "completed"})
        yield _event("response.output_item.done", sequence_number=95, output_index=index, item=output[-1])
    used = {
        "input_tokens": says.read, "input_tokens_details": {"cached_tokens": says.cached},
        "output_tokens": says.written, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0,
    }  # fmt: skip
    yield _event("response.completed", sequence_number=99, response={**base, "status": "completed", "output": output, "usage": used})


def _chat(model: str, says: Says) -> Iterator[str]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return f"data: {json.dumps({**base, 'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for piece in says.pieces:
        yield chunk({"content": piece})
    if says.cut or says.quiet or not says.ends:
        return
    for number, arguments in enumerate(says.calls):
        function = {"name": says.tool, "arguments": arguments}
        yield chunk({"tool_calls": [{"index": number, "id": f"call_{says.mark}{number}", "type": "function", "function": function}]})
    yield chunk({}, says.stop or ("tool_calls" if says.calls else "stop"))
    if says.read is not None:
        used = {"prompt_tokens": says.read, "completion_tokens": says.written, "total_tokens": 0}
        yield f"data: {json.dumps({**base, 'choices': [], 'usage': used})}\n\n"
    yield "data: [DONE]\n\n"


_SPEECH = {"messages": _anthropic, "responses": _responses, "completions": _chat}


@asynccontextmanager
async def served(site: S, port: int = 0) -> AsyncGenerator[S]:
    """Run a provider as long as the test needs it."""
    site._loop = asyncio.get_running_loop()
    server = await asyncio.start_server(site.serve, "127.0.0.1", port, limit=2**24)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await site.hang_up()
        await server.wait_closed()


@contextmanager
def served_beside(make: Callable[[], S]) -> Iterator[S]:
    """Run a provider in a thread, beside a test that waits for processes."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    there: list[S] = []
    started = threading.Event()

    async def serve() -> None:
        async with served(make()) as site:
            there.append(site)
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60), "the provider did not start"
        yield there[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def upstream(port: int = 0) -> AbstractAsyncContextManager[Upstream]:
    """Run a provider that speaks from a script."""
    return served(Upstream(), port)


def upstream_beside() -> AbstractContextManager[Upstream]:
    """Run it in a thread."""
    return served_beside(Upstream)
