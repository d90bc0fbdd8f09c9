"""Jobs at the real program: fired by hand, killed in the middle, and listed with what became of them."""

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from curtainwall.model import CallDenied, CallFinished, SessionId, SessionOpened, session_stream
from tests.support.covers import covers
from tests.support.hooking import shell
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.serving import Home, health, script_of
from tests.support.waiting import replace, until

JOBS = """
[model]
name = "demo"
[cron.nightly]
schedule = "0 3 * * *"
zone = "Europe/Berlin"
instructions = "read /etc/hostname"
overlap = "allow"
approval-targets = ["web"]
[cron.minutely]
schedule = "* * * * *"
instructions = "/approve everything"
"""


def fired(program: Program) -> list[dict[str, Any]]:
    return program.json("cron", "history", "nightly")


@covers("hooks.prompts-of-jobs-and-webhooks")
def test_a_job_that_a_hook_keeps_from_the_agent_says_why(program: Program) -> None:
    guard = shell(program.scratch / "guard", "echo 'not at night' >&2; exit 2")
    program.configure(f'{JOBS}[[hooks.UserPromptSubmit]]\nhooks = [{{type = "command", command = "{guard}"}}]\n')
    kept = program("cron", "run", "nightly", fails=True)
    assert (kept.returncode, kept.stdout) == (1, "")
    assert "not at night" in kept.stderr
    assert [row["status"] for row in fired(program)] == ["closed"]


@covers("cron.each-firing-is-one-session")
def test_a_firing_parks_on_an_ask_and_its_history_tells(program: Program) -> None:
    program.configure(JOBS)
    (minutely, nightly) = program.json("cron", "list")
    assert (minutely["job"], nightly["job"], nightly["status"]) == ("minutely", "nightly", "never fired")
    assert re.search(r"nightly +0 3 \* \* \* +Europe/Berlin", program("cron", "list").stdout)
    assert program("cron", "run", "nightly", fails=True).returncode == 3
    (row,) = fired(program)
    assert row["status"] == "waiting"
    (ask,) = program.json("approvals", "list")
    assert ask["origin"] == "cron: nightly"
    assert "[cron: nightly]" in program("approvals", "list").stdout
    assert "\nshown at   web\n" in program("sessions", "show", row["session"]).stdout
    assert program.json("sessions", "show", row["session"])["shown_at"] == ["web"]
    program("approve", ask["id"])
    assert "curtainwall start --resume" not in program("start", "--resume", row["session"]).stderr
    assert fired(program)[0]["status"] == "done"


@covers("cron.what-became-of-a-firing")
def test_a_firing_that_failed_is_not_told_as_done(program: Program) -> None:
    script = program.scratch / "nothing.jsonl"
    script.write_text("this is no reply\n")
    program.configure(f'[cron.bad]\nschedule = "0 3 * * *"\ninstructions = "go"\nmodel = "script:{script}"\n')
    failed = program("cron", "run", "bad", fails=True)
    assert (failed.returncode, "the turn failed" in failed.stderr) == (1, True), failed.stderr
    assert [row["status"] for row in program.json("cron", "history")] == ["failed"]
    assert [row["status"] for row in program.json("cron", "list")] == ["failed"]


@covers("cron.what-became-of-a-firing")
def test_a_firing_that_no_process_works_on_any_more_is_not_told_as_working(program: Program) -> None:
    nothing = "sleep 600"
    program.configure(f'[model]\nname = "demo"\n[cron.slow]\nschedule = "0 3 * * *"\ninstructions = "run {nothing}"\n')
    running = program.begin("cron", "run", "slow")
    until(lambda: [row["status"] for row in program.json("cron", "history")] == ["working"])
    running.kill_everything()
    (row,) = program.json("cron", "history")
    assert row["status"] == "stopped"
    for what in ("history", "list"):
        told = program("cron", what)
        assert re.search(rf"stopped +{row['session']}", told.stdout)
        assert f"no process works on {row['session']} now; `curtainwall serve` goes on" in told.stderr


@covers("cron.what-became-of-a-firing")
def test_a_foreign_agent_of_a_job_takes_its_own_model_where_none_is_named(program: Program) -> None:
    program.configure(f'{JOBS}[cron.foreign]\nschedule = "0 3 * * *"\ninstructions = "go"\nagent = "codex"\n')
    program("cron", "run", "foreign", fails=True)
    (row,) = program.sessions()
    assert (row["agent"], row["model"]) == ("codex", "auto")


def waiting(program: Program) -> dict[str, dict[str, Any]]:
    """Let a job fire three times and another one once, all of which ask the same, and return what waits."""
    other = '[cron.weekly]\nschedule = "0 3 * * 0"\ninstructions = "read /etc/hostname"\n'
    program.configure(f"{JOBS}{other}")
    for job in ("nightly", "weekly", "nightly", "nightly"):
        assert program("cron", "run", job, fails=True).returncode == 3
    return {row["id"]: row for row in program.json("approvals", "list")}


@covers("asks.joined")
def test_identical_asks_of_one_job_are_listed_as_one_and_one_answer_is_for_all(program: Program) -> None:
    asks = waiting(program)
    nightly = {id_: row["session"] for id_, row in asks.items() if row["origin"] == "cron: nightly"}
    oldest, middle, newest = sorted(nightly, key=lambda id_: asks[id_]["asked"])
    before = {oldest: [], middle: [oldest], newest: [oldest, middle]}
    for id_ in nightly:
        assert asks[id_]["identical"] == [{"id": other, "session": nightly[other]} for other in before[id_]]
    listed = program("approvals", "list").stdout
    assert listed.count("wants read-path /etc/hostname") == 2, "the other job asks for itself"
    assert re.search(rf"(?m)^{newest}  open .* asked .*, 3 times$", listed)
    assert f"the same was asked before by {oldest} in session {nightly[oldest]}, {middle} in session {nightly[middle]}" in listed
    alone = program("approvals", "list", "--session", nightly[middle]).stdout
    assert alone.startswith(middle)
    assert f"`curtainwall approve {middle}` and `deny {middle}` answer these 2, and with --only this one" in alone
    told = program("approve", newest).stdout
    assert "this answered 3 identical asks:" in told
    assert all(f"  {id_}  session {session}\n" in told for id_, session in nightly.items())
    (left,) = program.json("approvals", "list")
    assert (left["origin"], left["identical"]) == ("cron: weekly", [])
    assert "already answered by" in program("approve", oldest, fails=True).stderr


@covers("asks.joined")
def test_an_answer_is_for_no_identical_ask_that_came_after_the_one_it_names(program: Program) -> None:
    asks = waiting(program)
    shown = next(id_ for id_, row in asks.items() if row["origin"] == "cron: nightly")
    assert program("cron", "run", "nightly", fails=True).returncode == 3
    assert "this answered 3 identical asks:" in program("approve", shown).stdout
    left = [row for row in program.json("approvals", "list") if row["origin"] == "cron: nightly"]
    assert [(row["id"] in asks, row["identical"]) for row in left] == [(False, [])]


@covers("asks.joined")
def test_an_answer_can_be_for_one_of_several_identical_asks_alone(program: Program) -> None:
    asks = waiting(program)
    first, second, third = sorted((id_ for id_ in asks if asks[id_]["origin"] == "cron: nightly"), key=lambda id_: asks[id_]["asked"])
    told = program.json("approve", first, "--only", "--for", "session")
    assert (told["identical"], bool(told["grant"])) == ([], True)
    denied = program.json("deny", third, "--reason", "not today")
    assert [(it["id"], it["session"]) for it in denied["identical"]] == [(second, asks[second]["session"])]
    settled = {row["id"]: (row["status"], row["reason"]) for row in program.json("approvals", "list", "--all")}
    assert [settled[id_] for id_ in (first, second, third)] == [("granted", ""), ("denied", "not today"), ("denied", "not today")]


@covers("asks.each-is-told")
def test_an_answer_for_several_asks_is_told_ask_by_ask_where_one_of_them_cannot_be_settled(program: Program) -> None:
    asks = waiting(program)
    nightly = {id_: row["session"] for id_, row in asks.items() if row["origin"] == "cron: nightly"}
    named, damaged, other = nightly
    with closing(sqlite3.connect(program.home / "curtainwall.db")) as db, db:
        db.execute("UPDATE head SET mac = zeroblob(32) WHERE stream = ?", (session_stream(SessionId(nightly[damaged])),))
    told = program("approve", named, "--output", "json", fails=True)
    assert told.returncode == 1
    answered = json.loads(told.stdout)
    assert (answered["status"], [it["id"] for it in answered["identical"]]) == ("granted", [other])
    (left,) = answered["unsettled"]
    assert (left["id"], left["session"]) == (damaged, nightly[damaged])
    assert f"not settled by this: {damaged} in session {nightly[damaged]}: {left['why']}" in told.stderr
    assert "run `audit verify`" in left["why"]


@covers("cron.each-firing-is-one-session")
@pytest.mark.parametrize(("mode", "code"), [("default", 3), ("plan", 0), ("accept-edits", 0), ("bypass", 0)])
def test_a_job_works_in_the_mode_that_the_configuration_says(program: Program, mode: str, code: int) -> None:
    project = program.scratch / "project"
    project.mkdir()
    write = {"tool": "filesystem.write_file", "arguments": {"path": "note.txt", "content": "x"}}
    model = script_of(program.scratch / "said", [write, {"text": "over"}])
    program.configure(
        f'[channels.web]\noperators = ["ann"]\n[cron.writer]\nschedule = "0 3 1 1 *"\ninstructions = "go"\nmodel = "{model}"\n'
        f'workspace = "{project}"\nmode = "{mode}"\n'
    )
    assert program("cron", "run", "writer", fails=code != 0).returncode == code
    (row,) = program.json("cron", "history", "writer")
    opened = next(event for event in Home(program.environ).events(row["session"]) if isinstance(event, SessionOpened))
    assert (opened.mode, opened.channel, opened.job) == (mode, "cron", "writer")
    assert (project / "note.txt").exists() == (mode in ("accept-edits", "bypass"))


def test_a_job_that_is_not_there_is_said(program: Program) -> None:
    program.configure(JOBS)
    for word in ("run", "history"):
        assert "there is no job `weekly`" in program("cron", word, "weekly", fails=True).stderr


@covers("cron.each-firing-is-one-session")
def test_a_job_fires_while_the_house_is_served_and_what_is_slashed_is_plain_text(program: Program) -> None:
    program.configure(JOBS)
    serving = program.begin("serve")
    # It may take a minute, and every look is a process.
    until(lambda: program.json("cron", "history", "minutely"), 90, pause=1)
    serving.kill_everything()
    again = program.begin("serve")
    until(lambda: program.json("cron", "history", "minutely")[-1]["status"] == "done", 90)
    again.kill_everything()
    (first, *_) = reversed(program.json("cron", "history", "minutely"))
    assert "/approve everything" in program("sessions", "show", first["session"]).stdout


FORBID = '@id("no-notes") forbid (principal, action == Action::"write-path", resource);\n'


@covers("cron.a-job-has-rules-of-its-own")
def test_the_rules_of_a_job_forbid_what_others_may_and_hold_as_they_are_when_an_old_firing_goes_on(program: Program) -> None:
    port, own = free_port(), program.scratch / "strict.cedar"
    own.write_text('@id("elsewhere") forbid (principal, action == Action::"write-path", resource in Path::"/nowhere");\n')
    write = {"tool": "filesystem.write_file", "arguments": {"path": "note.txt", "content": "x"}}
    ask = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}
    model = script_of(program.scratch / "said", [ask, write, {"text": "over"}])
    job = f'[cron.NAME]\nschedule = "0 3 1 1 *"\ninstructions = "go"\nmodel = "{model}"\n'
    program.configure(
        f"[serve]\nstatus-port = {port}\n[web]\nenabled = false\n[channels.web]\noperators = ['ann']\n"
        + job.replace("NAME", "strict") + f'policy = "{own}"\n' + job.replace("NAME", "free")
    )  # fmt: skip
    for name in ("strict", "free"):
        assert program("cron", "run", name, fails=True).returncode == 3
    sessions = {row["job"]: row["session"] for row in program.json("cron", "history")}
    asks, home = program.json("approvals", "list"), Home(program.environ)
    serving = program.begin("serve")
    until(lambda: health(port).get("pid") == serving.child.pid, 60)
    replace(own, FORBID)
    version = serving.says(r"in force from now on: rules of job `strict` ([0-9a-f]{12})")
    replace(own, f'{FORBID}\n@id("more") permit (principal, action, resource);')
    serving.says(r"(refused: .*`cron.strict.policy`: `\S+strict.cedar`, line 3, rule `more`: )")
    until(lambda: not health(port)["config"]["valid"])
    for row in asks:
        home.answer(row["id"], row["session"])
    until(lambda: {row["status"] for row in program.json("cron", "history")} == {"done"}, 60)
    denied = [event for event in home.events(sessions["strict"]) if isinstance(event, CallDenied)]
    assert [event.verdict.because for event in denied] == [("no-notes",)], "what was valid stays in force"
    assert sum(isinstance(event, CallFinished) for event in home.events(sessions["free"])) == 2
    assert [(program.home / "sessions" / sessions[name] / "workspace" / "note.txt").exists() for name in ("strict", "free")] == [
        False,
        True,
    ]
    replace(own, FORBID)
    until(lambda: health(port)["config"]["valid"])
    assert version not in health(port)["policy"], "the rules of the house are as they were"
    serving.interrupt()
    assert serving.code() == 0
