"""The client of one running server: requests out, replies back by their ids, and a refusal to everything that it asks of us."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from curtainwall import __version__
from curtainwall.facts import quoted
from curtainwall.model import CurtainwallError
from curtainwall.tools.runners import ProgressListener
from curtainwall.tools.servers.launch import ServerProcess
from curtainwall.tools.servers.offered import OfferedTool, clean_text, parse_tool
from curtainwall.tools.servers.stdio import Allowance, Frame, Overrun, StderrLog, read_frames, write, write_soon

START: Final = 30.0
"""Seconds until a server must have answered the greeting."""

MOST_TOOLS: Final = 512

LONGEST_LIST: Final = 16 * 1024 * 1024
"""Bytes of a server's list of tools, all pages together."""

# As in `mcp_types`, which takes half a second to import; a test compares the two.
HANDSHAKES: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = "2026-07-28"
_US: Final[dict[str, JsonValue]] = {"name": "curtainwall", "version": __version__}
ENVELOPE: Final[dict[str, JsonValue]] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _US,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_DECLINED, METHOD_NOT_FOUND = -1, -32601
_SETTLE: Final = 5.0
_CHUNK: Final = 65_536
_CHANGED: Final = "notifications/tools/list_changed"


class ServerLost(CurtainwallError):
    """The server is gone; another one can be started."""


class ServerSilent(CurtainwallError):
    """The server did not answer in time; it still runs."""


class ServerRefused(CurtainwallError):
    """The server answered with an error."""


@dataclass(slots=True, eq=False)
class _Waiting:
    answer: asyncio.Future[tuple[Frame, int]]
    heard: ProgressListener | None = None


class ServerClient:
    """A server that runs. Whoever opened it must close it."""

    def __init__(self, process: ServerProcess, complaints: StderrLog) -> None:
        self._process = process
        self._complaints = complaints
        self._waiting: dict[int, _Waiting] = {}
        self._ids = itertools.count(1)
        self._allowance = Allowance()
        self._envelope: dict[str, JsonValue] = {}
        self._why: str | None = None
        self.has_changed = asyncio.Event()
        self.about = "it gave no name"
        self._tasks = (asyncio.create_task(complaints.take(process.stderr)), asyncio.create_task(self._read()))

    @property
    def is_lost(self) -> bool:
        """Tell whether it has ended."""
        return self._why is not None

    async def greet(self) -> None:
        """Agree on a protocol; raise `ServerLost`, `ServerSilent` or `ServerRefused`."""
        hello: Frame = {"protocolVersion": HANDSHAKES[-1], "capabilities": {}, "clientInfo": _US}
        try:
            told = await self.request("initialize", hello, START)
        except ServerRefused as refusal:
            # A server of the newer protocol alone has no handshake; every request carries an envelope there.
            self._envelope = ENVELOPE
            try:
                told = await self.request("server/discover", {}, START)
            except ServerRefused:
                raise refusal from None
            versions = told.get("supportedVersions")
            if not isinstance(versions, list) or MODERN not in versions:
                raise refusal from None
        else:
            if told.get("protocolVersion") not in HANDSHAKES:
                raise ServerRefused(f"it speaks {quoted(told.get('protocolVersion'))}, which we do not")
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        named = told.get("serverInfo")
        if isinstance(named, dict):
            self.about = clean_text(f"{named.get('name', '')} {named.get('version', '')}", 100)

    async def list_tools(self, within: float = START) -> tuple[OfferedTool, ...]:
        """Return what it offers; raise `ServerSilent` or `ServerRefused` where its list, all pages together, has no end."""
        found: list[OfferedTool] = []
        params: Frame = {}
        cursors: set[str] = set()
        left = LONGEST_LIST
        try:
            async with asyncio.timeout(within):
                while True:
                    told, size = await self._asked("tools/list", params, START)
                    left -= size
                    if left < 0:
                        # What was changed may be in the rest of it, so a part counts for nothing.
                        raise ServerRefused(f"its list of tools is longer than {LONGEST_LIST // 1024 // 1024} MiB")
                    page = [tool for tool in _listed(told.get("tools")) if isinstance(tool, dict)]
                    found += [one for tool in page if (one := parse_tool(tool))]
                    cursor = told.get("nextCursor")
                    if not page or not isinstance(cursor, str) or cursor in cursors or len(found) > MOST_TOOLS:
                        return tuple(found[:MOST_TOOLS])
                    cursors.add(cursor)
                    params = {"cursor": cursor}
        except TimeoutError:
            raise ServerSilent(f"it did not say all that it offers within {within:g} seconds") from None

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], seconds: float, heard: ProgressListener | None = None) -> Frame:
        """Call a tool and return its result as the server gave it."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments)}, seconds, heard)

    async def request(self, method: str, params: Frame, seconds: float, heard: ProgressListener | None = None) -> Frame:
        """Send a request and return its result; when nobody waits any more, the server is told."""
        told, _ = await self._asked(method, params, seconds, heard)
        return told

    async def _asked(self, method: str, params: Frame, seconds: float, heard: ProgressListener | None = None) -> tuple[Frame, int]:
        if self._why is not None:
            raise ServerLost(self._why)
        number = next(self._ids)
        meta = {**self._envelope, **({} if heard is None else {"progressToken": number})}
        waiting = self._waiting[number] = _Waiting(asyncio.get_running_loop().create_future(), heard)
        is_answered = False
        try:
            async with asyncio.timeout(seconds):
                await self._send(
                    {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **({"_meta": meta} if meta else {})}}
                )
                answer, size = await waiting.answer
                is_answered = True
        except TimeoutError:
            raise ServerSilent(f"it did not answer within {seconds:g} seconds") from None
        finally:
            del self._waiting[number]
            waiting.answer.cancel()
            if not is_answered and not self.is_lost and method != "initialize":
                self._say_soon({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        return _result(answer), size

    def kill(self, why: str) -> None:
        """End the server at once, with everything that it started; whoever waits for it is told why."""
        self._lose(why)
        self._process.kill(why)

    async def close(self) -> None:
        """End the server with everything that it started."""
        self._lose("it was stopped")
        self._process.kill()
        # Two must not read from one pipe: those who do are let finish first.
        await asyncio.wait(self._tasks, timeout=_SETTLE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._process.close()

    async def _read(self) -> None:
        why = "it ended"
        try:
            async for frame, size in read_frames(self._process.stdout):
                self._take(frame, size)
        except Overrun as fault:
            why = str(fault)
            self._process.kill(why)
            # Its end is seen only when its pipe is empty.
            async with asyncio.timeout(_SETTLE):
                while await self._process.stdout.read(_CHUNK):
                    pass
        finally:
            # Its last words may still be on their way.
            await asyncio.wait(self._tasks[:1], timeout=1)
            words = self._complaints.last_words
            self._lose(f"{self._process.stopped or why}{f'; its last words: {words}' if words else ''}")

    def _take(self, frame: Frame | None, size: int) -> None:
        number = None if frame is None else frame.get("id")
        method = None if frame is None else frame.get("method")
        waiting = self._waiting.get(number) if method is None and type(number) is int else None
        if frame is not None and waiting is not None and not waiting.answer.done():
            waiting.answer.set_result((frame, size))
            return
        # From here on it is something that nobody asked for.
        self._allowance.spend(size)
        if frame is None or not isinstance(method, str):
            return
        if isinstance(number, int | str):
            self._answer(number, method)
        elif method == "notifications/progress":
            self._hear(frame.get("params"))
        elif method == _CHANGED:
            self.has_changed.set()

    def _hear(self, params: JsonValue) -> None:
        told = params if isinstance(params, dict) else {}
        token, done, total, words = (told.get(key) for key in ("progressToken", "progress", "total", "message"))
        waiting = self._waiting.get(token) if type(token) is int else None
        if waiting is None or waiting.heard is None or not isinstance(done, int | float):
            return
        waiting.heard(
            float(done),
            float(total) if isinstance(total, int | float) else None,
            clean_text(words, 200) if isinstance(words, str) else None,
        )

    def _answer(self, number: int | str, method: str) -> None:
        """Answer what a server asks of us: it learns nothing, and gets nobody to talk to."""
        reply: Frame = {"jsonrpc": "2.0", "id": number}
        match method:
            case "ping":
                reply["result"] = {}
            case "roots/list":
                reply["result"] = {"roots": []}
            case "elicitation/create":
                reply["result"] = {"action": "decline"}
            case "sampling/createMessage":
                reply["error"] = {"code": _DECLINED, "message": "declined: no model is lent to servers here"}
            case _:
                reply["error"] = {"code": METHOD_NOT_FOUND, "message": "method not found"}
        self._say_soon(reply)

    async def _send(self, frame: Frame) -> None:
        try:
            await write(self._process.stdin, frame)
        except (ConnectionError, OSError):
            # The reader learns of the end with its reason; whoever waits is told by it.
            return
        except Overrun as fault:
            self._process.kill(str(fault))

    def _say_soon(self, frame: Frame) -> None:
        try:
            write_soon(self._process.stdin, frame)
        except Overrun as fault:
            self._process.kill(str(fault))
        except (ConnectionError, OSError):
            return

    def _lose(self, why: str) -> None:
        if self._why is None:
            self._why = why
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(ServerLost(self._why))


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _result(answer: Frame) -> Frame:
    error = answer.get("error")
    if error is not None:
        told = error if isinstance(error, dict) else {}
        message = told.get("message")
        raise ServerRefused(clean_text(message, 2_000) if isinstance(message, str) and message else "it gave no reason")
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ServerRefused("its answer is no answer")
    return result
