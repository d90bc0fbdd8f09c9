"""Blind tunnels: the names that they may lead to, and the moment in which their time is up."""

import asyncio
import socket

import pytest

from curtainwall.egress.client import connect_target, tunnel, tunnel_facts
from curtainwall.egress.refusals import Refused
from curtainwall.host import Connection, Wire
from tests.support.houses import run
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "text",
    ["xn--pi-7ka.com:443", "api.xn--pi-7ka.com:443", "api.XN--pi-7ka.com:443", "1.2.3.4:443", "example.123:443", "0x7f000001:443",
     "a.0x7f:443", "a.0X7F:443", "[::1]:443", "example.com", "example.com:0", "example.com:65536", "example.com.:443", "u@example.com:443"],
)  # fmt: skip
def test_what_is_no_plain_name_and_port_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        connect_target(text)


def test_what_nobody_sees_into_does_not_count_as_secure() -> None:
    assert connect_target("API.example.com:8443") == ("api.example.com", 8443)
    facts = tunnel_facts("api.example.com", 8443, frozenset())
    assert (facts.host, facts.port, facts.secure) == ("api.example.com", 8443, False)


def test_a_byte_that_comes_when_the_time_is_up_ends_the_tunnel_like_any_other() -> None:
    async def story() -> None:
        client, ours = socket.socketpair()
        far, there = socket.socketpair()
        with client, far:
            _, wire = await asyncio.get_running_loop().create_connection(Wire, sock=ours)
            connection = Connection(*await asyncio.open_connection(sock=there), "example.com")
            client.sendall(b"one more")
            await eventually(lambda: wire.holds_more)
            await tunnel(wire, connection, 0)
            await eventually(lambda: wire.is_lost)

    run(story())
