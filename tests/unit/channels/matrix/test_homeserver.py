"""The way to a homeserver where there is none."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.channels.matrix import MatrixSettings, People
from curtainwall.channels.matrix.homeserver import Account, open_homeserver, unreachable
from curtainwall.model import TryLater
from tests.support.ports import free_port


def test_a_homeserver_that_does_not_answer_is_named_with_the_reason(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    account = Account(address, "@wall:example.org", "WALL", tmp_path, "seal", password="secret-word")

    async def connect() -> None:
        async with open_homeserver(account):
            pass

    with pytest.raises(TryLater, match=f"^the homeserver `{address}` cannot be reached: connection refused$"):
        asyncio.run(asyncio.wait_for(connect(), 60))
    assert str(unreachable(account, TimeoutError())).endswith(": no answer in time")


def test_the_sync_brings_direct_rooms_also_where_the_rooms_are_listed() -> None:
    people = People("@wall:x", frozenset({"@ann:x"}), frozenset(), trusts_homeserver=False)
    for rooms, listed in ((frozenset({"!a:x"}), ["!a:x", "!direct:x"]), (frozenset[str](), None)):
        room_filter = MatrixSettings(people, rooms).sync_filter(["!direct:x"])["room"]
        assert isinstance(room_filter, dict)
        assert room_filter.get("rooms") == listed
