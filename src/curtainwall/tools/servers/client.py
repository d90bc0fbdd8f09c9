"""Client of one running server: sends requests, matches replies by id, and refuses everything that the server asks of us."""

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
"""Seconds within which a server must answer the greeting."""

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
    on_progress: ProgressListener | None = None


class ServerClient:
    """A running server. The caller that opens it must close it."""

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
        greeting: Frame = {"protocolVersion": HANDSHAKES[-1], "capabilities": {}, "clientInfo": _US}
        try:
            reply = await self.request("initialize", greeting, START)
        except ServerRefused as refusal:
            # A server that speaks only the newer protocol has no handshake; every request carries an envelope instead.
            self._envelope = ENVELOPE
            try:
                reply = await self.request("server/discover", {}, START)
            except ServerRefused:
                raise refusal from None
            versions = reply.get("supportedVersions")
            if not isinstance(versions, list) or MODERN not in versions:
                raise refusal from None
        else:
            if reply.get("protocolVersion") not in HANDSHAKES:
                raise ServerRefused(f"it speaks {quoted(reply.get('protocolVersion'))}, which we do not")
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server_info = reply.get("serverInfo")
        if isinstance(server_info, dict):
            self.about = clean_text(f"{server_info.get('name', '')} {server_info.get('version', '')}", 100)

    async def list_tools(self, within: float = START) -> tuple[OfferedTool, ...]:
        """Return its tools; raise `ServerSilent` or `ServerRefused` if its list, over all pages, does not end."""
        tools: list[OfferedTool] = []
        params: Frame = {}
        cursors: set[str] = set()
        remaining = LONGEST_LIST
        try:
            async with asyncio.timeout(within):
                while True:
                    reply, size = await self._exchange("tools/list", params, START)
                    remaining -= size
                    if remaining < 0:
                        # A change may be in the rest of the list, so a partial list is useless.
                        raise ServerRefused(f"its list of tools is longer than {LONGEST_LIST // 1024 // 1024} MiB")
                    page = [tool for tool in _listed(reply.get("tools")) if isinstance(tool, dict)]
                    tools += [parsed for tool in page if (parsed := parse_tool(tool))]
                    cursor = reply.get("nextCursor")
                    if not page or not isinstance(cursor, str) or cursor in cursors or len(tools) > MOST_TOOLS:
                        return tuple(tools[:MOST_TOOLS])
                    cursors.add(cursor)
                    params = {"cursor": cursor}
        except TimeoutError:
            raise ServerSilent(f"it did not say all that it offers within {within:g} seconds") from None

    async def call(
        self, tool: str, arguments: Mapping[str, JsonValue], seconds: float, on_progress: ProgressListener | None = None
    ) -> Frame:
        """Call a tool and return its result as the server gave it."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments)}, seconds, on_progress)

    async def request(self, method: str, params: Frame, seconds: float, on_progress: ProgressListener | None = None) -> Frame:
        """Send a request and return its result; if the caller stops waiting, tell the server."""
        reply, _ = await self._exchange(method, params, seconds, on_progress)
        return reply

    async def _exchange(self, method: str, params: Frame, seconds: float, on_progress: ProgressListener | None = None) -> tuple[Frame, int]:
        if self._why is not None:
            raise ServerLost(self._why)
        number = next(self._ids)
        meta = {**self._envelope, **({} if on_progress is None else {"progressToken": number})}
        waiting = self._waiting[number] = _Waiting(asyncio.get_running_loop().create_future(), on_progress)
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
                self._send_soon({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        return _result(answer), size

    def kill(self, why: str) -> None:
        """End the server and everything it started at once; callers that wait for it get the reason."""
        self._lose(why)
        self._process.kill(why)

    async def close(self) -> None:
        """End the server and everything it started."""
        self._lose("it was stopped")
        self._process.kill()
        # A pipe must have one reader, so let the running ones finish first.
        await asyncio.wait(self._tasks, timeout=_SETTLE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._process.close()

    async def _read(self) -> None:
        why = "it ended"
        try:
            async for frame, size in read_frames(self._process.stdout):
                self._dispatch(frame, size)
        except Overrun as error:
            why = str(error)
            self._process.kill(why)
            # Its exit is noticed only once its pipe is empty.
            async with asyncio.timeout(_SETTLE):
                while await self._process.stdout.read(_CHUNK):
                    pass
        finally:
            # Its last output may still be on the way.
            await asyncio.wait(self._tasks[:1], timeout=1)
            words = self._complaints.last_words
            self._lose(f"{self._process.stopped or why}{f'; its last words: {words}' if words else ''}")

    def _dispatch(self, frame: Frame | None, size: int) -> None:
        number = None if frame is None else frame.get("id")
        method = None if frame is None else frame.get("method")
        waiting = self._waiting.get(number) if method is None and type(number) is int else None
        if frame is not None and waiting is not None and not waiting.answer.done():
            waiting.answer.set_result((frame, size))
            return
        # From here on, the message is unsolicited.
        self._allowance.spend(size)
        if frame is None or not isinstance(method, str):
            return
        if isinstance(number, int | str):
            self._answer(number, method)
        elif method == "notifications/progress":
            self._report_progress(frame.get("params"))
        elif method == _CHANGED:
            self.has_changed.set()

    def _report_progress(self, params: JsonValue) -> None:
        fields = params if isinstance(params, dict) else {}
        token, done, total, message = (fields.get(key) for key in ("progressToken", "progress", "total", "message"))
        waiting = self._waiting.get(token) if type(token) is int else None
        if waiting is None or waiting.on_progress is None or not isinstance(done, int | float):
            return
        waiting.on_progress(
            float(done),
            float(total) if isinstance(total, int | float) else None,
            clean_text(message, 200) if isinstance(message, str) else None,
        )

    def _answer(self, number: int | str, method: str) -> None:
        """Answer a server's request: it learns nothing, and reaches no human or model."""
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
        self._send_soon(reply)

    async def _send(self, frame: Frame) -> None:
        try:
            await write(self._process.stdin, frame)
        except (ConnectionError, OSError):
            # The reader notices the end with its reason and tells the waiting callers.
            return
        except Overrun as error:
            self._process.kill(str(error))

    def _send_soon(self, frame: Frame) -> None:
        try:
            write_soon(self._process.stdin, frame)
        except Overrun as error:
            self._process.kill(str(error))
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
        fields = error if isinstance(error, dict) else {}
        message = fields.get("message")
        raise ServerRefused(clean_text(message, 2_000) if isinstance(message, str) and message else "it gave no reason")
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ServerRefused("its answer is no answer")
    return result
