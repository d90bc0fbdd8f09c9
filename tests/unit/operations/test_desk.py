"""The desk: what people say arrives, also where hooks add to it and the session's owner does not decide."""

import asyncio

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import MessageId, SendMessage, Undecided, session_stream
from tests.support.in_process import Places, desk_in, session_in

ADDS = '[[hooks.UserPromptSubmit]]\nhooks = [{type = "command", command = "echo it is Monday"}]\n'


def test_a_message_to_which_a_hook_adds_is_kept_where_the_owner_does_not_decide(places: Places) -> None:
    session, _ = session_in(places.workspace)
    stream = session_stream(session)
    (places.home / "config.toml").write_text(ADDS)

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            lease = wired.store.leases.take(stream)
            assert lease is not None, "from here on somebody owns the session who decides nothing"
            desk = desk_in(wired)
            said = SendMessage(by=local_user(), message=MessageId("m1"), text="hello")
            with pytest.raises(Undecided, match="this is kept"):
                await desk.send(session, said, "key")
            kept = [row.command for row in wired.store.inbox.waiting(stream)]
            assert [it.text.strip() for it in kept if isinstance(it, SendMessage)] == ["it is Monday", "hello"]
            lease.release()

    asyncio.run(asyncio.wait_for(story(), 90))
