"""A hostile agent on its MCP socket: whatever it sends, that connection is answered or closed, and everyone else lives on."""

import asyncio
import contextlib
import json
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import CallDenied, CallPermitted, Place, Prepared, ToolResult
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.tools.mcp_in import McpBounds
from tests.support.covers import covers
from tests.support.fuzz import frames
from tests.support.houses import events, house, run, until
from tests.support.mcp import ENVELOPE, Bare, Served, bare, calling, client, native, serving, session_of

PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


async def is_alive(served: Served) -> None:
    """Prove that a new connection gets its answers."""
    async with bare(served.socket) as peer:
        await peer.greet()
        assert (await peer.ask("ping"))["result"] == {}


async def settled(served: Served) -> None:
    """Wait until nobody is connected, and see that nothing of them is kept."""
    await until(lambda: not served.door.connections and not served.door.tasks)
    assert served.door.load.held == 0


@covers("mcp-in.fuzz-hurts-nobody-else")
def test_ten_thousand_hostile_frames_do_not_disturb_another_session(tmp_path: Path) -> None:
    done = asyncio.Event()
    worked: list[str] = []
    answered: list[bytes] = []

    async def hear(peer: Bare) -> None:
        with contextlib.suppress(ConnectionError):
            while told := await peer.reader.read(65_536):
                answered.append(told)

    async def attack(served: Served, seed: int) -> int:
        sent = 0
        while sent < 1_000:
            async with bare(served.socket) as peer:
                reading = asyncio.create_task(hear(peer))
                for frame in frames(seed * 1_000 + sent, min(25, 1_000 - sent)):
                    sent += 1
                    try:
                        await peer.send(frame)
                    except ConnectionError:
                        break
                # Every frame is taken before the connection ends; only a call that waits for a human would keep it open.
                if not peer.writer.is_closing():
                    peer.writer.write_eof()
                await asyncio.wait({reading}, timeout=2)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        return sent

    async def work(served: Served) -> None:
        async with client(served.socket) as mcp:
            while not done.is_set() or len(worked) < 20:
                path, text = str(served.workspace / "notes.txt"), f"line {len(worked)}"
                assert not (await mcp.call_tool("filesystem__write_file", {"path": path, "content": text})).is_error
                read = await mcp.call_tool("filesystem__read_file", {"path": path})
                assert (read.is_error, read.content[0].text) == (False, text)
                worked.append(text)

    async def story() -> None:
        async with (
            SqliteStore.open(tmp_path / "home", SystemClock(), decode=lift) as store,
            house(store) as opened,
            session_of(opened, tmp_path, name="victim") as victim,
            session_of(opened, tmp_path, name="enemy") as enemy,
        ):
            working = asyncio.create_task(work(victim))
            sent = await asyncio.gather(*(attack(enemy, seed) for seed in range(10)))
            during = len(worked)
            done.set()
            await working
            assert during >= 3, "the other session was at work meanwhile"
            assert sum(sent) == 10_000
            await settled(enemy)
            await is_alive(enemy)

    run(story())
    assert len(worked) >= 20
    assert sum(told.count(b"\n") for told in answered) > 2_000, "the attack was heard"


HOSTILE: dict[str, bytes] = {
    "garbage": b"\x00\x01\x02\xff\n",
    "no utf-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}\n',
    "half a character": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n',
    "NUL": b'{"jsonrpc":"2.0","id":"\x00","method":"ping"}\n',
    "no object": b"42\n",
    "a batch": b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n',
    "deep nesting": b"[" * 10_000 + b"\n",
    "deep objects": b'{"a":' * 10_000 + b"\n",
    "not a number": b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}\n',
    "an endless number": b'{"jsonrpc":"2.0","id":' + b"9" * 100_000 + b',"method":"ping"}\n',
    "a huge id": b'{"jsonrpc":"2.0","id":"' + b"x" * 10_000 + b'","method":"ping"}\n',
    "a fractional id": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n',
    "no id at all": b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
    "another protocol": b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n',
    "params that are a list": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}\n',
    "a method that is none": b'{"jsonrpc":"2.0","id":1,"method":{}}\n',
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
@covers("mcp-in.garbage-is-answered-or-closed")
def test_a_frame_that_means_nothing_is_answered_and_the_connection_goes_on(frame: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            async with bare(served.socket) as peer:
                await peer.send(frame)
                told = await peer.next()
                assert told["error"]["code"] in {-32700, -32600}
                assert len(json.dumps(told)) < 1_000, "an error does not repeat what was sent"
                await peer.send(PING)
                assert (await peer.next())["id"] == "p"
            await settled(served)

    run(story())


def twice(arguments: str, before: str = "") -> bytes:
    """Return the text of a call to write `one.txt` in the newer era, as no JSON library would write it."""
    meta = json.dumps(ENVELOPE)
    params = f'{{{before}"name":"filesystem__write_file","arguments":{arguments},"_meta":{meta}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}\n'.encode()


WRITING = '{"path":"one.txt","content":"x"}'
AMBIGUOUS_ARGUMENTS: dict[str, bytes] = {
    "the last one": twice('{"path":"two.txt","path":"one.txt","content":"x"}'),
    "the same value": twice('{"path":"one.txt","path":"one.txt","content":"x"}'),
    "another spelling": twice('{"path":"two.txt","pa\\u0074h":"one.txt","content":"x"}'),
    "further in": twice('{"path":"one.txt","content":"x","more":[{"a":1,"a":2}]}'),
    "with colons in text": twice('{"path":"one.txt","content":"a:b:c","path":"one.txt"}'),
    "two of all arguments": twice(WRITING, before='"arguments":{"path":"two.txt","content":"x"},'),
}
AMBIGUOUS_FRAMES: dict[str, bytes] = {
    "the name": twice(WRITING, before='"name":"filesystem__read_file",'),
    "the envelope": twice(WRITING, before='"_meta":{},'),
    "inside the envelope": twice(WRITING).replace(b'"_meta":{', b'"_meta":{"progressToken":1,"progressToken":2,'),
    "the method": twice(WRITING).replace(b'{"jsonrpc"', b'{"method":"ping","jsonrpc"'),
    "the id": twice(WRITING).replace(b'{"jsonrpc"', b'{"id":2,"jsonrpc"'),
    "the parameters": twice(WRITING).replace(b'{"jsonrpc"', b'{"params":{},"jsonrpc"'),
    "the protocol": twice(WRITING).replace(b'{"jsonrpc"', b'{"jsonrpc":"2.0","jsonrpc"'),
    "arguments and name": twice('{"path":"one.txt","path":"one.txt","content":"x"}', before='"name":"filesystem__read_file",'),
    "another method": twice('{"a":1,"a":2}').replace(b"tools/call", b"ping"),
}


@pytest.mark.parametrize("frame", AMBIGUOUS_ARGUMENTS.values(), ids=AMBIGUOUS_ARGUMENTS)
@covers("mcp-in.one-reading")
def test_arguments_with_a_key_twice_are_denied_and_the_denial_is_logged(frame: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as peer:
            await peer.send(frame)
            told = await peer.next()
            assert told["result"]["isError"]
            assert "invalid-arguments" in told["result"]["content"][0]["text"]
            assert "is given twice" in told["result"]["content"][0]["text"]
            (denied,) = [event for event in events(served.house, served.session) if isinstance(event, CallDenied)]
            assert denied.verdict.because == ("invalid-arguments",)
            await peer.send(twice(WRITING))
            assert not (await peer.next())["result"].get("isError"), "the same with each key once is done"
            assert sorted(path.name for path in served.workspace.iterdir()) == ["one.txt"]

    run(story())


@pytest.mark.parametrize("frame", AMBIGUOUS_FRAMES.values(), ids=AMBIGUOUS_FRAMES)
@covers("mcp-in.one-reading")
def test_a_frame_with_a_key_twice_is_refused_whichever_was_meant(frame: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as peer:
            await peer.send(frame)
            told = await peer.next()
            assert (told["id"], told["error"]["code"]) == (None, -32600)
            assert "is given twice" in told["error"]["message"]
            assert list(served.workspace.iterdir()) == []

    run(story())


@covers("mcp-in.bounded")
def test_a_line_of_a_hundred_megabytes_ends_that_connection_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            async with bare(served.socket) as peer:
                held: list[int] = []

                async def send_on() -> None:
                    for _ in range(1_600):
                        await peer.send(b"x" * 65_536)
                        held.append(served.door.load.held)

                with pytest.raises(ConnectionError):
                    await send_on()
                assert max(held) <= 17 * 1024 * 1024
            await settled(served)
            await is_alive(served)

    run(story())


def test_what_is_small_as_a_line_and_big_when_parsed_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            for bomb in (b"[" + b"[]," * 3_000_000 + b"1]\n", b'"\\"' * 3_000_000 + b"\n", b"[" + b'{"":' * 2_000_000 + b"\n"):
                began = time.process_time()
                async with bare(served.socket) as peer:
                    await peer.send(bomb)
                    assert (await peer.next())["error"]["code"] == -32700
                assert time.process_time() - began < 3
            await is_alive(served)

    run(story())


def test_a_big_text_full_of_brackets_is_no_bomb(tmp_path: Path) -> None:
    text = "[],{}\n" * 500_000

    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as peer:
            path = served.workspace / "big.txt"
            await peer.send(calling("filesystem__write_file", {"path": str(path), "content": text}))
            assert (await peer.next())["result"]["isError"] is False
            assert path.read_text() == text

    run(story())


@covers("mcp-in.bounded")
def test_a_peer_that_never_reads_is_cut(tmp_path: Path) -> None:
    frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}).encode() + b"\n"

    async def story() -> None:
        async with serving(tmp_path, bounds=McpBounds(patience=0.3)) as served:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.connect(str(served.socket))
                peer.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(peer, frame * 400)
                await until(lambda: served.door.connections)
                await until(lambda: not served.door.connections)
            await settled(served)
            await is_alive(served)

    run(story())


def test_half_a_line_costs_nothing_while_it_stands_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            async with bare(served.socket) as peer:
                await peer.send(b'{"jsonrpc":"2.0",')
                await until(lambda: served.door.load.held)
                began = time.process_time()
                await asyncio.sleep(0.3)
                assert time.process_time() - began < 0.2
                await peer.send(b'"id":5,"method":"ping"}\r\n')
                assert (await peer.next())["id"] == 5
                await peer.send(b'{"half')
            await settled(served)

    run(story())


@covers("mcp-in.bounded")
def test_more_connections_than_allowed_are_turned_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, bounds=McpBounds(connections=2)) as served, bare(served.socket) as one, bare(served.socket):
            await one.greet()
            async with bare(served.socket) as third:
                assert "connections" in (await third.next())["error"]["message"]
                assert await third.rest() == b""
            assert (await one.ask("ping", id_=3))["result"] == {}

    run(story())


def test_a_connection_that_speaks_no_mcp_is_closed_in_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as peer:
            await peer.send(b"nonsense\n" * 150)
            lines = (await peer.rest()).splitlines()
            assert len(lines) == 101
            assert "no MCP client" in json.loads(lines[-1])["error"]["message"]

    run(story())


class Slow:
    """A tool that ends when it is told to."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.go = asyncio.Event()

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        self.running.append(str(prepared.arguments["path"]))
        self.most = max(self.most, len(self.running))
        try:
            await self.go.wait()
        finally:
            self.running.pop()
        return ToolResult(ok=True, value=prepared.arguments["path"])


def reading(path: Path | str, id_: int) -> dict[str, Any]:
    return calling("filesystem__read_file", {"path": str(path)}, id_)


@covers("mcp-in.replies-never-cross")
def test_the_same_ids_on_two_connections_get_each_their_own_replies(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as one, bare(served.socket) as two:
            for name in ("one", "two"):
                for number in range(40):
                    (served.workspace / f"{name}-{number}").write_text(f"{name} {number}")
            for number in range(40):
                await one.send(reading(served.workspace / f"one-{number}", number))
                await two.send(reading(served.workspace / f"two-{number}", number))
            for name, peer in (("one", one), ("two", two)):
                told = [await peer.next() for _ in range(40)]
                texts = {frame["id"]: frame["result"]["content"][0]["text"] for frame in told}
                assert texts == {number: f"{name} {number}" for number in range(40)}

    run(story())


def test_an_id_that_is_still_in_flight_is_refused_without_touching_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        slow = Slow()
        tools = native({"filesystem.read_file": slow.run})
        async with serving(tmp_path, tools=tools) as served, bare(served.socket) as peer:
            await peer.send(reading("a", 1))
            await until(lambda: slow.running)
            await peer.send(reading("b", 1))
            told = await peer.next()
            assert (told["id"], told["error"]["code"]) == (None, -32600)
            slow.go.set()
            assert (await peer.next())["result"]["content"][0]["text"].endswith("/a")

    run(story())


@covers("mcp-in.bounded")
def test_calls_beyond_the_bound_wait_and_can_be_cancelled_while_they_do(tmp_path: Path) -> None:
    async def story() -> None:
        slow = Slow()
        tools = native({"filesystem.read_file": slow.run})
        async with serving(tmp_path, tools=tools, bounds=McpBounds(in_flight=3, waiting=4)) as served, bare(served.socket) as peer:
            for number in range(20):
                await peer.send(reading(f"f{number}", number))
            await until(lambda: len(slow.running) == 3)
            await asyncio.sleep(0.1)
            assert len(slow.running) == 3
            assert served.door.load.held > 0
            await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}})
            slow.go.set()
            told = [await peer.next() for _ in range(19)]
            assert slow.most <= 3
            assert len({frame["id"] for frame in told}) == 19
            await peer.send(PING)
        await settled(served)

    run(story())


def test_waiting_calls_do_not_keep_a_cancellation_from_being_read(tmp_path: Path) -> None:
    async def story() -> None:
        slow = Slow()
        tools = native({"filesystem.read_file": slow.run})
        async with serving(tmp_path, tools=tools, bounds=McpBounds(in_flight=2, waiting=8)) as served, bare(served.socket) as peer:
            for number in range(6):
                await peer.send(reading(f"f{number}", number))
            await until(lambda: len(slow.running) == 2)
            for number in range(6):
                await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
            await until(lambda: not slow.running and served.door.load.held == 0)
            await peer.send(
                {"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": calling("", {})["params"] | {"name": None}}
            )
            assert (await peer.next())["id"] == "d"

    run(story())


def test_numbers_that_cannot_be_held_are_refused_like_any_other_bad_argument(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, bare(served.socket) as peer:
            frame = json.dumps(calling("filesystem__read_file", {"path": "x", "head": 7})).encode() + b"\n"
            await peer.send(frame.replace(b"7}", b"1e999}"))
            assert (await peer.next())["error"]["code"] == -32602
            await peer.send(frame.replace(b"7}", b"1" + b"0" * 400 + b"}"))
            assert "`invalid-arguments`" in (await peer.next())["result"]["content"][0]["text"]

    run(story())


def sockets(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_socket()]


@covers("mcp-in.socket-is-private")
def test_the_socket_is_for_its_owner_alone_and_goes_with_the_door(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            assert stat.S_IMODE(served.socket.stat().st_mode) == 0o600
            assert sockets(tmp_path) == ["one.sock"]
        assert not served.socket.exists()

    run(story())
