"""Blind tunnels, at the moment in which their time is up."""

import asyncio
import socket

from curtainwall.egress.tunnels import tunnel
from curtainwall.host import Connection, Wire
from tests.support.houses import run
from tests.support.waiting import eventually


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
