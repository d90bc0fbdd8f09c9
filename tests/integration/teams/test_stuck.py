"""Conversations that do not go on by themselves: whoever asks is told why, whoever can help is told how, and nothing is forgotten."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from curtainwall import open_teams
from curtainwall.library.teams import Teams
from curtainwall.model import AnswerApproval, ApprovalQuery, BudgetKind, CommandRefused, PeerAnswered, PeerStatus, RaiseBudget, TurnFailed
from tests.support import fake_claude
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.program import Program, finished, make_program
from tests.support.teams import LISTED, TeamHome, events_in, house_of, pair_sessions, serve_with, state_in, wired_of

POOR = {"model": '"demo"', "tokens": "100"}
"""A team whose budget is used up by the first request to its model."""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Return `curtainwall` with a team that is soon out of tokens, and one whose project is gone."""
    made = make_program(tmp_path)
    (tmp_path / "backend").mkdir()
    made.configure(
        f'{LISTED}[teams.backend]\nproject = "{tmp_path / "backend"}"\nmodel = "demo"\ntokens = 100\n'
        f'[teams.gone]\nproject = "{tmp_path / "gone"}"\nmodel = "demo"\n'
    )
    try:
        yield made
    finally:
        finished(made)


def answers(teams: Teams) -> list[PeerAnswered]:
    return [event for pair in pair_sessions(teams) for event in events_in(teams, pair) if isinstance(event, PeerAnswered)]


@covers("teams.a-used-up-budget-is-told")
def test_a_budget_that_is_used_up_is_told_at_once_and_the_answer_comes_when_a_human_allows_more(team_home: TeamHome) -> None:
    team_home.write(backend=POOR)

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "list the files", wait=60))
            _, session, kinds = await anext(teams.new_shortages("backend"))
            assert kinds == (BudgetKind.TOKENS,)
            assert [it.exhausted for it in teams.figures()] == [(BudgetKind.TOKENS,)]
            later = await teams.ask("backend", "list the files", wait=0.01)
            assert (later.status, later.exhausted) == ("waiting", ("tokens",))
            assert f"`curtainwall sessions budget {session} tokens AMOUNT` allows more" in later.text
            begun, queued = await teams.reports("backend")
            assert (begun["status"], begun.get("exhausted"), queued["status"]) == ("begun", ["tokens"], "queued"), "no work goes on there"
            await house_of(teams).send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            assert (await asking).status == "done"
            await until(lambda: [it.exhausted for it in teams.figures()] == [()])

    run(story())


@covers("teams.a-used-up-budget-is-told")
def test_the_command_line_says_which_budget_is_used_up_and_how_to_allow_more(program: Program) -> None:
    done = program("teams", "ask", "backend", "--timeout", "8s", "list the files", fails=True)
    (told,) = program.json("teams", "list")["conversations"]
    how = f"`curtainwall sessions budget {told['session']} tokens AMOUNT` allows more"
    assert (done.returncode, told["exhausted"], told["open"]) == (3, ["tokens"], 1)
    assert how in done.stderr
    listed = program("teams", "list")
    assert "budget used up" in listed.stdout
    assert how in listed.stderr
    assert f"gone: `{program.scratch / 'gone'}` is no directory here" in listed.stderr
    history = program("teams", "history", "backend")
    assert "begun, and a budget is used up" in history.stdout
    assert how in history.stderr
    program("sessions", "budget", told["session"], "tokens", "1m")
    assert program.json("teams", "ask", "backend", "--from", "nobody", "--timeout", "1m", "list the files")["status"] == "done"


ASKS_DATA = json.dumps({"code": "print(await teams.ask(team='data', question='list the files', timeout=60000))"})


@covers("teams.a-used-up-budget-further-on-is-told")
def test_the_first_asker_hears_at_once_of_a_budget_that_is_used_up_further_down_the_chain(team_home: TeamHome) -> None:
    script = team_home.script("backend", ASKS_DATA, json.dumps({"text": "that is all"}), json.dumps({"text": "and more"}))
    team_home.write(backend=script, data=POOR)

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "which files has data?", wait=60))
            team, session, kinds = await anext(teams.new_shortages("backend"))
            assert (team, kinds) == ("data", (BudgetKind.TOKENS,))
            how = f"team data waits, its budget of tokens is used up: `curtainwall sessions budget {session} tokens AMOUNT` allows more"
            later = await teams.ask("backend", "and?", wait=0.01)
            assert (later.status, later.exhausted, later.further) == ("waiting", (), ((team, session, kinds),))
            assert later.text.startswith(f"{how}; nothing is lost")
            begun, queued = await teams.reports("backend")
            told = [{"team": "data", "session": session, "exhausted": ["tokens"]}]
            assert (begun["status"], begun.get("further"), queued["status"]) == ("begun", told, "queued")
            assert (await teams.history("backend"))[0].get("further") == told
            await house_of(teams).send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            assert (await asking).text == "that is all"
            await until(lambda: len(answers(teams)) == 3)
            assert not any("further" in it for it in await teams.reports("backend"))

    run(story())


@covers("teams.a-used-up-budget-further-on-is-told")
def test_a_team_that_waits_no_longer_is_not_said_to(team_home: TeamHome) -> None:
    sends = json.dumps({"code": "print(await teams.send_message(toTeam='data', message='list the files', waitForResponse=False))"})
    asks = json.dumps({"code": "print(await teams.ask(team='other', question='list the files', timeout=60000))"})
    script = team_home.script("backend", sends, asks, json.dumps({"text": "that is all"}))
    team_home.write(backend=script, data=POOR, other=POOR)

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "which files?", wait=60))
            team, session, _ = await anext(teams.new_shortages("backend"))
            await until(lambda: all(state_in(teams, it).turn_waits for it in pair_sessions(teams)[1:]))
            (told,) = await teams.reports("backend")
            assert [it["team"] for it in cast("list[dict[str, str]]", told["further"])] == ["other"] == [team], "nobody waits for `data`"
            await house_of(teams).send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            assert (await asking).text == "that is all"

    run(story())


@covers("teams.history-tells-the-truth")
def test_a_message_is_working_only_while_somebody_works_on_it(team_home: TeamHome) -> None:
    script = team_home.script("backend", json.dumps({"code": "print(await filesystem.read_file(path='/etc/hostname'))"}))
    team_home.write(backend=script)

    async def status(*, works: bool) -> object:
        async with open_teams(works=works) as teams:
            if works:
                asking = asyncio.create_task(teams.ask("backend", "what is it called?", wait=60))
                await anext(teams.new_approvals("backend"))
                waiting = (await teams.history("backend"))[0]["status"]
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                return waiting
            (approval,) = teams.approvals("backend")
            (row,) = wired_of(teams).store.index.approvals(ApprovalQuery())
            assert (await teams.history("backend"))[0]["status"] == "waiting"
            await house_of(teams).send(row.session, AnswerApproval(by=ANN, approval=row.approval, granted=True))
            assert row.approval == approval
        async with open_teams(works=works) as teams:
            return (await teams.history("backend"))[0]["status"]

    assert run(status(works=True)) == "waiting"
    assert run(status(works=False)) == "begun", "nobody goes on with it"


ASKS_FOR_A_NAME = json.dumps({"code": "print(await teams.ask(team='data', question='read /etc/hostname', timeout=60000))"})


@covers("teams.what-a-human-is-asked-further-on-is-told")
def test_the_first_asker_hears_at_once_of_what_a_human_is_asked_further_down_the_chain(team_home: TeamHome) -> None:
    script = team_home.script("backend", ASKS_FOR_A_NAME, json.dumps({"text": "that is all"}), json.dumps({"text": "and more"}))
    team_home.write(backend=script, data={"model": '"demo"'})

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "what is it called?", wait=60))
            approval = await anext(teams.new_approvals("backend"))
            assert (await teams.ask("backend", "and?", wait=0.01)).approvals == (approval,)
            (row,) = wired_of(teams).store.index.approvals(ApprovalQuery())
            assert row.approval == approval
            await house_of(teams).send(row.session, AnswerApproval(by=ANN, approval=row.approval, granted=True))
            assert (await asking).text == "that is all"
            assert teams.approvals("backend") == ()

    run(story())


@covers("teams.what-a-human-is-asked-further-on-is-told")
def test_the_command_line_tells_what_a_human_is_asked_further_down_the_chain(program: Program) -> None:
    script = program.scratch / "backend.jsonl"
    script.write_text(f"{ASKS_FOR_A_NAME}\n" + '{"text": "that is all"}\n')
    models = {"backend": f"script:{script}", "data": "demo"}
    sections = (f'[teams.{name}]\nproject = "{program.scratch / "backend"}"\nmodel = "{model}"\n' for name, model in models.items())
    program.configure(LISTED + "".join(sections))
    asking = program.begin("teams", "ask", "backend", "--timeout", "60s", "what is it called?")
    approval = asking.says(r"backend waits for a human: `curtainwall approve (\w+)`")
    assert [it["id"] for it in program.json("approvals", "list")] == [approval]
    assert f"  waits for a human: `curtainwall approve {approval}`\n" in program("teams", "history", "backend").stdout
    program("approve", approval)
    assert (asking.code(), asking.out, asking.err.count(approval)) == (0, "that is all\n", 1)


def test_the_command_line_tells_of_a_budget_further_down_the_chain(program: Program) -> None:
    script = program.scratch / "backend.jsonl"
    script.write_text(f"{ASKS_DATA}\n" + '{"text": "that is all"}\n')
    sections = "".join(
        f'[teams.{name}]\nproject = "{program.scratch / "backend"}"\nmodel = "{model}"\n{more}'
        for name, model, more in (("backend", f"script:{script}", ""), ("data", "demo", "tokens = 100\n"))
    )
    program.configure(LISTED + sections)
    done = program("teams", "ask", "backend", "--timeout", "8s", "which files has data?", fails=True)
    (poor,) = [it for it in program.json("teams", "list")["conversations"] if it["team"] == "data"]
    how = f"team data waits, its budget of tokens is used up: `curtainwall sessions budget {poor['session']} tokens AMOUNT` allows more"
    assert done.returncode == 3
    assert done.stderr.count(how) == 1


def test_a_number_of_days_that_is_none_is_misuse_and_no_fault_of_ours(program: Program) -> None:
    for days in ("nan", "inf"):
        done = program("teams", "notify", "backend", "--days", days, "hello", fails=True)
        assert (done.returncode, "--days: write a number of days" in done.stderr) == (2, True)


@covers("teams.an-agent-at-work-is-not-sent-to-sleep")
def test_an_agent_at_work_is_not_sent_to_sleep_and_one_that_is_stopped_says_by_whom(short_home: TeamHome, fake: Path) -> None:
    serve_with(short_home, fake, "silence = 60\n")

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", fake_claude.HANGS, wait=60))
            await until(lambda: bool(list(short_home.home.glob("sessions/*/state/hanging"))))
            (pair,) = pair_sessions(teams)
            with pytest.raises(CommandRefused, match="its agent is at work"):
                await wired_of(teams).teams.requests.sleep(pair)
            behind = await teams.send("backend", "second")
            await teams.cancel("backend", behind.handle)
            assert answers(teams)[-1].answer.text == "it was taken back by nobody on teams"
            await teams.cancel("backend")
            assert (await asking).status == "interrupted"
            assert await wired_of(teams).teams.requests.sleep(pair) == "asleep"
            assert (await teams.ask("backend", "third", wait=60)).status == "done"

    run(story())


@covers("teams.an-archived-message-is-worked-on")
def test_a_message_that_waited_until_its_pair_counted_as_archived_is_worked_on_all_the_same(team_home: TeamHome) -> None:
    team_home.more = f"{LISTED}[peers]\narchive-after = 1\n"
    team_home.write(backend="demo")

    async def left() -> None:
        async with open_teams(works=False) as teams:
            await teams.send("backend", "list the files")
            (told,) = teams.figures()
            await until(lambda: time.time() * 1000 > told.used + 1000)
            assert [(it.status, it.open) for it in teams.figures()] == [("active", 1)], "something is still to be done there"

    run(left())

    async def next_one() -> None:
        async with open_teams() as teams:
            await until(lambda: [it.answer.status for it in answers(teams)] == [PeerStatus.DONE], 60)

    run(next_one())


@covers("teams.expiry-is-told-while-nobody-works")
def test_a_notice_whose_time_is_over_waits_for_nobody_also_while_nobody_works(team_home: TeamHome) -> None:
    team_home.write(backend="demo")

    async def left() -> None:
        async with open_teams(works=False) as teams:
            notice = await teams.notify("backend", "write late to `late.txt`", days=1 / 86_400)
            await teams.send("backend", "list the files", thread="aside")
            (told,) = [it for it in teams.figures() if not it.pair.thread]
            await until(lambda: time.time() * 1000 > told.created + 2000)
            (over,) = await teams.history("backend")
            assert (over["handle"], over["status"]) == (notice.handle, "expired")
            assert over["reason"] == "its time was over before the team came to it"
            assert {it.pair.thread: it.open for it in teams.figures()} == {"": 0, "aside": 1}
            with pytest.raises(TurnFailed, match="nothing is open there"):
                await teams.cancel("backend")

    run(left())

    async def next_one() -> None:
        async with open_teams() as teams:
            await until(lambda: {it.answer.status for it in answers(teams)} == {PeerStatus.EXPIRED, PeerStatus.DONE}, 60)
            assert not (team_home.project("backend") / "late.txt").exists()

    run(next_one())


@covers("teams.expiry-behind-a-wait")
def test_a_notice_whose_time_ends_behind_a_turn_that_waits_is_told_then_and_never_delivered(team_home: TeamHome) -> None:
    team_home.write(backend=POOR)

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "list the files", wait=60))
            _, session, _ = await anext(teams.new_shortages("backend"))
            notice = await teams.notify("backend", "write late to `late.txt`", days=1 / 86_400)
            await until(lambda: [it.answer.status for it in answers(teams)] == [PeerStatus.EXPIRED])
            (told,) = await teams.reports("backend", handle=notice.handle)
            assert (told["status"], told["reason"]) == ("expired", "its time was over before the team came to it")
            await house_of(teams).send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            assert (await asking).status == "done"
            assert len(answers(teams)) == 2

    run(story())
