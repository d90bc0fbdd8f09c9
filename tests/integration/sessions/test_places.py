"""Places of a real home: one session each, whoever comes first, and another once that one has ended."""

import asyncio

import pytest

from curtainwall import serving
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import CloseSession, Opening, Route, RouteAdded, SessionId, SessionQuery, Who, session_stream
from curtainwall.operations.open import ChannelPlaces, SessionSpec
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.program import Program

ROOM = Route(channel="matrix", reference="!room")
OLGA = Who(name="olga", channel="matrix")


@covers("places.lead")
def test_whoever_first_talks_at_a_place_opens_its_session_and_one_that_ended_makes_room_for_another(program: Program) -> None:
    program.configure(
        '[channels.matrix]\noperators = ["olga"]\n[approvals]\ntargets = ["web", "matrix:!ops:server"]\n'
        '[matrix]\nhomeserver = "https://server"\nuser = "@wall:server"\ntoken-env = "T"\n'
    )

    async def check() -> None:
        async with open_gate(load_setup(environ=program.environ)) as wired:
            attended: list[SessionId] = []
            places = ChannelPlaces(wired.sessions, attended.append, lambda place: SessionSpec("demo", routes=(place,)))
            assert places.session_at(ROOM) is None
            led = await asyncio.gather(*(places.open_at(ROOM, OLGA) for _ in range(5)))
            assert len(set(led)) == 1
            assert set(attended) == {led[0]}
            (row,) = wired.store.index.sessions(SessionQuery())
            assert (row.session, row.channel, row.status) == (led[0], "matrix", "ready")
            told = [recorded.event for recorded in wired.registry.feed.read(session_stream(led[0]))]
            shown = [event.route for event in told if isinstance(event, RouteAdded)]
            assert shown == [ROOM, Route(channel="web", reference=""), Route(channel="matrix", reference="!ops:server")]
            await wired.registry.send(led[0], CloseSession(by=OLGA, reason="done"))
            another = await places.open_at(ROOM, OLGA)
            assert another != led[0]
            assert places.session_at(ROOM) == another
            assert places.may_control(OLGA)
            assert not places.may_control(Who(name="eve", channel="matrix"))

    run(check())


MINE = """
[sessions]
agent = "mine"
[agents.mine]
image = "my/image:1"
command = ["my-agent"]
model = "openai:gpt-5.1"
providers = { openai = "OPENAI_API_KEY" }
"""


@covers("sessions.the-usual-agent")
def test_the_agent_of_the_configuration_works_wherever_nobody_names_another(program: Program) -> None:
    program.configure(MINE)

    async def check() -> None:
        async with serving(load_setup(environ=program.environ)) as served:
            wanted = served.spec_at(ROOM)
            assert (wanted.agent, wanted.model, wanted.routes) == ("mine", "openai:gpt-5.1", (ROOM,))
            opened = await served.work.desk.open(Opening(how="new"), Who(name="ann"))
            view = served.work.desk.view(opened.session)
            assert (view.agent, view.model) == ("mine", "openai:gpt-5.1")

    run(check())
    refused = program("start", "list the files", fails=True)
    assert refused.returncode == 1
    assert len(program.sessions()) == 1
    program("start", "--agent", "builtin", "list the files")
    assert [row["agent"] for row in program.sessions()] == ["builtin", "mine"]


@covers("sessions.the-usual-agent")
@pytest.mark.parametrize(
    "table",
    [
        "[sessions]",
        '[cron.x]\nschedule = "0 3 * * *"\ninstructions = "go"',
        '[teams.x]\nproject = "/srv/x"',
        '[webhooks.hooks.x]\nsecret-env = "S"\nprompt = "go"',
    ],
)
def test_an_agent_that_there_is_not_is_an_error_of_the_configuration(program: Program, table: str) -> None:
    program.configure(f'{table}\nagent = "claud"\n')
    refused = program("config", "show", fails=True)
    assert refused.returncode == 1
    assert ".agent` names `claud`, which is no agent here; there are: builtin, claude-local, claude-code" in refused.stderr
