"""A real `curtainwall serve`: answers by file, and hooks that hear of the beginning and the end of its sessions, each once."""

import json
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

from curtainwall.model import ApprovalAnswered, MessageAccepted, StreamId, TurnStarted, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.hooking import shell, told
from tests.support.ports import free_port
from tests.support.program import Program, Running
from tests.support.serving import Home, health, script_of
from tests.support.stopped import stopped_owner
from tests.support.waiting import until

READ = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}


class Served:
    """A home with answers by file, and hooks that write down what they hear."""

    def __init__(self, program: Program, more: str = "", hook: str = "") -> None:
        self.program, self.port = program, free_port()
        self.heard = program.scratch / "told"
        line = shell(program.scratch / "hook", f"{{ cat; echo; }} >> {self.heard}\n{hook}")
        hooks = "".join(
            f'[[hooks.{event}]]\nhooks = [{{type = "command", command = "exec {line}"}}]\n' for event in ("SessionStart", "SessionEnd")
        )
        program.configure(
            f"[approvals]\nfiles = true\n[serve]\nstatus-port = {self.port}\n[web]\nenabled = false\n"
            f'[channels.web]\noperators = ["ann"]\n{hooks}{more}'
        )
        self.home = Home(program.environ)

    def start(self) -> Running:
        running = self.program.begin("serve")
        until(lambda: health(self.port).get("pid") == running.child.pid, 60)
        return running

    def script(self, *lines: dict[str, object]) -> str:
        return script_of(self.program.scratch / f"script-{len(list(self.program.scratch.iterdir()))}", lines)

    def files(self, session: str) -> Path:
        return self.program.home / "sessions" / session / "escalations"

    def request(self, session: str) -> Path:
        return until(lambda: next(self.files(session).glob("request-*.json"), None), 60)

    def respond(self, request: Path, said: str = '{"decision": "approved"}') -> None:
        draft = self.program.scratch / "draft"
        draft.write_text(said)
        draft.rename(request.with_name(request.name.replace("request", "response")))

    def status(self, session: str) -> str:
        return next(row["status"] for row in self.program.sessions() if row["id"] == session)

    def is_over(self, session: str) -> bool:
        """Tell whether what was said was worked on; a session is ready before that, too."""
        return any(row["status"] == "ready" and row["turns"] for row in self.program.sessions() if row["id"] == session)

    def events(self) -> list[tuple[str, str]]:
        return [(it["session_id"], it["hook_event_name"]) for it in told(self.heard)] if self.heard.exists() else []


@covers("serve.answers-by-file")
def test_an_answer_by_file_counts_in_a_served_session_also_where_it_came_while_nobody_served(program: Program) -> None:
    served = Served(program)
    running = served.start()
    first, second, other = served.home.born(*(served.script(READ, {"text": "over"}) for _ in range(3)))
    request = served.request(first)
    assert json.loads(request.read_text())["toolName"] == "read_file"
    served.respond(request)
    until(lambda: served.status(first) == "ready", 60)
    until(lambda: list(served.files(first).iterdir()) == [])
    served.request(other)
    request = served.request(second)
    running.child.send_signal(signal.SIGKILL)
    running.code()
    served.respond(request)
    running = served.start()
    until(lambda: served.status(second) == "ready", 60)
    (answered,) = [event for event in served.home.events(second) if isinstance(event, ApprovalAnswered)]
    assert (answered.granted, answered.by.name) == (True, "response file")
    assert served.status(other) == "waiting", "an answer is for one ask"
    served.respond(served.request(other), '{"decision": "approved", "really": true}')
    until(lambda: served.status(other) == "ready", 60)
    assert [event.granted for event in served.home.events(other) if isinstance(event, ApprovalAnswered)] == [False]
    running.interrupt()
    assert running.code() == 0


@covers("serve.answers-by-file")
def test_a_session_whose_owner_is_stopped_keeps_no_other_from_being_answered_by_file(program: Program) -> None:
    served = Served(program)
    running = served.start()
    stuck, other = served.home.born(*(served.script(READ, {"text": "over"}) for _ in range(2)))
    requests = served.request(stuck), served.request(other)
    with stopped_owner(program.home, session_stream(stuck)):
        served.respond(requests[0])
        until(lambda: waiting_commands(program.home, session_stream(stuck)) == 1, 60)
        served.respond(requests[1])
        until(lambda: served.status(other) == "ready", 60)
        assert served.status(stuck) == "waiting"
    until(lambda: served.status(stuck) == "ready", 60)
    for session in (stuck, other):
        assert [event.granted for event in served.home.events(session) if isinstance(event, ApprovalAnswered)] == [True]
    running.interrupt()
    assert running.code() == 0


def waiting_commands(home: Path, stream: StreamId) -> int:
    """Return how many commands wait for a session's owner."""
    with closing(SqliteStore.open(home, SystemClock())) as store:
        return len(store.inbox.waiting(stream))


@covers("serve.answers-by-file", "hooks.start-and-end-once")
def test_a_job_that_is_run_by_hand_beside_the_service_is_answered_once_and_its_hooks_hear_of_it_once(program: Program) -> None:
    script = script_of(program.scratch / "said", [READ, {"text": "over"}])
    job = f'[cron.nightly]\nschedule = "0 3 1 1 *"\ninstructions = "go"\nmodel = "{script}"\n'
    served = Served(program, job)
    running = served.start()
    # Both processes look after the session's files and hear of its beginning.
    by_hand = program.begin("cron", "run", "nightly")
    session = until(lambda: [row["session"] for row in program.json("cron", "history")], 60)[0]
    served.respond(served.request(session))
    until(lambda: program.json("cron", "history")[0]["status"] == "done", 60)
    assert by_hand.code() in (0, 3)
    assert [event.granted for event in served.home.events(session) if isinstance(event, ApprovalAnswered)] == [True]
    until(lambda: (session, "SessionEnd") in served.events(), 60)
    assert served.events() == [(session, "SessionStart"), (session, "SessionEnd")]
    running.interrupt()
    assert running.code() == 0


@covers("hooks.start-and-end-once", "serve.hooks-hear-of-sessions")
def test_hooks_hear_of_served_sessions_before_they_work_and_when_they_end_once_whatever_is_killed(program: Program) -> None:
    served = Served(program, hook="echo be brief")
    (early,) = served.home.born(served.script({"text": "over"}))
    running = served.start()
    (later,) = served.home.born(served.script({"text": "over"}))
    until(lambda: served.is_over(early) and served.is_over(later), 60)
    for session in (early, later):
        said = served.home.events(session)
        turn = next(place for place, event in enumerate(said) if isinstance(event, TurnStarted))
        assert ("context", "be brief") in [(it.role, it.text) for it in said[:turn] if isinstance(it, MessageAccepted)]
    running.child.send_signal(signal.SIGKILL)
    running.code()
    served.home.close(early)
    running = served.start()
    until(lambda: (early, "SessionEnd") in served.events(), 60)
    served.home.close(later)
    until(lambda: (later, "SessionEnd") in served.events(), 60)
    running.interrupt()
    assert running.code() == 0
    running = served.start()
    running.interrupt()
    assert running.code() == 0
    assert Counter(served.events()) == Counter((session, event) for session in (early, later) for event in ("SessionStart", "SessionEnd"))


def test_a_hook_that_runs_when_the_service_is_stopped_comes_to_its_end(program: Program) -> None:
    served = Served(program, hook=f"until [ -e {program.scratch / 'go'} ]; do sleep 0.05; done\necho late words")
    (session,) = served.home.born(served.script({"text": "over"}))
    running = served.start()
    until(served.events, 60)
    running.child.send_signal(signal.SIGTERM)
    running.says("SIGTERM: parking what runs")
    (program.scratch / "go").touch()
    assert running.code() == 0
    assert "late words" in [event.text for event in served.home.events(session) if isinstance(event, MessageAccepted)]
