"""`curtainwall serve` as a real process: it takes up what was left, takes in what changes, and parks what runs."""

import json
import platform
import re
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import AnyEvent, ApprovalAsked, ApprovalExpired, CallDenied, CallFinished, CallRequested
from tests.support.covers import covers
from tests.support.far_side import FarSide, post
from tests.support.ports import free_port, is_heard
from tests.support.program import Program, Running
from tests.support.serving import Home, health, page, script_of
from tests.support.waiting import replace, until

READ = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}
FORBID = '@id("no-etc")\nforbid (principal, action == Action::"read-path", resource in Path::"/etc");\n'


class Served:
    """A home that can be served, with a port for its health."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.port = free_port()
        program.configure(self.config())
        self.home = Home(program.environ)

    def config(self, more: str = "") -> str:
        return f'[serve]\nstatus-port = {self.port}\n[web]\nenabled = false\n[channels.web]\noperators = ["ann"]\n{more}'

    def start(self, *words: str) -> Running:
        running = self.program.begin("serve", *words)
        until(lambda: health(self.port).get("pid") == running.child.pid, 60)
        return running

    def script(self, *lines: dict[str, object]) -> str:
        return script_of(self.program.scratch / f"script-{len(list(self.program.scratch.iterdir()))}", lines)

    def session(self, session: str) -> dict[str, Any]:
        return next(row for row in self.program.sessions() if row["id"] == session)

    def wait_for_turn(self, session: str) -> None:
        """Wait until a session's first turn is over; before it begins, the session is `ready` as well, so one row has to say both."""
        until(lambda: (row := self.session(session))["status"] == "ready" and row["turns"], 60)


@pytest.fixture
def served(program: Program) -> Served:
    return Served(program)


@covers("serve.takes-up", "serve.parks", "serve.single")
def test_serve_takes_up_what_was_born_on_its_channels_and_parks_it_when_told_to_stop(served: Served) -> None:
    served.program("start", "--model", served.script({"text": "hello"}), "say hello")
    (local,) = served.program.sessions()
    (session,) = served.home.born(served.script(READ, {"text": "it is read"}))
    running = served.start()
    approval = until(lambda: [row["id"] for row in served.program.json("approvals", "list")])[0]
    until(lambda: served.session(session)["status"] == "waiting")
    refused = served.program("serve", fails=True)
    assert refused.returncode == 1
    assert f"is served by process {running.child.pid} already" in refused.stderr
    running.child.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert "SIGTERM: parking what runs" in running.err
    assert served.program.open_approval() == approval
    # The answer comes while nobody serves; the next start goes on from there.
    served.program("approve", approval)
    running = served.start("--log", "json")
    until(lambda: served.session(session)["status"] == "ready")
    assert "it is read" in served.program("sessions", "history", session).stdout
    assert served.session(local["id"])["turns"] == 1
    running.interrupt()
    assert running.code() == 0
    told = [json.loads(line) for line in running.err.splitlines()]
    lines = [line["what"] for line in told]
    assert f"serving `{served.program.home}`, 1 session taken up" in lines
    assert f"health is at http://127.0.0.1:{served.port}/health, metrics beside it" in lines
    assert {"at", "level", "what"} <= told[0].keys()


@covers("serve.reload", "serve.refuses-invalid")
def test_a_change_that_is_not_valid_is_refused_with_its_line_and_what_was_valid_stays_in_force(served: Served) -> None:
    rules = served.program.home / "policy" / "mine.cedar"
    running = served.start()
    before = health(served.port)["policy"]
    replace(rules, FORBID)
    version = until(lambda: (now := health(served.port)["policy"]) != before and now)
    assert _first_verdict(served) == ["no-etc"], "the new rule holds without a restart"
    for text, words in (
        ("permit (principal, action, resource)\nfoo", "`mine.cedar`, line 1, is no Cedar"),
        (f'{FORBID}\n@id("x")\npermit (principal, action == Action::"no-such", resource);', "line 4, rule `x`"),
    ):
        replace(rules, text)
        running.says(f"(refused: .*{re.escape(words)}.*; what was valid before stays in force)")
        until(lambda: not health(served.port)["config"]["valid"])
        assert health(served.port)["status"] == "degraded"
        assert health(served.port)["services"]["reload"] == "failing"
        assert health(served.port)["policy"] == version
    assert _first_verdict(served) == ["no-etc"], "the old rules are in force"
    rules.unlink()
    until(lambda: health(served.port)["config"]["valid"])
    assert health(served.port)["policy"] == before
    served.program.configure(served.config("[lists]\nhosts = ['a.example']\nhostz = 1\n"))
    running.says("(line 9: unknown key `lists.hostz`)")
    until(lambda: not health(served.port)["config"]["valid"])
    assert "curtainwall_config_valid 0" in page(served.port, "/metrics")
    served.program.configure(served.config("[approvals]\ndeadline = '1h'\n[code]\nworkers = 3\n"))
    until(lambda: health(served.port)["config"]["waits_for_restart"] == ["code"])
    assert health(served.port)["status"] == "ok"
    (session,) = served.home.born(served.script(READ))
    asked = until(lambda: [event for event in served.home.events(session) if isinstance(event, ApprovalAsked)])[0]
    assert (asked.deadline, asked.policy) == (asked.at + 3_600_000, before)
    assert running.says(r"in force from now on: tables (.+)") == "approvals", "what waits for the next start is not in force"
    served.program.configure(served.config("[approvals]\ndeadline = '1h'\n"))
    until(lambda: health(served.port)["config"]["waits_for_restart"] == [])
    running.interrupt()
    assert running.code() == 0


@covers("approver.waits-for-the-next-start")
def test_another_approver_waits_for_the_next_start_and_is_not_told_as_in_force(served: Served) -> None:
    asked = served.program.scratch / "asked"
    for name in ("one", "two"):
        program = served.program.scratch / name
        program.write_text(f'#!/bin/sh\necho {name} >> {asked}\necho \'{{"decision": "approved"}}\'\n')
        program.chmod(0o755)
    one, two = (f"[approvals]\napprover = ['{served.program.scratch / name}']\n" for name in ("one", "two"))
    running = served.start()

    def waits(config: str, *keys: str) -> None:
        served.program.configure(served.config(config))
        until(lambda: health(served.port)["config"]["waits_for_restart"] == list(keys), 60)

    def is_read(*, by_human: bool = False) -> None:
        (session,) = served.home.born(served.script(READ, {"text": "over"}))
        if by_human:
            served.program("approve", until(lambda: [row["id"] for row in served.program.json("approvals", "list")], 60)[0])
        served.wait_for_turn(session)

    waits(one, "approvals.approver")
    assert running.says(r"restart `curtainwall serve` for: (.+)") == "approvals.approver"
    assert "in force from now on: tables" not in running.err
    is_read(by_human=True)
    running.interrupt()
    assert running.code() == 0
    running = served.start()
    assert not asked.exists()
    is_read()
    waits(two, "approvals.approver")
    is_read(by_human=True)
    waits(one)
    is_read()
    served.program.configure(served.config())
    running.says(r"in force from now on: tables approvals\.approver[^\n]*\n(?:.*\n)*.*in force from now on: tables approvals\.approver")
    is_read(by_human=True)
    assert asked.read_text() == "one\none\n"
    running.interrupt()
    assert running.code() == 0


def _first_verdict(served: Served) -> list[str]:
    (session,) = served.home.born(served.script(READ, {"text": "over"}))
    denied = until(lambda: [event for event in served.home.events(session) if isinstance(event, CallDenied)], 60)
    return list(denied[0].verdict.because)


@covers("config.unserved-targets-are-refused")
def test_a_place_for_asks_that_nothing_serves_does_not_come_into_force(served: Served) -> None:
    running = served.start()
    served.program.configure(served.config("[approvals]\ntargets = ['matrix:!a:x']\n"))
    running.says("`approvals.targets` names `matrix:!a:x`, but `matrix.homeserver` is not set")
    running.interrupt()
    assert running.code() == 0


@covers("serve.metrics")
def test_health_and_metrics_are_for_this_machine_and_name_no_session(served: Served) -> None:
    running = served.start()
    (session,) = served.home.born(served.script(READ))
    until(lambda: health(served.port)["asks"]["open"] == 1)
    until(lambda: 'curtainwall_sessions{status="waiting"} 1' in page(served.port, "/metrics"))
    until(lambda: health(served.port)["services"].get("reload") == "ok")
    told = page(served.port, "/metrics")
    assert "curtainwall_asks_open 1" in told
    assert 'curtainwall_service_up{service="reload"} 1' in told
    assert session not in told + page(served.port, "/health")
    listening = Path(f"/proc/{running.child.pid}/net/tcp").read_text()
    assert f"0100007F:{served.port:04X}" in listening
    running.interrupt()
    assert running.code() == 0


@covers("serve.health-quotes-nothing")
def test_whoever_asks_without_signing_in_is_told_that_something_is_wrong_and_never_what(served: Served) -> None:
    running = served.start()
    served.program.configure(served.config('[notify]\nurl = "https://ann:very-secret@"\n'))
    running.says("(refused: .*`notify.url`)")
    until(lambda: not health(served.port)["config"]["valid"])
    served.program.configure(served.config('[cron.very-secret]\nschedule = "very-secret"\ninstructions = "go"\n'))
    running.says("(refused: .*`cron.very-secret.schedule`)")
    for path in ("/health", "/metrics", "/very-secret", "/sign-in"):
        assert "secret" not in page(served.port, path)
    assert "very-secret" in served.program("doctor", fails=True).stdout
    running.interrupt()
    assert running.code() == 0


@covers("serve.reload")
def test_a_hangup_has_the_files_read_again_and_a_service_is_made_anew_with_its_table(served: Served) -> None:
    secret, hooks, other = served.program.scratch / "secret", free_port(), free_port()
    secret.write_text("a secret of more than sixteen letters")

    def listening(port: int, name: Path) -> str:
        return served.config(f'[webhooks]\nlisten = "127.0.0.1:{port}"\n[webhooks.hooks.ci]\nsecret-file = "{name}"\nprompt = "go"\n')

    served.program.configure(listening(hooks, secret))
    running = served.start()
    until(lambda: health(served.port)["services"].get("webhooks") == "ok")
    served.program.configure(listening(other, secret))
    running.child.send_signal(signal.SIGHUP)
    until(lambda: is_heard(other) and not is_heard(hooks))
    running.says("webhook: made anew, its configuration has changed")
    # A table that is valid and cannot be served takes nothing else along, and health says what is missing.
    served.program.configure(listening(other, served.program.scratch / "nowhere"))
    running.child.send_signal(signal.SIGHUP)
    running.says("(the secret of webhook `ci` cannot be read)")
    until(lambda: health(served.port)["services"].get("webhook") == "failing")
    assert health(served.port)["status"] == "degraded"
    assert not is_heard(other)
    served.program.configure(listening(other, secret))
    until(lambda: is_heard(other) and health(served.port)["status"] == "ok")
    running.interrupt()
    assert running.code() == 0


@covers("serve.parks")
def test_a_second_signal_ends_it_at_once_and_the_next_start_goes_on(served: Served) -> None:
    far = FarSide()
    try:
        (session,) = served.home.born(served.script(post(f"{far.url}/slow"), {"text": "it is sent"}))
        running = served.start()
        served.program("approve", until(lambda: [row["id"] for row in served.program.json("approvals", "list")])[0])
        until(lambda: far.hits["/slow"])
        running.child.send_signal(signal.SIGTERM)
        running.says("SIGTERM: parking what runs; again ends at once")
        with suppress(ProcessLookupError):
            running.child.send_signal(signal.SIGTERM)
        assert running.code() in (0, 1)
    finally:
        far.close()
    running = served.start()
    until(lambda: served.session(session)["status"] == "ready", 60)
    assert far.hits["/slow"] == 1, "what may have run is not run again"
    running.interrupt()
    assert running.code() == 0


SLOW = "echo begun > begun; until [ -e go ]; do sleep 0.05; done; echo one >> log"


@covers("serve.parks")
def test_a_call_that_runs_comes_to_its_end_and_the_next_one_begins_after_the_next_start(served: Served) -> None:
    served.program.configure(served.config().replace("[serve]", '[serve]\ngrace = "2m"'))
    two = f'await shell.run(command="{SLOW}")\nawait shell.run(command="echo two >> log")'
    (session,) = served.home.born(served.script({"code": two}, {"text": "both ran"}))
    running = served.start()
    workspace = Path(served.session(session)["workspace"])
    until((workspace / "begun").exists)
    running.child.send_signal(signal.SIGTERM)
    running.says("SIGTERM: parking what runs; again ends at once")
    (workspace / "go").touch()
    assert running.code() == 0
    events = served.home.events(session)
    assert [event.ok for event in events if isinstance(event, CallFinished)] == [True]
    assert len([event for event in events if isinstance(event, CallRequested)]) == 1
    running = served.start()
    until(lambda: served.session(session)["status"] == "ready", 60)
    assert (workspace / "log").read_text() == "one\ntwo\n"
    running.interrupt()
    assert running.code() == 0


@covers("approvals.deadline-with-nobody-connected")
def test_asks_expire_in_time_while_nobody_is_connected_also_those_of_a_terminal_that_has_ended(served: Served) -> None:
    served.program.configure(served.config("[approvals]\ndeadline = '5s'\n"))
    model = served.script(READ, {"text": "nobody let me"})
    (born,) = served.home.born(model)
    assert served.program("start", "--model", model, "--on-ask", "park", "go", fails=True).returncode == 3
    (before,) = (row["id"] for row in served.program.sessions() if row["id"] != born)
    running = served.start()
    until(lambda: any(isinstance(event, ApprovalAsked) for event in served.home.events(born)))
    assert served.program("start", "--model", model, "--on-ask", "park", "go", fails=True).returncode == 3
    (meanwhile,) = (row["id"] for row in served.program.sessions() if row["id"] not in (born, before))
    for session in (born, before, meanwhile):
        events = until(lambda session=session: _with_expiry(served.home.events(session)))
        (asked,) = (event for event in events if isinstance(event, ApprovalAsked))
        (expired,) = (event for event in events if isinstance(event, ApprovalExpired))
        assert asked.deadline is not None
        assert expired.at >= asked.deadline
    assert served.program.json("approvals", "list") == []
    until(lambda: served.session(born)["status"] == "ready")
    assert served.session(meanwhile)["status"] == "waiting", "whoever sits at the terminal goes on with it"
    assert "nobody let me" in served.program("start", "--resume", meanwhile).stdout
    running.interrupt()
    assert running.code() == 0


def _with_expiry(events: list[AnyEvent]) -> list[AnyEvent]:
    return events if any(isinstance(event, ApprovalExpired) for event in events) else []


def _heaps_of_threads(pid: int) -> int:
    """Return how many heaps a process has for its threads: glibc reserves 64 MiB of addresses for each and uses the beginning of them."""
    size, found = 64 * 1024 * 1024, 0
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    spans = [(*(int(end, 16) for end in line[0].split("-")), line[1]) for line in lines]
    for (begin, used, mode), (rest, end, reserved) in pairwise(spans):
        found += begin % size == 0 and used == rest and end - begin == size and (mode, reserved) == ("rw-p", "---p")
    return found


@covers("serve.memory-stays-flat")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this is about the allocator of glibc")
def test_the_threads_of_a_service_share_a_heap(served: Served) -> None:
    running = served.start()
    pid = running.child.pid
    until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) > 3)
    assert _heaps_of_threads(pid) == 1
