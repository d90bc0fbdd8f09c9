"""A service that listens says where, and where it cannot, which key to change."""

import asyncio
import socket

import pytest
from starlette.applications import Starlette

from curtainwall.model import TryLater
from curtainwall.serve.listener import HttpService, ListenAddress
from tests.support.waiting import eventually


def test_it_says_where_it_can_be_reached_and_names_the_key_where_the_port_is_taken() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[:2]
        service = HttpService("webhooks", Starlette, ListenAddress(address, "/hooks/NAME", "webhooks.listen", said.append))
        with pytest.raises(TryLater, match=r"already in use; choose another with `webhooks\.listen` in the configuration"):
            asyncio.run(service.run())
    assert said == []

    async def listens() -> None:
        task = asyncio.create_task(service.run())
        await eventually(lambda: said)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(listens())
    assert said == [f"webhooks: at http://127.0.0.1:{address[1]}/hooks/NAME"]
