"""Teams that Claude Code serves as a confined process of this machine: memory, the cap on processes, and every way in which it can fail."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from curtainwall import open_teams
from curtainwall.compose.sessions import Parts
from curtainwall.library.teams import Teams
from curtainwall.model import Batch, BudgetKind, CommandRefused, HistoryCompacted, NotFound, RaiseBudget, StreamId, TurnStarted
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.store.disk.store import SqliteLog
from curtainwall.teams.adoption import on_disk, recent_on_disk
from tests.support import fake_claude
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.program import Program, finished, make_program
from tests.support.prompted import Prompted, prompted_beside
from tests.support.real_parts import CLAUDE
from tests.support.teams import LISTED, LOCAL, TeamHome, events_in, pair_sessions, serve_with, wired_of
from tests.support.upstream import KEY, Says


@pytest.fixture
def provider() -> Iterator[Prompted]:
    with prompted_beside() as site:
        yield site


@pytest.fixture
def program(short_home: TeamHome, provider: Prompted, real_part: Callable[[str], str]) -> Iterator[Program]:
    """Return `curtainwall` with three teams that the real Claude Code serves."""
    real_part("claude-code")
    make_program(short_home.scratch)
    made = Program(short_home.scratch)
    short_home.more = (
        f'{LISTED}[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n'
        "[peers]\nwait = 60\ncompact-after = 4\nwarm = 1\n"
    )
    short_home.write(frontend=LOCAL, mobile=LOCAL, backend=LOCAL)
    try:
        yield made
    finally:
        finished(made)


@covers("teams.local-agents-remember")
def test_claude_code_remembers_each_asker_apart_and_after_a_restart_of_everything(program: Program) -> None:
    def ask(asker: str, text: str) -> str:
        return program.json("teams", "ask", "backend", "--from", asker, text, ANTHROPIC_API_KEY=KEY)["text"]

    async def in_one_process() -> None:
        async with open_teams("frontend") as teams:
            assert (await teams.ask("backend", "word=alpha")).text == "HEARD: alpha"
            assert (await teams.ask("backend", "word=beta")).text == "HEARD: alpha, beta", "the second answer uses the first"

    run(in_one_process())
    assert ask("mobile", "word=gamma") == "HEARD: gamma", "it sees nothing of the other"
    assert ask("frontend", "word=delta") == "HEARD: alpha, beta, delta"
    listed = {told["asker"]: told for told in program.json("teams", "list")["conversations"]}
    assert (listed["frontend"]["messages"], listed["mobile"]["messages"]) == (3, 1)
    assert listed["frontend"]["tokens"] > 0
    assert ask("frontend", "word=epsilon") == "HEARD: alpha, beta, delta, epsilon"

    async def summarised() -> None:
        async with open_teams("frontend") as teams:
            first = pair_sessions(teams)[0]
            await until(lambda: any(isinstance(event, HistoryCompacted) for event in events_in(teams, first)), 60)
            assert (await teams.ask("backend", "word=omega")).status == "done"

    run(summarised())


@covers("process.carries-over", "teams.a-used-up-budget-is-told")
def test_a_budget_that_a_summary_uses_up_parks_the_turn_and_the_answer_comes_when_a_human_allows_more(
    short_home: TeamHome, provider: Prompted, program: Program
) -> None:
    nearly = 190_000
    short_home.write(backend={**LOCAL, "tokens": str(nearly + 1_300)})
    summary = Says(("what was said: ", "word=alpha word=beta"))
    # The first summary is cut off where the budget ends; the second is asked for once there is more.
    provider.will(Says(("one moment",)), Says(("nearly full",), read=nearly), summary, summary)

    async def story() -> None:
        async with open_teams() as teams:
            for word in ("alpha", "beta"):
                assert (await teams.ask("backend", f"word={word}")).status == "done"
            asking = asyncio.create_task(teams.ask("backend", "word=gamma", wait=60))
            _, session, _ = await asyncio.wait_for(anext(teams.new_shortages("backend")), 60)
            later = await teams.ask("backend", "word=delta", wait=0.01)
            assert (later.status, later.exhausted) == ("waiting", ("tokens",))
            await wired_of(teams).registry.send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            told = await asking
            assert (told.status, told.text) == ("done", "HEARD: alpha, beta, gamma")
            assert (await teams.ask("backend", "word=epsilon")).text == "HEARD: alpha, beta, gamma, delta, epsilon"
            assert [event.trigger for event in events_in(teams, session) if isinstance(event, HistoryCompacted)] == ["overflow"]

    run(story())


@covers("teams.local-agents-are-capped")
def test_never_more_processes_than_the_cap_and_no_busy_one_is_stopped(short_home: TeamHome, fake: Path) -> None:
    serve_with(short_home, fake, "most = 2\n")

    async def story() -> None:
        async with open_teams() as teams:
            seen: list[int] = []
            watching = asyncio.create_task(count(short_home.project("backend"), seen))
            told = await asyncio.gather(*(talk(teams, f"thread{number}") for number in range(6)))
            watching.cancel()
            assert told == [[f"message {each}: {fake_claude.SLOWLY} {each}" for each in (1, 2, 3)]] * 6
            assert max(seen) == 2

    run(story())
    assert list(short_home.home.glob("sessions/*/state/started-*")), "the processes leave word where we look for it"
    assert not list(short_home.home.glob("sessions/*/state/busy-*")), "one was stopped in the middle of its work"


async def talk(teams: Teams, thread: str) -> list[str]:
    return [(await teams.ask("backend", f"{fake_claude.SLOWLY} {each}", thread=thread, wait=90)).text for each in (1, 2, 3)]


async def count(project: Path, seen: list[int]) -> None:
    """Note, again and again, how many agents work in a project."""
    while True:
        seen.append(sum(works_in(project, place) for place in Path("/proc").glob("[0-9]*")))  # noqa: ASYNC240 - memory, no disk
        await asyncio.sleep(0.01)


def works_in(project: Path, place: Path) -> bool:
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
        return words[1:2] == [b"-I"] and b"--print" in words and (place / "cwd").readlink() == project
    except OSError:
        return False


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (fake_claude.HANGS, "no sign of life for 3 seconds"),
        (fake_claude.GARBAGE, "Segmentation fault 0"),
        (fake_claude.LEAVES, "ended without an answer"),
        (fake_claude.CRASHES, "exit code 139"),
        (fake_claude.ERRS, "it was too much"),
    ],
)
@covers("teams.local-agents-fail-by-name")
def test_a_fault_is_told_by_its_name_in_bounded_time_and_the_pair_works_again(
    short_home: TeamHome, fake: Path, words: str, told: str
) -> None:
    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", "first")).text == "message 1: first"
            began = time.monotonic()
            failed = await teams.ask("backend", words, wait=60)
            assert time.monotonic() - began < 60
            assert failed.status == "failed"
            assert told in failed.text
            assert (await teams.ask("backend", "third", wait=60)).text == "message 3: third"

    run(story())


@covers("teams.archiving-frees-space", "teams.looked-after-from-the-command-line")
def test_an_archived_conversation_takes_less_space_and_goes_on_with_the_next_message(short_home: TeamHome, fake: Path) -> None:
    def states() -> list[str]:
        return sorted(path.name for path in short_home.home.glob("sessions/*/state*") if path.is_file() or any(path.iterdir()))

    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", "first " * 1_000, wait=60)).status == "done"
            (figures,) = teams.figures()
            assert (figures.status, states()) == ("active", ["state"])
            assert "bytes were freed" in await teams.archive("backend")
            (figures,) = teams.figures()
            assert (figures.status, states()) == ("archived", ["state.tar.xz"])
            assert on_disk(wired_of(teams).teams)[0].standing.state == "kept"
        async with open_teams() as teams:
            assert (await teams.ask("backend", "second", wait=60)).text == "message 2: second"
            (figures,) = teams.figures()
            assert (figures.status, states()) == ("active", ["state"])
        async with open_teams(works=False) as teams:
            assert await teams.sleep("backend") == "asleep"
            assert "bytes were freed" in await teams.archive("backend")
            with pytest.raises(CommandRefused, match="no process works for the teams"):
                await teams.wake("backend")
            with pytest.raises(NotFound, match="no such conversation"):
                await teams.archive("backend", thread="none")

    run(story())


@covers("teams.all-of-a-reply", "teams.long-answers")
def test_every_text_of_a_reply_reaches_the_asker_also_from_a_turn_that_fails(short_home: TeamHome, fake: Path) -> None:
    async def story() -> None:
        async with open_teams() as teams:
            whole = await teams.ask("backend", fake_claude.SPLITS, wait=60)
            assert whole.text == f"first part\n\nsecond part\n\nmessage 1: {fake_claude.SPLITS}"
            failed = await teams.ask("backend", fake_claude.BREAKS, wait=60)
            assert (failed.status, failed.fault, failed.partial) == ("failed", "AgentGarbled", "half an ")
            assert "broken JSON" in failed.text
            long = await teams.ask("backend", "x" * 40_000, wait=60)
            assert (long.status, len(long.text)) == ("done", len("message 3: ") + 40_000)
            (report,) = await teams.reports("backend", handle=failed.handle)
            assert report["partial"] == "half an "
            assert len(await teams.history("backend")) == 3

    run(story())


@pytest.mark.parametrize(
    ("does", "fault"),
    [
        ("exec sleep 600", "AgentSilent"),
        ("exec cat /dev/urandom", "AgentGarbled"),
        ("exit 0", "NoAnswer"),
        ("echo \"error: unknown option '--tools'\" >&2; exit 1", "WrongVersion"),
    ],
)
@covers("teams.local-agents-fail-by-name")
def test_a_program_that_is_no_agent_at_all_is_told_by_its_fault_and_the_right_one_works_again(
    short_home: TeamHome, fake: Path, does: str, fault: str
) -> None:
    right, wrong = fake.read_text(), f"#!/bin/sh\n{does}\n"

    async def story() -> None:
        async with open_teams() as teams:
            await asyncio.to_thread(fake.write_text, wrong)
            began = time.monotonic()
            failed = await teams.ask("backend", "first", wait=60)
            assert time.monotonic() - began < 60
            assert (failed.status, failed.fault) == ("failed", fault), failed
            await asyncio.to_thread(fake.write_text, right)
            assert (await teams.ask("backend", "second", wait=60)).text.endswith("second")

    run(story())


@covers("teams.two-commits")
def test_a_warm_ask_is_two_commits(short_home: TeamHome, fake: Path) -> None:
    async def story() -> None:
        async with SqliteStore.open(short_home.home, SystemClock(), decode=lift) as store:
            counted = Counted(store.log)
            store.log = counted  # type: ignore[assignment] - the same port, counted
            async with open_teams(parts=Parts(store=store)) as teams:
                await teams.ask("backend", "first")
                await until(lambda: not wired_of(teams).registry.peek(pair_sessions(teams)[0]).turn)  # type: ignore[union-attr] - it is here
                counted.batches.clear()
                assert (await teams.ask("backend", "second")).text == "message 2: second"
                told = [[type(event).__name__ for write in batch.writes for event in write.events] for batch in counted.batches]
                assert told == [
                    ["CallRequested", "CallPermitted", "PeerMessageSent", "MessageAccepted", "TurnStarted"],
                    [
                        *("ExtensionNoted", "AgentSpoke", "WorkTimed"),
                        *("PeerAnswered", "TurnEnded", "PeerAnswerTaken", "CallFinished"),
                    ],
                ]

    run(story())


class Counted:
    """A log that remembers what was written in one piece."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log
        self.batches: list[Batch] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        self.batches.append(batch)
        return await self._log.append(batch)


@pytest.mark.parametrize("damage", ["deleted", "truncated", "unreadable"])
@covers("teams.local-agents-fail-by-name")
def test_a_lost_transcript_is_said_in_the_answer_and_the_pair_works_again(short_home: TeamHome, fake: Path, damage: str) -> None:
    async def ask(text: str) -> str:
        async with open_teams() as teams:
            return (await teams.ask("backend", text, wait=60)).text

    assert run(ask("first")) == "message 1: first"
    (transcript,) = short_home.home.glob("sessions/*/state/projects/*/*.jsonl")
    if damage == "deleted":
        transcript.unlink()
    elif damage == "truncated":
        transcript.write_text(json.dumps({"type": "user"})[:8] + "\n")
    else:
        transcript.unlink()
        transcript.mkdir()
    answer = run(ask("second"))
    assert "second" in answer
    assert run(ask("third")).startswith("message 2: "), "one new conversation, which goes on"


def test_a_missing_program_and_a_thought_before_the_answer_are_told_right(short_home: TeamHome, fake: Path) -> None:
    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", fake_claude.THINKS)).text == f"message 1: {fake_claude.THINKS}"
        fake.rename(fake.with_suffix(".gone"))  # noqa: ASYNC240 - a test may wait
        async with open_teams() as teams:
            failed = await teams.ask("backend", "hello")
            assert (failed.status, "install it (`npm install" in failed.text) == ("failed", True)
        fake.with_suffix(".gone").rename(fake)
        async with open_teams() as teams:
            assert (await teams.ask("backend", "again")).text.startswith("message 2: ")

    run(story())


@covers("teams.the-most-used-are-warm")
def test_the_most_used_pairs_are_got_ready_before_anybody_asks(short_home: TeamHome, fake: Path) -> None:
    serve_with(short_home, fake, own="demo")

    def starts(words: str) -> int:
        (found,) = [path for path in short_home.home.glob("sessions/*/state/projects/*/*.jsonl") if words in path.read_text()]
        return len(list(found.parents[2].glob("started-*")))

    async def talked() -> None:
        async with open_teams() as teams:
            await teams.ask("backend", "often")
            await teams.ask("backend", "often")
            await teams.ask("backend", "seldom", thread="aside")
            for _ in range(3):
                assert (await teams.ask("own", "list the files")).status == "done", "it is ready as it is, and takes no place of the others"

    run(talked())
    home = short_home.home / "config.toml"
    home.write_text(f"{home.read_text()}[peers]\nwarm = 1\n")
    before = starts("often"), starts("seldom")

    async def warmed() -> None:
        async with open_teams() as teams:
            await until(lambda: starts("often") == before[0] + 1)
            assert (await teams.ask("backend", "again")).text == "message 3: again"
            assert (starts("often"), starts("seldom")) == (before[0] + 1, before[1])

    run(warmed())


@covers("teams.archived-by-age")
def test_a_pair_that_nobody_uses_counts_as_archived_is_not_got_ready_and_wakes_with_a_message(short_home: TeamHome, fake: Path) -> None:
    serve_with(short_home, fake, "silence = 5\n[peers]\narchive-after = 3\nwarm = 5\n")

    async def story() -> None:
        async with open_teams() as teams:
            await teams.ask("backend", "first")
            assert [it.status for it in teams.figures()] == ["active"]
            await until(lambda: [it.status for it in teams.figures()] == ["archived"])

    run(story())

    async def again() -> None:
        async with open_teams() as teams:
            assert [it.status for it in teams.figures()] == ["archived"]
            conversations = wired_of(teams).teams
            assert (len(on_disk(conversations)), recent_on_disk(conversations)) == (1, []), "nobody reads it before it is used again"
            assert (await teams.ask("backend", "second")).text == "message 2: second"
            assert [it.status for it in teams.figures()] == ["active"]
            assert [it.standing.state for it in recent_on_disk(conversations)] == ["kept"]

    run(again())
    assert len(list(short_home.home.glob("sessions/*/state/started-*"))) == 2


@covers("process.carries-over")
def test_a_pair_near_the_limit_of_its_model_goes_on_in_a_new_conversation_with_a_summary(short_home: TeamHome, fake: Path) -> None:
    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", "first")).text == "message 1: first"
            assert (await teams.ask("backend", fake_claude.FULL)).text == f"message 2: {fake_claude.FULL}"
            told = (await teams.ask("backend", "third", wait=60)).text
            assert told.startswith(
                "message 1: This goes on from an earlier conversation, which came to this:\n\nmessage 3: This conversation"
            )
            assert told.endswith("third")
            assert (await teams.ask("backend", "fourth")).text == "message 2: fourth"
            (pair,) = pair_sessions(teams)
            assert [event.trigger for event in events_in(teams, pair) if isinstance(event, HistoryCompacted)] == ["overflow"]
            assert [it.messages for it in teams.figures()] == [4]

    run(story())
    assert len(list(short_home.home.glob("sessions/*/state/projects/*/*.jsonl"))) == 2


@covers("teams.nobody-is-cut-short-by-a-leaver")
def test_whoever_leaves_with_an_answer_begins_nothing_that_it_would_break_off(short_home: TeamHome, fake: Path) -> None:
    async def first() -> None:
        async with open_teams() as teams, open_teams() as other, teams.leaving():
            asking = asyncio.create_task(teams.ask("backend", fake_claude.SLOWLY, wait=60))
            await until(lambda: [it.open for it in teams.figures()] == [1])
            await other.send("backend", "second")
            assert (await asking).text == f"message 1: {fake_claude.SLOWLY}"

    run(first())

    async def next_one() -> None:
        async with open_teams(works=False) as teams:
            (pair,) = pair_sessions(teams)
            assert sum(isinstance(event, TurnStarted) for event in events_in(teams, pair)) == 1
        async with open_teams() as teams:
            assert (await teams.ask("backend", "third", wait=60)).text == "message 3: third"
            assert [it.get("answer") for it in await teams.history("backend")][1] == "message 2: second"

    run(next_one())
