"""Parse newline-delimited JSON-RPC 2.0 from bytes to frames, at a cost bounded by the length of the input."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

from mcp_types.jsonrpc import INVALID_REQUEST, PARSE_ERROR
from pydantic import JsonValue
from pydantic_core import to_json

from curtainwall.facts import quoted, read_frame
from curtainwall.model import record
from curtainwall.tools.mcp_in.bounds import McpBounds

RequestId = int | str
Params = Mapping[str, JsonValue]

_LONGEST_ID = 256
_BIGGEST_ID = 2**63
# An unterminated string consumes the rest; otherwise the match would be retried at each quote.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# Only lines with more structural characters than this are counted exactly.
_FEW_PARTS = 5_000
_EMPTY: Final[Params] = {}
_CALL: Final = "tools/call"
_ARGUMENTS: Final = ("params", "arguments")


class FrameFault(Exception):
    """A frame that cannot be processed, as reported to its sender; a `fatal` one ends the connection."""

    def __init__(self, code: int, message: str, *, data: JsonValue = None, fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.fatal = fatal


@record
class McpRequest:
    """A message that expects a reply; `unclear` says why the arguments of a call are ambiguous."""

    id: RequestId
    method: str
    params: Params
    unclear: str = ""


@record
class McpNotification:
    """A message that expects no reply."""

    method: str
    params: Params


class LineBuffer:
    """The received bytes of one connection, split at newlines."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._bytes = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def is_fresh(self) -> bool:
        """Tell whether there are bytes that were not searched yet."""
        return self._searched < len(self._bytes)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._bytes += data

    def next(self) -> bytes | None:
        """Return the next line without its end, or None if it is incomplete; raise a fatal `FrameFault` if it is too long."""
        end = self._bytes.find(b"\n", self._searched)
        if end < 0 and len(self._bytes) <= self._longest:
            self._searched = len(self._bytes)
            return None
        if end < 0 or end > self._longest:
            raise FrameFault(PARSE_ERROR, f"a line is longer than {self._longest} bytes; send it in pieces", fatal=True)
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line

    def clear(self) -> int:
        """Discard everything and return the number of bytes."""
        size = len(self._bytes)
        self._bytes = bytearray()
        self._searched = 0
        return size


def count_values(line: bytes) -> int:
    """Return an upper bound of the values in a line: ten million empty lists are a short line but an expensive parse."""
    rough = line.count(b",") + line.count(b"[") + line.count(b"{")
    if rough <= _FEW_PARTS:
        return rough
    bare = _STRING.sub(b"", line)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def parse_frame(line: bytes, bounds: McpBounds) -> McpRequest | McpNotification | None:
    """Parse one line; return None for a reply, since we never send requests; raise `FrameFault`."""
    parts = count_values(line)
    if parts > bounds.parts:
        raise FrameFault(PARSE_ERROR, f"a line has {parts} values, more than {bounds.parts}; send it in pieces", fatal=True)
    try:
        message, repeated = read_frame(line)
    except ValueError as error:
        raise FrameFault(PARSE_ERROR, f"no JSON: {str(error)[:120]}") from None
    if isinstance(message, list):
        raise FrameFault(INVALID_REQUEST, "batches are not part of this protocol; send one message a line")
    if not isinstance(message, dict):
        raise FrameFault(INVALID_REQUEST, "a message must be an object")
    unclear = _unclear(repeated, message.get("method"))
    if message.get("jsonrpc") != "2.0":
        raise FrameFault(INVALID_REQUEST, '`jsonrpc` must be "2.0"')
    method = message.get("method")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    if type(method) is not str:
        raise FrameFault(INVALID_REQUEST, "`method` must be a string")
    params = message.get("params")
    if "id" not in message:
        return McpNotification(method, params if type(params) is dict else _EMPTY)
    id_ = _id(message["id"])
    if params is not None and type(params) is not dict:
        raise FrameFault(INVALID_REQUEST, "`params` must be an object")
    return McpRequest(id_, method, params or _EMPTY, unclear)


def _unclear(repeated: Iterable[tuple[str | int, ...]], method: JsonValue) -> str:
    """Return why the arguments of a call are ambiguous, so that the gate denies it; raise `FrameFault` if the rest is ambiguous."""
    reason = ""
    for path in repeated:
        complaint = f"the key {quoted(path[-1])} is given twice"
        if method != _CALL or path[:2] != _ARGUMENTS:
            raise FrameFault(INVALID_REQUEST, f"{complaint}, so this message can be read in two ways")
        reason = reason or f"{complaint} in the arguments, so they can be read in two ways"
    return reason


def is_id(value: object) -> bool:
    """Tell whether this can be a request id: a string or an integer of a sane size."""
    if type(value) is str:
        return len(value) <= _LONGEST_ID
    return type(value) is int and -_BIGGEST_ID < value < _BIGGEST_ID


def _id(value: JsonValue) -> RequestId:
    if not is_id(value):
        raise FrameFault(INVALID_REQUEST, f"`id` must be a string of at most {_LONGEST_ID} letters or a whole number of 64 bits")
    return cast("RequestId", value)


def reply_line(id_: RequestId, result: bytes) -> bytes:
    """Return the line that answers a request with an encoded result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (to_json(id_), result)


def error_line(id_: RequestId | None, fault: FrameFault) -> bytes:
    """Return the line that reports an error; the id is None if the frame has no usable one."""
    error: dict[str, JsonValue] = {"code": fault.code, "message": str(fault)}
    if fault.data is not None:
        error["data"] = fault.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (to_json(id_), to_json(error))


def notification_line(method: str, params: Params) -> bytes:
    """Return the line of a notification."""
    return to_json({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"
