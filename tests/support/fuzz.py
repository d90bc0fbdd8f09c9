"""Frames that an enemy would send: bytes, near misses of valid frames, and shapes that parsers choke on; the same for the same seed."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.mcp import ENVELOPE

METHODS = (
    "initialize", "ping", "tools/list", "tools/call", "server/discover", "notifications/cancelled", "notifications/initialized",
    "notifications/progress", "logging/setLevel", "resources/list", "roots/list", "sampling/createMessage", "", "\x00", "TOOLS/CALL",
)  # fmt: skip
TOOLS = (
    "filesystem__read_file",
    "filesystem.list_directory",
    "filesystem__",
    "__",
    ".",
    "shell__run",
    "a" * 300,
    "session__recall",
    "\u202e",
)
IDS: tuple[Any, ...] = (0, 1, -1, 2**63, 10**400, 1.0, 1e999, True, None, "", "x", "x" * 10_000, [], {}, "\x00", "\ud800")
WORDS: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "\x00",
    "../../etc/passwd",
    "~/.ssh/id_rsa",
    "x" * 5_000,
    [],
    {},
    [[[]]],
    {"a": {}},
)


def frames(seed: int, count: int) -> Iterator[bytes]:
    """Yield so many frames; most end with a newline, some do not."""
    chance = random.Random(seed)
    makers = (_noise, _mutated, _mutated, _shaped, _shaped, _shaped, _deep, _text)
    for _ in range(count):
        yield chance.choice(makers)(chance)


def _valid(chance: random.Random) -> dict[str, Any]:
    params = {"name": chance.choice(TOOLS), "arguments": {"path": chance.choice(WORDS)}, "_meta": dict(ENVELOPE)}
    return {"jsonrpc": "2.0", "id": chance.randrange(1000), "method": "tools/call", "params": params}


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(200)) + b"\n"


def _mutated(chance: random.Random) -> bytes:
    line = bytearray(json.dumps(_valid(chance)).encode())
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(line))
        match chance.randrange(3):
            case 0:
                line[place] = chance.randrange(256)
            case 1:
                del line[place : place + chance.randrange(1, 20)]
            case _:
                line[place:place] = chance.randbytes(chance.randrange(1, 5))
        if not line:
            break
    return bytes(line) + b"\n"


def _shaped(chance: random.Random) -> bytes:
    frame: dict[str, Any] = {"jsonrpc": chance.choice(("2.0", "2.0", "2.0", "1.0", 2, None))}
    if chance.random() < 0.9:
        frame["id"] = chance.choice(IDS) if chance.random() < 0.5 else chance.randrange(100)
    frame["method"] = chance.choice((*METHODS, *METHODS, None, 7, []))
    if chance.random() < 0.8:
        meta = chance.choice((dict(ENVELOPE), dict(ENVELOPE), {}, None, [], {**ENVELOPE, "progressToken": chance.choice(IDS)}))
        arguments = chance.choice(({"path": chance.choice(WORDS)}, {"path": chance.choice(WORDS)}, *WORDS))
        frame["params"] = chance.choice(
            (
                {"name": chance.choice((*TOOLS, 7, None)), "arguments": arguments, "_meta": meta},
                {"requestId": chance.choice(IDS)},
                [],
                None,
                7,
            )
        )
    if chance.random() < 0.1:
        return json.dumps([frame] * chance.randrange(4)).encode() + b"\n"
    if chance.random() < 0.1:
        frame["result"] = {}
    return json.dumps(frame).encode() + b"\n"


def _deep(chance: random.Random) -> bytes:
    depth, mark = chance.randrange(10, 5_000), chance.choice((b"[", b'{"a":', b'"\\"', b"[],", b"\\\\"))
    return mark * depth + chance.choice((b"\n", b"]\n", b""))


def _text(chance: random.Random) -> bytes:
    line = chance.choice(
        (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\x00\x00", b"\r\n", b"null\n", b'""\n', b"1e5\n", b"NaN\n", b"\xed\xa0\x80\n")
    )
    return line * chance.randrange(1, 4)
