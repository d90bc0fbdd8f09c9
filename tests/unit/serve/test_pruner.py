"""Old sessions are deleted if the configuration says so, and never one with open work or that somebody comes back to."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    SYSTEM,
    AskCompaction,
    CallRequest,
    CloseSession,
    CommandRefused,
    MessageId,
    Route,
    SendMessage,
    SessionId,
    SessionQuery,
)
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.serve.logs import Logbook
from curtainwall.serve.pruner import Pruner
from tests.support.covers import covers
from tests.support.in_process import Places

Prepare = Callable[[GatedSessions, SessionId], Awaitable[object]]


async def nothing(_wired: GatedSessions, _session: SessionId) -> None:
    pass


async def asks(wired: GatedSessions, session: SessionId) -> None:
    request = CallRequest(tool="filesystem.read_file", arguments={"path": "/etc/hostname"})
    await wired.gate.request(session, request, wait=False)


async def queues(wired: GatedSessions, session: SessionId) -> None:
    await wired.registry.send(session, SendMessage(by=local_user(), message=MessageId("m"), text="later"))


async def is_led_to(wired: GatedSessions, session: SessionId) -> None:
    await wired.registry.bind(Route(channel="matrix", reference="!room:example.org"), session, SYSTEM)


async def fired(wired: GatedSessions, session: SessionId) -> None:
    await wired.registry.bind(Route(channel="cron", reference="nightly@2026-01-01T03:00:00+00:00"), session, SYSTEM)


async def closes(wired: GatedSessions, session: SessionId) -> None:
    await wired.registry.send(session, CloseSession(by=SYSTEM, reason="done"))


@covers("sessions.pruned-by-age")
@pytest.mark.parametrize(
    ("prepare", "goes"), [(nothing, True), (closes, True), (fired, True), (asks, False), (queues, False), (is_led_to, False)]
)
def test_an_old_session_goes_unless_something_is_open_in_it_or_leads_to_it(places: Places, prepare: Prepare, *, goes: bool) -> None:
    del places

    async def story() -> None:
        async with open_gate(load_setup(), parts=Parts()) as wired:
            session = await open_new(wired.sessions, SessionSpec("demo"), local_user())
            await prepare(wired, session)
            book = Logbook()
            await Pruner(wired.sessions, 3_600_000, book).prune()
            assert wired.store.index.sessions(SessionQuery()), "it is not old yet"
            await Pruner(wired.sessions, -3_600_000, book).prune()
            assert bool(wired.store.index.sessions(SessionQuery())) is not goes
            assert wired.setup.home.session(session).root.exists() is not goes

    asyncio.run(story())


def test_a_session_in_which_work_begins_at_the_last_moment_is_kept(places: Places) -> None:
    del places

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session = await open_new(wired.sessions, SessionSpec("demo"), local_user())
            await wired.registry.send(session, AskCompaction(by=SYSTEM, instructions=""))
            with pytest.raises(CommandRefused, match="has open work"):
                await wired.registry.delete(session, SYSTEM, at_rest=True)

    asyncio.run(story())
