"""Connections to judged hosts: resolved once, all of one class, pinned, and TLS for the judged name."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from curtainwall.host import Dialler, SystemResolver, Unreachable
from curtainwall.model import HostFacts, Scope
from tests.support.certificates import Authority
from tests.support.houses import run
from tests.support.sites import FakeNames, Site, reply, site

HERE = "127.0.0.1"

Way = Callable[[Dialler, HostFacts], Awaitable[bytes]]


def everything_private(_address: str, _port: int) -> Scope:
    return Scope.PRIVATE


def facts(host: str, port: int, scope: Scope = Scope.PRIVATE, *, secure: bool = False) -> HostFacts:
    return HostFacts(host=host, port=port, secure=secure, scope=scope)


def names_for(name: str, *addresses: str) -> FakeNames:
    names = FakeNames()
    names.says(name, addresses)
    return names


ASKING = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def by_streams(dialler: Dialler, there: HostFacts) -> bytes:
    connection = await dialler.connect(there)
    connection.writer.write(ASKING)
    try:
        return await connection.reader.read()
    finally:
        await connection.close()


async def by_wire(dialler: Dialler, there: HostFacts) -> bytes:
    wire = await dialler.wire(there)
    wire.write(ASKING)
    came = b""
    while piece := await wire.read(30):
        came += piece
    wire.finish()
    return came


def connects(dialler: Dialler, there: HostFacts) -> bytes:
    return run(by_streams(dialler, there))


def refusal(dialler: Dialler, there: HostFacts, way: Way = by_streams) -> str:
    async def story() -> str:
        with pytest.raises(Unreachable) as fault:
            await way(dialler, there)
        return str(fault.value)

    return run(story())


def test_a_name_is_resolved_and_connected_to_its_address() -> None:
    with site(HERE) as server:
        server.pages["/"] = reply(200, "hello")
        assert connects(Dialler(everything_private, names_for("box.lan", HERE)), facts("box.lan", server.port)).endswith(b"hello")


def test_an_address_needs_no_name_server() -> None:
    with site(HERE) as server:
        names = FakeNames()
        assert connects(Dialler(everything_private, names), facts(HERE, server.port)).startswith(b"HTTP/1.1 404")
        assert names.asked == []


@pytest.mark.parametrize("scope", [Scope.PUBLIC, Scope.PRIVATE, Scope.FORBIDDEN])
def test_forbidden_ground_is_not_reached_whatever_was_judged(scope: Scope) -> None:
    dialler = Dialler(lambda _address, _port: Scope.FORBIDDEN, names_for("box.lan", HERE))
    assert "leads to a forbidden address" in refusal(dialler, facts("box.lan", 80, scope))


def test_a_public_name_is_looked_up_as_it_stands_without_search_domains() -> None:
    looked_up: list[str] = []

    async def names(name: str, _port: int) -> Sequence[str]:
        looked_up.append(name)
        return ()

    dialler = Dialler(everything_private, names)
    assert "has no address" in refusal(dialler, facts("docs.python.org", 80, Scope.PUBLIC))
    refusal(dialler, facts("box", 80))
    assert looked_up == ["docs.python.org.", "box"]


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with site(HERE) as server:
        # Nothing listens at the first; both families take turns.
        dialler = Dialler(everything_private, names_for("box.lan", "127.0.0.9", "127.0.0.8", "::1", HERE))
        assert connects(dialler, facts("box.lan", server.port)).startswith(b"HTTP/1.1 404")


def test_a_silent_address_does_not_hold_up_the_next() -> None:
    with socket.socket() as deaf, site(HERE) as server:
        deaf.bind(("127.0.0.9", server.port))
        deaf.listen(0)
        with socket.create_connection(deaf.getsockname()), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(deaf.getsockname())  # the queue is full now, and the kernel drops what comes
            dialler = Dialler(everything_private, names_for("box.lan", "127.0.0.9", HERE), seconds=8)
            assert connects(dialler, facts("box.lan", server.port)).startswith(b"HTTP/1.1 404")


def test_what_cannot_be_reached_says_so() -> None:
    with socket.socket() as closed:
        closed.bind((HERE, 0))
        port = closed.getsockname()[1]
        assert f"cannot be reached on port {port}" in refusal(Dialler(everything_private), facts(HERE, port))
    assert refusal(Dialler(everything_private, FakeNames()), facts("no.lan", 80)) == "the name `no.lan` could not be resolved"


def test_slow_names_and_silent_servers_end_in_time(tmp_path: Path) -> None:
    async def never(_name: str, _port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    assert "could not be resolved within 0.1 seconds" in refusal(Dialler(everything_private, never, seconds=0.1), facts("box.lan", 80))
    with socket.socket() as mute:
        mute.bind((HERE, 0))
        mute.listen()
        there = facts(HERE, mute.getsockname()[1], secure=True)
        dialler = Dialler(everything_private, trust=Authority(tmp_path).trust, seconds=0.3)
        assert "did not answer" in refusal(dialler, there)
        assert "did not answer" in refusal(dialler, there, by_wire)


def test_the_system_resolver_knows_this_machine() -> None:
    assert {"127.0.0.1", "::1"} & {*run(SystemResolver()("localhost", 80))}


# TLS


def served(authority: Authority, context: ssl.SSLContext, host: str, resolves: str = HERE) -> str:
    """Return how TLS connections to a server ended, by streams and by wire alike: the body it sent, or the refusal."""
    with site(HERE, context) as server:
        server.pages["/"] = reply(200, "hello")
        dialler = Dialler(everything_private, names_for(host, resolves), authority.trust)
        one, other = (_ending(way, dialler, server, host) for way in (by_streams, by_wire))
    assert one == other
    return one


def _ending(way: Way, dialler: Dialler, server: Site, host: str) -> str:
    async def story() -> str:
        try:
            came = await way(dialler, facts(host, server.port, secure=True))
        except Unreachable as fault:
            assert server.seen == []
            return str(fault)
        return came.decode().rpartition("\r\n")[2]

    return run(story())


def test_a_certificate_for_the_judged_name_is_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert served(authority, authority.server("box.lan"), "box.lan") == "hello"
    assert served(authority, authority.server(HERE), HERE) == "hello"


def test_the_server_hears_the_judged_name_in_the_handshake(tmp_path: Path) -> None:
    authority, heard = Authority(tmp_path), list[str | None]()
    context = authority.server("box.lan")
    context.sni_callback = lambda _socket, name, _context: heard.append(name)
    served(authority, context, "box.lan")
    assert heard == ["box.lan", "box.lan"]


def test_a_wrong_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path)
    assert "certificate that is not valid" in served(authority, authority.server("other.lan"), "box.lan")
    assert "certificate that is not valid" in served(authority, authority.server("box.lan", expired=True), "box.lan")
    assert "certificate that is not valid" in served(authority, stranger.server("box.lan"), "box.lan")
    assert "certificate that is not valid" in served(authority, authority.server("127.0.0.5"), HERE)


@pytest.mark.parametrize("way", [by_streams, by_wire])
def test_a_server_without_tls_is_no_https(way: Way, tmp_path: Path) -> None:
    async def story() -> None:
        async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(plain, HERE)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unreachable, match=r"no TLS connection to `127\.0\.0\.1` could be made"):
                await way(Dialler(everything_private, trust=Authority(tmp_path).trust), facts(HERE, port, secure=True))

    run(story())
