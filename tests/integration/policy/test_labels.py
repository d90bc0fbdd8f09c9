"""What was read stays known: after sensitive material, sending asks whatever was listed or granted, over restart, compaction and fork."""

import re
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.serving import script_of
from tests.support.sites import Site, reply
from tests.support.sites import site as web_site
from tests.support.waiting import until

LABELS = '@id("finance") @label("sensitive")\npermit (principal, action == Action::"label", resource in Path::"{place}");\n'


class Desk:
    """One session, worked on task by task by a script that grows, each time in a process of its own."""

    def __init__(self, program: Program, site: Site) -> None:
        self.program, self.site = program, site
        self.lines: list[dict[str, object]] = []
        self.session = ""

    def does(self, *calls: dict[str, object], session: str = "") -> dict[str, Any]:
        """Let the agent make these calls, and return what came of it."""
        self.lines += [*calls, {"text": "done"}]
        model = script_of(self.program.scratch / "script", self.lines)
        going = ("--resume", session or self.session) if session or self.session else ("--model", model)
        return self.program.json("start", *going, "go on", fails=True)

    def fetch(self, path: str) -> dict[str, object]:
        return {"tool": "fetch.get", "arguments": {"url": f"http://localhost:{self.site.port}{path}"}}


@pytest.fixture
def desk(program: Program) -> Any:
    with web_site() as site:
        site.pages |= {f"/{name}": reply(200, "hello", content_type="text/plain") for name in "abcdef"}
        finance = program.scratch / "finance"
        finance.mkdir()
        (finance / "books.txt").write_text("42")
        program.configure(f'[lists]\nhosts = ["localhost:{site.port}"]\n')
        (program.home / "policy").mkdir(mode=0o700)
        (program.home / "policy" / "labels.cedar").write_text(LABELS.format(place=finance))
        yield Desk(program, site)


@covers("labels.outlive-everything")
def test_after_sensitive_material_a_listed_host_asks_also_where_it_was_granted_before_and_why_names_the_call(desk: Desk) -> None:
    program, read = (
        desk.program,
        {"tool": "filesystem.read_file", "arguments": {"path": str(desk.program.scratch / "finance" / "books.txt")}},
    )
    told = desk.does(desk.fetch("/a"))
    desk.session = told["session"]
    assert (told["status"], len(desk.site.seen)) == ("done", 1), "a listed host is free"
    told = desk.does(read)
    assert [ask["because"] for ask in told["pending"]] == [["read-outside"]]
    program("approve", told["pending"][0]["id"])
    assert program.json("start", "--resume", desk.session)["status"] == "done"
    (row,) = program.sessions()
    assert row["labels"] == ["sensitive"]
    # Each of these is a process of its own: the label survives the restart.
    told = desk.does(desk.fetch("/b"))
    (ask,) = told["pending"]
    assert (ask["because"], len(desk.site.seen)) == (["sensitive-stays"], 1)
    shown = program.json("approvals", "list")[0]["shown"]
    assert "label sensitive was set by call " in shown
    assert "finance/books.txt" in shown
    program("approve", ask["id"], "--for", "session")
    assert program.json("start", "--resume", desk.session)["status"] == "done"
    told = desk.does(desk.fetch("/c"))
    assert told["status"] == "done", "what was granted after the label, and shown with it, stands"
    forked = program.json("sessions", "fork", desk.session)["session"]
    (row,) = [row for row in program.sessions() if row["id"] == forked]
    assert row["labels"] == ["sensitive"]
    told = desk.does(desk.fetch("/d"), session=forked)
    assert [ask["because"] for ask in told["pending"]] == [["sensitive-stays"]], "grants stay behind, the label does not"
    assert f"label sensitive was set by session {desk.session}: /" in program.json("approvals", "list")[0]["shown"]


@pytest.mark.timeout(300)
@covers("labels.outlive-everything")
def test_the_label_wakes_asks_that_were_listed_or_granted_before_and_goes_along_through_compaction_and_to_another_team(
    program: Program, tmux: str
) -> None:
    with web_site() as listed, web_site() as granted:
        for site in (listed, granted):
            site.pages |= {f"/{name}": reply(200, "hello", content_type="text/plain") for name in "abcdef"}
        finance = program.scratch / "finance"
        (program.scratch / "backend").mkdir()
        finance.mkdir()
        (finance / "books.txt").write_text("42")
        answers = [{"text": "one"}, {"tool": "fetch.get", "arguments": {"url": f"http://localhost:{listed.port}/f"}}, {"text": "two"}]
        program.configure(
            f'[lists]\nhosts = ["localhost:{listed.port}"]\nteams = ["backend"]\n[teams.backend]\n'
            f'project = "{program.scratch / "backend"}"\nmodel = "{script_of(program.scratch / "backend.jsonl", answers)}"\n'
        )
        (program.home / "policy").mkdir(mode=0o700)
        (program.home / "policy" / "labels.cedar").write_text(LABELS.format(place=finance))
        desk, other = Desk(program, listed), Desk(program, granted)
        question = {"tool": "teams.ask", "arguments": {"team": "backend", "question": "which number?"}}
        # Before: the listed host and the listed team are free, the other host is granted for the session.
        told = desk.does(desk.fetch("/a"), question, other.fetch("/a"))
        desk.session = told["session"]
        allowed(program, told, "--for", "session")
        told = desk.does(other.fetch("/b"), {"tool": "filesystem.read_file", "arguments": {"path": str(finance / "books.txt")}})
        assert (listed.paths, granted.paths) == (["/a"], ["/a", "/b"])
        allowed(program, told)
        # After, and after a summary: each of them asks, whatever was listed or granted, and `/why` names the call.
        desk.lines += [
            {
                "code": f"import asyncio\nawait asyncio.gather(fetch.get(url='http://localhost:{listed.port}/c'), "
                f"fetch.get(url='http://localhost:{granted.port}/c'), teams.ask(team='backend', question='which number?'))"
            },
            {"text": "done"},
        ]
        script_of(program.scratch / "script", desk.lines)
        with program.terminal("start", "--resume", desk.session, size=(160, 50)) as screen:
            screen.until("done")
            screen.enter("/compact")
            screen.until("older messages were summarised")
            screen.enter("go on")
            asks = until(lambda: len(found := program.json("approvals", "list")) == 3 and found, 60)
            assert ["sensitive-stays" in ask["shown"] for ask in asks] == [True] * 3
            for ask in asks:
                screen.enter(f"/why {ask['id']}")
                explained = rf"asked as {ask['id']} because[\s\S]*?label sensitive was set by call[\s\S]{{1,300}}books\.txt"
                screen.until(lambda seen, explained=explained: re.search(explained, seen) is not None)
            screen.enter("/quit")
            assert screen.exit_code() == 0
        for ask in asks:
            program("deny", ask["id"])
        told = desk.does(question)
        (ask,) = told["pending"]
        assert "sensitive-stays" in ask["because"]
        # The message that a human lets go takes the label along, and what the other team wants from outside asks.
        program("approve", ask["id"])
        going_on = program.begin("start", "--resume", desk.session)
        (row,) = until(lambda: program.json("approvals", "list"), pause=0.2)
        going_on.kill_everything()
        (pair,) = [row for row in program.sessions() if row["channel"] == "teams"]
        assert "sensitive" in pair["labels"]
        assert (row["session"], "sensitive-stays" in row["shown"]) == (pair["id"], True)
        assert (listed.paths, granted.paths) == (["/a"], ["/a", "/b"])


def allowed(program: Program, told: dict[str, Any], *scope: str) -> None:
    """Approve the one thing that a session waits for, and let it go on to its end."""
    (ask,) = told["pending"]
    program("approve", ask["id"], *scope)
    assert program.json("start", "--resume", told["session"])["status"] == "done"
