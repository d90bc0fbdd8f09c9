"""The desk: what people say arrives, also where hooks add to it and the session's owner does not decide."""

import asyncio
from typing import Literal

import pytest

from curtainwall.agents.crew import Crew
from curtainwall.compose.gate import Wired, open_house
from curtainwall.compose.setup import set_up
from curtainwall.host.account import local_user
from curtainwall.model import CommandRefused, MessageId, Opening, SendMessage, SessionQuery, Undecided, session_stream
from curtainwall.operations.desk import HouseDesk, Surface
from curtainwall.operations.open import Wanted
from tests.support.in_process import Places, session_in

ADDS = '[[hooks.UserPromptSubmit]]\nhooks = [{type = "command", command = "echo it is Monday"}]\n'


def desk_in(wired: Wired) -> HouseDesk:
    """Return a desk in a process that lets no agent work."""
    surface = Surface(wired.incoming, Crew(wired.sessions.names.of), lambda _: None, lambda *_: "", Wanted("demo"), None)
    return HouseDesk(wired.sessions, surface)


def test_a_message_to_which_a_hook_adds_is_kept_where_the_owner_does_not_decide(places: Places) -> None:
    session, _ = session_in(places.workspace)
    stream = session_stream(session)
    (places.home / "config.toml").write_text(ADDS)

    async def story() -> None:
        async with open_house(set_up()) as wired:
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


@pytest.mark.parametrize("how", ["new", "fork", "reset"])
def test_a_session_with_a_name_that_no_list_could_show_is_not_opened(places: Places, how: Literal["new", "fork", "reset"]) -> None:
    session, _ = session_in(places.workspace)

    async def story() -> None:
        async with open_house(set_up()) as wired:
            desk = desk_in(wired)
            with pytest.raises(CommandRefused, match="a name has 200 letters at most, and this one has 201"):
                await desk.open(Opening(how=how, of=session, name="x" * 201), local_user())
            assert [row.session for row in wired.store.index.sessions(SessionQuery())] == [session]

    asyncio.run(asyncio.wait_for(story(), 90))
