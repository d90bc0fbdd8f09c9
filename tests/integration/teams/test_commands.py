"""`curtainwall teams` as people use it: a process for each command, and conversations that outlive them all."""

import json
import re
from typing import Any

from tests.support.covers import covers
from tests.support.forks import PROVIDERS
from tests.support.program import Program
from tests.support.upstream import KEY, Says, upstream_beside
from tests.support.waiting import until


def write(program: Program, text: str, *teams: str) -> None:
    program.home.mkdir(exist_ok=True)
    for team in teams:
        (program.scratch / team).mkdir(exist_ok=True)
        text += f'[teams.{team}]\nproject = "{program.scratch / team}"\nmodel = "local:m"\n'
    (program.home / "config.toml").write_text(text)
    program.loaded = PROVIDERS


def seen(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


@covers("teams.each-asker-is-remembered")
def test_the_second_answer_knows_the_first_and_nobody_else_does(program: Program) -> None:
    with upstream_beside() as server:
        write(program, f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "frontend", "mobile", "backend")
        server.will(Says(("the port is 8080",)), Says(("still 8080",)), Says(("which port?",)), Says(("8080, as before",)))
        ask = ("teams", "ask", "--timeout", "1m", "backend")
        assert program(*ask, "--from", "frontend", "which port do you use?").stdout == "the port is 8080\n"
        assert program(*ask, "--from", "frontend", "is it still that?").stdout == "still 8080\n"
        assert program(*ask, "--from", "mobile", "what did they ask?").stdout == "which port?\n"
        assert program.json(*ask, "--from", "frontend", "and now?")["text"] == "8080, as before"
        second, mobile, third = (seen(asked.body) for asked in server.asked[1:])
    assert "the port is 8080" in second
    assert "8080" not in mobile
    assert "which port do you use?" in third
    assert "still 8080" in third
    assert "what did they ask?" not in third
    told = program.json("teams", "list")
    assert [(it["asker"], it["messages"], it["open"], it["status"]) for it in told["conversations"]] == [
        ("frontend", 3, 0, "active"),
        ("mobile", 1, 0, "active"),
    ]
    totals = told["totals"]
    assert (totals["messages"], totals["average"]) == (4, 2)
    assert totals["tokens"] == sum(it["tokens"] for it in told["conversations"]) > 0
    shown = program("teams", "list").stdout
    assert re.search(r"frontend → backend +active +3 +0 +[1-9]\d* ", shown)
    assert re.search(r"4 messages in 2 conversations, 2\.0 each, [1-9]\d* tokens", shown)
    history = program("teams", "history", "backend", "--from", "mobile").stdout
    assert "mobile: what did they ask?" in history
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", history), "a time as people read it"
    assert "done: which port?" in history


@covers("teams.looked-after-from-the-command-line")
def test_conversations_are_looked_after_from_the_command_line(program: Program) -> None:
    with upstream_beside() as server:
        write(program, f'[peers]\nthreads = 2\n[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "frontend", "backend")
        server.will(*(Says((f"answer {number}",)) for number in range(9)))
        ask = ("teams", "ask", "--timeout", "1m", "backend")
        program(*ask, "first")
        assert program("teams", "fork", "backend", "copy").stdout == "forked: copy\n"
        assert "already" in program("teams", "fork", "backend", "copy", fails=True).stderr
        program(*ask, "--thread", "copy", "what do you know?")
        assert "first" in seen(server.asked[-1].body)
        refused = program(*ask, "--thread", "third", "hello?", fails=True)
        assert "curtainwall teams archive TEAM --thread NAME" in refused.stderr
        assert program("teams", "archive", "backend", "--thread", "copy").stdout == "archived\n"
        program(*ask, "--thread", "third", "hello?")
        handle = program.json("teams", "send", "backend", "never mind")["handle"]
        assert "a message is open in it" in program("teams", "archive", "backend", fails=True).stderr
        assert [it["status"] for it in program.json("teams", "history", "backend")] == ["done", "queued"]
        assert program.json("teams", "cancel", "backend") == {"team": "backend", "handle": handle, "status": "cancelled"}
        assert "nothing is open" in program("teams", "cancel", "backend", fails=True).stderr
        assert [it["status"] for it in program.json("teams", "history", "backend")] == ["done", "withdrawn"]
        compacted = program("teams", "compact", "backend", "keep", "the", "names")
        assert compacted.stdout == "compact-pending\n"
        assert "nobody works for the teams now" in compacted.stderr

        def listed(*words: str) -> list[tuple[str, str]]:
            rows = program.json("teams", "list", *words)["conversations"]
            return sorted((row["thread"], row["status"]) for row in rows)

        assert listed() == [("", "compact-pending"), ("copy", "archived"), ("third", "active")]
        assert listed("--status", "archived") == [("copy", "archived")]
        assert listed("--status", "open") == listed("--from", "frontend") == listed("--team", "frontend") == []
        assert len(listed("--from", "nobody", "--team", "backend")) == 3
        assert "there is no team `x`" in program("teams", "list", "--team", "x", fails=True).stderr


@covers("teams.long-answers")
def test_a_long_answer_is_printed_in_full(program: Program) -> None:
    text = "".join(f"line {number} of many\n" for number in range(3_000)).strip()
    assert len(text) > 50_000
    with upstream_beside() as server:
        write(program, f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "backend")
        server.will(Says((text,)), Says((text,)))
        ask = ("teams", "ask", "--timeout", "1m", "backend", "tell me everything")
        assert program(*ask).stdout == f"{text}\n"
        answer = program.json(*ask)
    assert (answer["status"], answer["text"]) == ("done", text)
    assert [each["answer"] for each in program.json("teams", "history", "backend")] == [text, text]
    in_one_line = text.replace("\n", "\\n")
    assert program("teams", "history", "backend", "--limit", "1").stdout.endswith(f"done: {in_one_line}\n")


@covers("teams.answers-are-inert")
def test_an_answer_that_draws_on_the_screen_is_printed_inert(program: Program) -> None:
    with upstream_beside() as server:
        write(program, f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "backend")
        server.will(Says(("a\x1b[2Jb\x1b]0;title\x07\rc\u202ed\nsecond line",)))
        shown = program("teams", "ask", "--timeout", "1m", "backend", "hello").stdout
    assert shown == "a\\x1b[2Jb\\x1b]0;title\\x07\\rc\\u202ed\nsecond line\n"


def test_an_empty_name_of_an_asker_is_an_error(program: Program) -> None:
    write(program, "", "backend")
    for words in (("ask", "backend", "hi"), ("send", "backend", "hi"), ("history", "backend"), ("list",)):
        refused = program("teams", *words, "--from", " ", fails=True)
        assert refused.returncode == 2
        assert "the name of the team is empty" in refused.stderr
        assert not refused.stdout


@covers("teams.a-timeout-loses-nothing")
def test_a_notice_waits_for_whoever_works_next_and_a_late_answer_for_whoever_looks(program: Program) -> None:
    with upstream_beside() as server:
        write(program, f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "backend")
        server.will(*(Says((f"answer {number}",)) for number in range(9)))
        accepted = program("teams", "notify", "backend", "we deploy at five")
        assert accepted.stdout.startswith("accepted: ")
        assert "nobody works for the teams now: `curtainwall serve` does" in accepted.stderr
        assert program("teams", "ask", "--timeout", "1m", "backend", "did you hear?").stdout.startswith("answer ")
        told = program.json("teams", "history", "backend")
        assert [row["name"] for row in program.sessions()] == ["nobody → backend"]
        asking = [row["name"] for row in program.json("sessions", "list", "--callers") if row["agent"] == "outside"]
    assert len(asking) == 2
    assert all(name.endswith(" asks teams") for name in asking)
    assert [it["message"] for it in told] == ["we deploy at five", "did you hear?"]
    assert [it["status"] for it in told] == ["done", "done"]


@covers("teams.a-timeout-loses-nothing")
def test_whoever_asks_hears_at_once_that_the_team_waits_for_a_human_and_what_to_type(program: Program) -> None:
    (program.scratch / "backend").mkdir()
    program.configure(f'[model]\nname = "demo"\n[teams.backend]\nproject = "{program.scratch / "backend"}"\n')
    asking = program.begin("teams", "ask", "backend", "--timeout", "10m", "write 'x' to a.txt")
    approval = asking.says(r"backend waits for a human: `curtainwall approve (\w+)`")
    waits = f"waits for a human: `curtainwall approve {approval}`"
    late = program("teams", "ask", "backend", "--timeout", "1s", "what is in a.txt?", fails=True)
    assert (late.returncode, late.stderr.count(f"curtainwall approve {approval}"), "waiting: backend " in late.stderr) == (3, 1, True)
    assert "`curtainwall teams history backend` shows the answer" in late.stderr
    assert "`reports`" not in late.stderr
    assert waits in program("teams", "history", "backend").stdout
    listed = program("teams", "list")
    assert "waiting for a human" in listed.stdout
    assert f"nobody → backend {waits}" in listed.stderr
    assert program.json("teams", "list")["conversations"][0]["approvals"] == [approval]
    program("approve", approval)
    assert asking.code() == 0
    assert (program.scratch / "backend" / "a.txt").read_text() == "x"


@covers("teams.a-timeout-loses-nothing")
def test_what_nobody_works_on_any_more_is_not_called_work(program: Program) -> None:
    with upstream_beside() as server:
        write(program, f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n', "backend")
        server.will(Says(("slowly",), quiet=True))
        asking = program.begin("teams", "ask", "backend", "--timeout", "10m", "are you there?")
        until(lambda: server.asked or None)
        assert "\n  working\n" in program("teams", "history", "backend").stdout
        asking.kill_everything()
        left = program("teams", "history", "backend")
        assert "\n  begun, and nobody works on it now\n" in left.stdout
        assert "nobody works for the teams now: `curtainwall serve` does" in left.stderr
        assert "nobody works for the teams now" in program("teams", "list").stderr
        assert [it["status"] for it in program.json("teams", "history", "backend")] == ["begun"]


@covers("teams.expiry-is-told-while-nobody-works")
def test_a_notice_whose_time_is_over_is_not_shown_as_queued(program: Program) -> None:
    write(program, f'[models.local]\nurl = "http://127.0.0.1:9/v1"\nkey = "{KEY}"\n', "backend")
    program("teams", "notify", "backend", "--days", "0.00005", "we deploy at five")
    until(lambda: program.json("teams", "history", "backend")[0]["status"] == "expired" or None)
    shown, listed = program("teams", "history", "backend"), program("teams", "list")
    assert "\n  expired: its time was over before the team came to it\n" in shown.stdout
    assert re.search(r"nobody → backend +active +1 +0 ", listed.stdout)
    assert "nobody works for the teams now" not in shown.stderr + listed.stderr, "nothing waits for anybody"


@covers("teams.import")
def test_teams_of_iris_are_imported_and_listed(program: Program) -> None:
    frontend = {"project": str(program.workspace), "path": "/old", "description": "the pages", "skipPermissions": True, "color": "#E91E63"}
    source = program.scratch / "teams.json"
    source.write_text(json.dumps({"settings": {"idleTimeout": 300_000, "maxProcesses": 3}, "teams": {"frontend": frontend}}))
    done = program("teams", "import", source)
    assert done.stdout == f"frontend: {program.workspace}\n"
    assert "`skipPermissions` is not taken over" in done.stderr
    assert f"added to {program.home / 'config.toml'}" in done.stderr
    (team,) = program.json("teams", "list")["teams"]
    assert (team["team"], team["agent"], team["description"], team["colour"]) == ("frontend", "claude-local", "the pages", "#E91E63")
    again = program("teams", "import", source, fails=True)
    assert (again.returncode, "there is a team `frontend` already" in again.stderr) == (1, True)


def test_mistakes_are_named(program: Program) -> None:
    write(program, "", "backend")
    unknown = program("teams", "ask", "nosuch", "hello", fails=True)
    assert unknown.returncode == 1
    assert "there is no team `nosuch`; there are: `backend`" in unknown.stderr
    assert "there is no team `nosuch`" in program("teams", "ask", "backend", "--from", "nosuch", "hello", fails=True).stderr
    for words in (("history", "nosuch"), ("history", "backend", "--from", "nosuch"), ("adopt", "nosuch")):
        told = program("teams", *words, fails=True)
        assert (told.returncode, told.stderr) == (1, "curtainwall: there is no team `nosuch`; there are: `backend`\n")
    assert "only `claude-local` keeps conversations that can be adopted" in program("teams", "adopt", "backend", fails=True).stderr
    assert program("teams", "ask", "backend", "hello", "--timeout", "soon", fails=True).returncode == 2
    for word in ("ask", "send", "notify"):
        empty = program("teams", word, "backend", " ", fails=True)
        assert (empty.returncode, "the message is empty" in empty.stderr) == (2, True)
    (program.home / "config.toml").write_text("")
    assert "no team is configured" in program("teams", "ask", "backend", "hello", fails=True).stderr
    assert "no team is configured" in program("teams", "list").stderr
