"""A tunnel out of a served session, and what ends it: a rule file that is edited, and a grant that another process takes back."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from curtainwall.model import CallFinished
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program, Running
from tests.support.servers import TOOL_SERVER
from tests.support.serving import Home, health, script_of
from tests.support.waiting import replace, until

pytestmark = pytest.mark.usefixtures("bubblewrap")

FREELY = '@id("free-for-tools")\npermit (principal, action == Action::"send-url", resource in Host::"localhost");\n'
NEVER = '@id("never")\nforbid (principal, action == Action::"send-url", resource in Host::"localhost");\n'


class Far:
    """A host that counts what comes through each connection, and knows when one has ended."""

    def __init__(self) -> None:
        self._ear = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._ear.getsockname()[1]
        self.heard = 0
        self.opened = 0
        self.ended = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._ear.accept()
                self.opened += 1
                threading.Thread(target=self._listen, args=(peer,), daemon=True).start()

    def _listen(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while data := peer.recv(100):
                self.heard += len(data)
        self.ended += 1

    def close(self) -> None:
        self._ear.close()

    def goes_on(self) -> None:
        """See that more comes."""
        before = self.heard
        until(lambda: self.heard > before + 3)


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


class Served:
    """A home that is served, with a tool server that holds a tunnel open."""

    def __init__(self, program: Program, far: Far) -> None:
        self.program, self.far, self.status = program, far, free_port()
        program.configure(
            f"""
            [serve]
            status-port = {self.status}
            [web]
            enabled = false
            [channels.web]
            operators = ["ann"]
            [lists]
            hosts = ["localhost:{far.port}"]
            [servers.bad]
            command = "/usr/bin/python3"
            args = ["{TOOL_SERVER}"]
            read = ["{TOOL_SERVER}"]
            network = ["localhost:{far.port}"]
            [servers.bad.tools.hold]
            effect = "inspect"
            """
        )
        self.rules = program.home / "policy" / "mine.cedar"
        self.rules.parent.mkdir(mode=0o700)
        program("servers", "annotate", "bad", "--write", "--yes")
        self.home = Home(program.environ)

    def start(self) -> Running:
        running = self.program.begin("serve")
        until(lambda: health(self.status).get("pid") == running.child.pid, 60)
        return running

    def begin(self) -> str:
        """Let a session's agent have a tunnel opened; its turn ends, and the tunnel stays."""
        lines = ({"tool": "bad.hold", "arguments": {"place": f"localhost:{self.far.port}"}}, {"text": "it is open"})
        (session,) = self.home.born(script_of(self.program.scratch / "script", lines))
        return session

    def is_open(self, session: str) -> None:
        until(lambda: any(row["id"] == session and row["status"] == "ready" and row["turns"] for row in self.program.sessions()), 60)
        assert [event.ok for event in self.home.events(session) if isinstance(event, CallFinished)][-1:] == [True]
        assert self.far.opened == 1
        self.far.goes_on()
        assert self.far.ended == 0, "the turn is over, and the tunnel is not"


@covers("serve.rules-end-tunnels")
def test_a_tunnel_ends_where_the_file_with_the_rules_is_edited_so_that_it_is_forbidden(program: Program, far: Far) -> None:
    served = Served(program, far)
    replace(served.rules, FREELY)
    session = served.begin()
    running = served.start()
    served.is_open(session)
    before = health(served.status)["policy"]
    replace(served.rules, FREELY + "\n")
    until(lambda: health(served.status)["policy"] != before)
    far.goes_on()
    assert far.ended == 0, "other rules that permit it change nothing"
    replace(served.rules, NEVER)
    until(lambda: far.ended == 1)
    running.interrupt()
    assert running.code() == 0


@covers("serve.grants-end-tunnels")
def test_a_tunnel_ends_where_another_process_takes_the_grant_back(program: Program, far: Far) -> None:
    served = Served(program, far)
    session = served.begin()
    running = served.start()
    approval = until(lambda: [row["id"] for row in program.json("approvals", "list")], 60)[0]
    program("approve", approval, "--for", "session")
    served.is_open(session)
    (grant,) = program.json("grants", "list")
    program("grants", "revoke", grant["id"])
    until(lambda: far.ended == 1)
    running.interrupt()
    assert running.code() == 0
