"""A session whose owner is stopped: whoever wants something there, on whatever way, is told, and all others go on."""

import asyncio
import hashlib
import hmac
import json
import signal
import socket
from contextlib import AsyncExitStack, closing
from http.client import HTTPConnection
from typing import Any

import pytest

from curtainwall.channels.cron import Firing, place_of
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.library.context import open_session
from curtainwall.model import MessageAccepted, OpeningFailed, Route, SessionId, SessionRenamed, Undecided, Who, session_stream
from curtainwall.operations.open import ChannelPlaces, SessionSpec
from curtainwall.serve.deliveries import place_of as place_of_delivery
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.serving import Home, health
from tests.support.stopped import stopped_owner
from tests.support.waiting import until

OLGA = Who(name="olga", channel="matrix")
ROOM = Route(channel="matrix", reference="!room")
KEPT, NOTHING = "this is kept and counts as soon as it does", "nothing was begun, so try again when it goes on or has ended"
SECRET, DUE = "a secret of more than sixteen letters", 1_700_000_000_000


@covers("session.nobody-waits-for-a-stopped-owner")
def test_whoever_wants_something_in_a_session_hears_who_holds_it_and_what_is_kept(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CURTAINWALL_HOME", "HOME"):
        monkeypatch.setenv(name, program.environ[name])
    home = Home(program.environ)
    (session,) = home.born("demo")

    async def in_a_program() -> str:
        with pytest.raises(OpeningFailed) as told:
            async with open_session(resume=session):
                pass
        return str(told.value)

    async def at_a_place() -> str:
        async with open_gate(load_setup()) as wired:
            places = ChannelPlaces(wired.sessions, lambda _: None, lambda place: SessionSpec("demo", routes=(place,)))
            with pytest.raises(Undecided) as told:
                await places.move(ROOM, session, OLGA, None)
            assert places.session_at(ROOM) == session, "where a place leads needs no decision of the session's owner"
            return str(told.value)

    async def both() -> list[str]:
        return await asyncio.gather(in_a_program(), at_a_place())

    with stopped_owner(program.home, session_stream(session)) as owner:
        wanted = {
            ("start", "--resume", session, "say hello"): NOTHING,
            ("sessions", "rename", session, "another"): KEPT,
            ("sessions", "budget", session, "tokens", "2m"): KEPT,
        }
        begun = [(program.begin(*words), meanwhile) for words, meanwhile in wanted.items()]
        opened, moved = home.run(both())
        holds = f"process {owner} holds session `{session}` and has not decided yet; "
        remedy = f" (if it was stopped, `kill -CONT {owner}` lets it go on)"
        assert opened == f"the session could not be opened: {holds}{NOTHING}{remedy}"
        assert moved.startswith(f"{holds}this place leads there all the same")
        for running, meanwhile in begun:
            assert running.code() == 1
            assert running.err == f"curtainwall: {holds}{meanwhile}{remedy}\n"
    program("start", "--resume", session, "say hello")
    told = home.events(session)
    assert [event.name for event in told if isinstance(event, SessionRenamed)] == ["another"], "what was kept counts, once"
    assert [event.text for event in told if isinstance(event, MessageAccepted)] == ["go", "say hello"], "what was not sent was not kept"


@covers("session.nobody-waits-for-a-stopped-owner")
def test_whoever_follows_a_process_that_is_stopped_later_hears_of_it_once_and_can_leave(program: Program) -> None:
    first = program.begin("start", "--model", "demo", "run sleep 600")
    until(lambda: [row["status"] for row in program.sessions()] == ["working"])
    (session,) = (SessionId(row["id"]) for row in program.sessions())
    second = program.begin("start", "--resume", session, "say hello")
    home = Home(program.environ)
    until(lambda: len(accepted(home, session)) == 2)
    first.child.send_signal(signal.SIGSTOP)
    silent = f"process {first.child.pid} works on this session and has said nothing for 20 seconds; what you sent is kept"
    until(lambda: silent in second.err, 90)
    assert f"`kill -CONT {first.child.pid}` lets it go on; Ctrl-C, twice during a turn, leaves" in second.err
    # The turn that runs is the other one's, so there is nothing of ours to stop first.
    second.interrupt()
    assert second.code() == 130
    assert second.err.count(silent) == 1
    first.kill_everything()
    assert "may have run or not" in program("start", "--resume", session).stdout
    assert "hello" in program("start", "--resume", session).stdout
    assert accepted(home, session) == ["run sleep 600", "say hello"]


def accepted(home: Home, session: SessionId) -> list[str]:
    return [event.text for event in home.events(session) if isinstance(event, MessageAccepted)]


class Served:
    """A house with jobs and webhooks whose sessions were promised, and not opened, when their process died."""

    def __init__(self, program: Program) -> None:
        self.program, self.status_port, self.port = program, free_port(), free_port()
        jobs = "".join(f'[cron.{job}]\nschedule = "0 3 1 1 *"\ninstructions = "say hello"\n' for job in ("held", "other"))
        program.configure(
            f'[model]\nname = "demo"\n[serve]\nstatus-port = {self.status_port}\n[web]\nenabled = false\n{jobs}'
            f'[webhooks]\nlisten = "127.0.0.1:{self.port}"\n[webhooks.hooks.ci]\nsecret-env = "CI_SECRET"\nprompt = "say hello"\n'
        )
        self.home = Home(program.environ)

    def promise(self, *places: Route) -> list[SessionId]:
        async def bound() -> list[SessionId]:
            async with AsyncExitStack() as stack:
                house = (await self.home.open(stack)).registry
                return [await house.bind(place, SessionId(house.mint()), Who(name="x")) for place in places]

        return self.home.run(bound())

    def deliver(self, body: bytes) -> tuple[int, dict[str, Any]]:
        proof = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=90)) as line:
            line.request("POST", "/hooks/ci", body, {"X-Hub-Signature-256": f"sha256={proof}", "Content-Type": "application/json"})
            answer = line.getresponse()
            return answer.status, json.loads(answer.read())

    def status(self, job: str) -> str:
        (row,) = self.program.json("cron", "history", job)
        return row["status"]


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@covers("session.nobody-waits-for-a-stopped-owner")
def test_jobs_and_webhooks_whose_sessions_are_held_wait_for_that_while_all_others_go_on(program: Program) -> None:
    served = Served(program)
    body, firings = b'{"which": "held"}', [Firing(job, DUE) for job in ("held", "other")]
    delivery = place_of_delivery("ci", hashlib.sha256(body).hexdigest())
    job, _, hook = served.promise(*map(place_of, firings), delivery)
    with stopped_owner(program.home, session_stream(job)) as owner, stopped_owner(program.home, session_stream(hook)):
        running = program.begin("serve", CI_SECRET=SECRET)
        until(lambda: is_listening(served.port))
        assert served.deliver(body) == (503, {"error": "the session of this delivery is in use and does not answer; deliver it again"})
        assert served.deliver(b'{"which": "other"}')[0] == 202
        until(lambda: served.status("other") == "done", pause=0.5)
        running.says(f"(cron: held: process {owner} holds the session of a firing)")
        assert served.status("held") != "skipped"
    until(lambda: served.status("held") == "done", pause=0.5)
    status, told = served.deliver(body)
    assert (status, told["session"]) == (202, hook)
    until(lambda: health(served.status_port)["services"]["cron"] == "ok")
    assert [event.text for event in served.home.events(job) if isinstance(event, MessageAccepted)] == ["say hello"]
    running.interrupt()
    assert running.code() == 0
