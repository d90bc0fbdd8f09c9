"""The other process: a provider over TLS that answers small requests at once, and streams as much as it is told to."""

import asyncio
import json
import sys
from pathlib import Path

from curtainwall.egress import Authority

_SMALL = b'{"id":"msg_1","type":"message","model":"m","content":[],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":7}}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_1\r\ncontent-length: %d\r\n\r\n%b" % (len(_SMALL), _SMALL)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WRITE = 64 * 1024


def event_of(size: int) -> bytes:
    """Return one event of a reply's text that is so long altogether."""
    start = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
    end = b'"}}\n\n'
    text = b"some words of a reply " * (size // 22 + 1)
    return start + text[: size - len(start) - len(end)] + end


class Provider(asyncio.Protocol):
    """Answers by hand, so that it costs next to nothing: `x-stream: SIZE TOTAL` asks for a stream of events."""

    def __init__(self) -> None:
        self._rest = b""
        self._writing = asyncio.Event()
        self._writing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self._writing.clear()

    def resume_writing(self) -> None:
        self._writing.set()

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            at = head.find(b"content-length: ")
            length = int(head[at + 16 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            at = head.find(b"x-stream: ")
            if at < 0:
                self.transport.write(_ANSWER)
            else:
                size, total = (int(part) for part in head[at + 10 :].split(b"\r\n")[0].split())
                task = asyncio.get_running_loop().create_task(self._stream(size, total))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _stream(self, size: int, total: int) -> None:
        event = event_of(size)
        framed = b"%x\r\n%b\r\n" % (len(event), event)
        many = max(1, _WRITE // len(framed))
        block = framed * many
        self.transport.write(_HEAD)
        for _ in range(max(1, total // (size * many))):
            await self._writing.wait()
            self.transport.write(block)
        self.transport.write(b"0\r\n\r\n")


async def main() -> None:
    """Serve until the input ends; the first line printed says where, and whom to trust."""
    authority = Authority(Path(sys.argv[1]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Provider, "127.0.0.1", 0, ssl=await authority.context("localhost"))
    print(json.dumps({"port": server.sockets[0].getsockname()[1], "trust": authority.certificate.decode()}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    authority.close()


if __name__ == "__main__":
    asyncio.run(main())
