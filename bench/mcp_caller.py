"""The other process: an agent that calls one tool over a socket, as often and as many at once as it is told on its standard input."""

import asyncio
import json
import sys
import time

_ENVELOPE: dict[str, object] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Caller(asyncio.Protocol):
    """A client that costs next to nothing itself: frames are written and read by hand."""

    def __init__(self) -> None:
        self._rest = b""
        self._waiting: dict[int, asyncio.Future[float]] = {}
        self._number = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            assert told["result"].get("isError") is not True, line
            self._waiting.pop(told["id"]).set_result(time.perf_counter())

    async def call(self, tool: str) -> float:
        """Call the tool once and return how long it took."""
        self._number += 1
        done = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        meta = {**_ENVELOPE, "progressToken": self._number}
        params: dict[str, object] = {"name": tool, "arguments": {"text": f"hello {self._number}"}, "_meta": meta}
        began = time.perf_counter()
        self.transport.write(json.dumps({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}).encode() + b"\n")
        return await done - began


async def _many(caller: Caller, tool: str, count: int, in_flight: int) -> list[float]:
    took: list[float] = []

    async def work() -> None:
        while len(took) + in_flight <= count:
            took.append(await caller.call(tool))

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    elapsed = time.perf_counter() - began
    return took if in_flight == 1 else [elapsed / len(took)]


async def main() -> None:
    """Do what each line says until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    callers: dict[str, Caller] = {}
    while line := await lines.readline():
        told = json.loads(line)
        if told["socket"] not in callers:
            _, callers[told["socket"]] = await loop.create_unix_connection(Caller, told["socket"])
        print(json.dumps(await _many(callers[told["socket"]], told["tool"], told["count"], told["in_flight"])), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
