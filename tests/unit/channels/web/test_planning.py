"""Jobs and teams on the pages: what is due, what became of it, who talks to whom; and plans in the inbox."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.channels.cron import CHANNEL, Firing
from curtainwall.channels.cron.jobs import NOT_OVER, passed_note
from curtainwall.model import HOUSE, CallRequest, ExtensionNoted, Mode, SessionQuery, Who
from curtainwall.serve.firings import JobFirings
from curtainwall.serve.jobs import jobs_in
from curtainwall.teams.callers import OutsideCaller
from tests.support.covers import covers
from tests.support.webs import CONFIG, Visit, Web, web_at

PLANNED = """
[cron.nightly]
schedule = "0 3 * * *"
zone = "Europe/Berlin"
instructions = "write 'done' to report.txt"

[cron.weekly]
schedule = "0 4 * * *"
instructions = "hello"

[teams.backend]
project = "PROJECT"
description = "the API & its database"
colour = "#E91E63"
askers = ["frontend"]

[teams.frontend]
project = "PROJECT"

[lists]
teams = ["backend"]
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    scratch = tmp_path_factory.mktemp("planned").resolve()
    project = scratch / "backend"
    project.mkdir()
    planned = PLANNED.replace("PROJECT", str(project))
    with web_at(scratch, CONFIG + planned) as made:
        yield made


@covers("web.jobs")
def test_a_job_is_run_now_by_an_operator_and_its_session_works_here(web: Web, ann: Visit) -> None:
    before = ann.get("/cron").text
    assert "never fired" in before
    assert "0 3 * * *" in before
    assert "Europe/Berlin" in before
    done = ann.post("/cron/nightly/run")
    assert done.status_code == 303
    session = done.headers["location"].removeprefix("/sessions/")
    web.until((web.scratch / "cw" / "sessions" / session / "workspace" / "report.txt").exists)
    web.until(lambda: f'<a href="/sessions/{session}">{session}</a>' in ann.get("/cron").text)
    assert f"{session}</a> · by hand" in ann.get("/cron").text
    (row,) = web.served.wired.store.index.sessions(SessionQuery(prefix=session))
    assert (row.channel, row.name.startswith("nightly")) == (CHANNEL, True)
    noted = [it.event for it in web.served.wired.registry.feed.read(HOUSE) if isinstance(it.event, ExtensionNoted)]
    assert "ann on web" in [it.data.get("by") for it in noted], "who wanted it is in the house's log"


def test_whoever_wants_a_job_in_the_same_moment_gets_a_firing_each(web: Web) -> None:
    firings = JobFirings(web.served.wired, web.served.work.turns.attend, "demo")

    async def all_at_once() -> list[Firing]:
        return await asyncio.gather(*(firings.claim_now("nightly") for _ in range(8)))

    assert len({firing.due for firing in web.do(all_at_once())}) == 8


@covers("web.jobs")
def test_a_skipped_firing_leads_to_the_session_that_was_in_its_way(web: Web, ann: Visit) -> None:
    nightly = next(job for job in jobs_in(web.served.config) if job.name == "nightly")
    note = JobFirings(web.served.wired, web.served.work.turns.attend, "demo").note
    web.do(note(passed_note(nightly, 1_000, "skipped", f"{NOT_OVER}: session abc123")))
    assert 'the one before is not over: session <a href="/sessions/abc123">abc123</a>' in ann.get("/cron").text


@covers("web.jobs")
def test_nobody_else_runs_a_job_and_none_that_is_not_there(web: Web, ann: Visit, uma: Visit) -> None:
    before = len(web.served.wired.registry.feed.read(HOUSE))
    assert uma.post("/cron/weekly/run").status_code == 403
    assert uma.get("/cron").status_code == 200
    assert ann.post("/cron/daily/run").status_code == 404
    assert ann.post("/cron/weekly/run", headers={"Origin": "http://elsewhere.example"}).status_code == 403
    assert len(web.served.wired.registry.feed.read(HOUSE)) == before


@covers("web.teams")
def test_teams_and_their_conversations_are_shown_with_their_figures(web: Web, ann: Visit) -> None:
    page = ann.get("/teams").text
    assert "the API &amp; its database" in page
    assert "asked by frontend" in page
    assert page.count('fill="#E91E63"') == 1
    assert "whoever the rules let" in page
    assert "Nobody has asked a team yet" in page
    caller = OutsideCaller(web.served.wired.teams, web.served.wired.gate, Who(name="ann"), "frontend", Mode.BYPASS)
    told = {"toTeam": "backend", "message": "hello", "waitForResponse": False}
    assert web.do(caller.request(caller.session, CallRequest(tool="teams.send_message", arguments=told))).result
    web.until(lambda: "frontend → backend" in ann.get("/teams").text)
    web.until(lambda: "1 message ·" in ann.get("/teams").text)
    caller_at = f"/sessions/{caller.session}"
    assert (caller_at in ann.get("/sessions").text, caller_at in ann.get("/sessions?callers=yes").text) == (False, True)


CHAINED = """
[teams.backend]
project = "PROJECT"
model = "script:SCRIPT"

[teams.data]
project = "PROJECT"
model = "MODEL"
MORE

[lists]
teams = ["backend", "data"]
"""


@covers("web.teams")
@pytest.mark.parametrize(
    ("code", "more", "told"),
    [
        ("await teams.ask(team='data', question='list the files', timeout=60000)", "tokens = 100", "is used up</strong>"),
        ("await teams.ask(team='data', question='read /etc/hostname', timeout=60000)", "", 'waits for a team that <a href="/sessions/'),
    ],
)
def test_what_keeps_an_answer_from_coming_further_down_the_chain_is_shown(tmp_path: Path, code: str, more: str, told: str) -> None:
    project, script = tmp_path / "backend", tmp_path / "script.jsonl"
    project.mkdir()
    script.write_text(json.dumps({"code": f"print({code})"}) + "\n" + json.dumps({"text": "that is all"}) + "\n")
    words = {"PROJECT": str(project), "SCRIPT": str(script), "MODEL": "demo", "MORE": more}
    config = CHAINED
    for word, value in words.items():
        config = config.replace(word, value)
    with web_at(tmp_path.resolve(), CONFIG + config) as web:
        caller = OutsideCaller(web.served.wired.teams, web.served.wired.gate, Who(name="ann"), "", Mode.BYPASS)
        asked = {"toTeam": "backend", "message": "which?", "waitForResponse": False}
        assert web.do(caller.request(caller.session, CallRequest(tool="teams.send_message", arguments=asked))).result
        ann = web.visit("ann")
        web.until(lambda: told in ann.get("/teams").text)


@covers("web.answers")
def test_a_plan_in_the_inbox_shows_every_step(web: Web, ann: Visit, tmp_path: Path) -> None:
    session = web.session(project=tmp_path)
    steps = [
        {"tool": "filesystem.write_file", "arguments": {"path": f"{name}.txt", "content": f"the words of {name}"}}
        for name in ("one", "two", "three")
    ]
    assert web.wish(session, "session.propose_plan", steps=steps).waiting
    page = ann.get("/").text
    for name in ("one", "two", "three"):
        assert f"{tmp_path.resolve()}/{name}.txt" in page
        assert f"the words of {name}" in page
    assert page.count("<details open>") >= len(steps), "a step is read without opening anything"
    assert ('value="session"' in page, 'value="project"' in page) == (False, False), "a plan is answered as it is listed"
    web.settle()


def test_a_denial_does_not_look_like_a_yes_in_the_audit(web: Web, ann: Visit) -> None:
    session = web.session()
    ann.post(f"/asks/{session}/{web.an_ask(session)}", answer="deny", reason="not now")
    web.until(lambda: "not granted" in ann.get(f"/audit?session={session}&kind=asks").text)
    ann.post(f"/asks/{session}/{web.an_ask(session)}", answer="once")
    web.until(lambda: '<li class="ApprovalAnswered good">' in ann.get(f"/audit?session={session}&kind=asks").text)
    assert '<li class="ApprovalAnswered bad">' in ann.get(f"/audit?session={session}&kind=asks").text
