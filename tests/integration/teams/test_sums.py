"""The figures of conversations: told from where a log was left, and the same as if it had been read from its beginning."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

import pytest

from curtainwall import open_teams
from curtainwall.model import BudgetKind, Feed, RaiseBudget, Recorded, SessionId, StreamId, session_stream
from curtainwall.session import lift
from curtainwall.teams.archive import ConversationTotals
from curtainwall.teams.pairs import Pair
from tests.integration.teams.test_stuck import POOR
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.program import Program, finished, make_program
from tests.support.teams import LISTED, TeamHome, house_of, pair_sessions, wired_of

PAIR = Pair(asker="nobody", team="backend")
LATER = 2_000_000_000_000


@dataclass
class CutFeed:
    """A log as it was at some time, which counts what is read of it."""

    entries: Sequence[Recorded]
    most: int = 10**9
    read_entries: list[int] = field(default_factory=list[int])

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        found = [it for it in self.entries if after < it.seq <= self.most][:limit]
        self.read_entries.append(len(found))
        return found


@covers("teams.listing-reads-what-is-new")
def test_figures_that_are_gone_on_with_are_those_of_the_whole_log_wherever_it_was_left(team_home: TeamHome) -> None:
    team_home.more = f"{LISTED}[peers]\ncompact-after = 2\n"
    team_home.write(backend=POOR)

    async def story() -> None:
        async with open_teams() as teams:
            asking = asyncio.create_task(teams.ask("backend", "list the files", wait=60))
            _, session, _ = await anext(teams.new_shortages("backend"))
            await teams.notify("backend", "later", days=1 / 86_400)
            await house_of(teams).send(session, RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=10**6))
            await asking
            await teams.ask("backend", "list the files", wait=60)
            await until(lambda: [it.open for it in teams.figures()] == [0])
            log = wired_of(teams).store.log
            entries = [Recorded(session_stream(session), it.seq, lift(it)) for it in log.read(session_stream(session))]
        assert len(entries) > 20
        for now in (entries[-1].event.at, LATER):
            for end in range(1, len(entries) + 1):
                whole, left = ConversationTotals(), ConversationTotals()
                whole.read(cast("Feed", CutFeed(entries, end)), session)
                left.read(cast("Feed", CutFeed(entries, end // 2)), session)
                again = ConversationTotals.kept(str(left))
                feed = CutFeed(entries, end)
                again.read(cast("Feed", feed), session)
                assert again == whole
                assert feed.read_entries == [end - end // 2]
                assert again.figures(PAIR, session, now, 10**6) == whole.figures(PAIR, session, now, 10**6)

    run(story())


@covers("teams.listing-reads-what-is-new")
def test_a_list_writes_down_where_it_left_long_logs_and_goes_by_nothing_that_does_not_fit(program: Program, team_home: TeamHome) -> None:
    team_home.write(backend="demo", data="demo")

    def listed() -> list[dict[str, object]]:
        return program.json("teams", "list")["conversations"]

    async def talked() -> None:
        async with open_teams() as teams:
            for _ in range(12):
                await teams.ask("backend", "list the files")
            await teams.ask("data", "list the files")

    async def looked(mark: str) -> None:
        async with open_teams(works=False) as teams:
            often, seldom = pair_sessions(teams)
            archive, marks = wired_of(teams).teams.archive, wired_of(teams).store.marks
            kept = archive.sum(often)
            assert kept is not None
            assert kept.cursor == house_of(teams).feed.head(session_stream(often))
            assert archive.sum(seldom) is None, "so little is not worth writing down"
            assert archive.sum(SessionId("gone")) is None
            assert {it.messages for it in teams.figures()} == {12, 1}
            await marks.set("sums of teams", {often: mark, "gone": str(ConversationTotals(cursor=5))})

    run(talked())
    first = listed()
    run(looked("no sum"))
    assert listed() == first, "what is in disorder is read again"
    run(looked(str(ConversationTotals(cursor=10**6, messages=99))))
    assert listed() == first, "it is of another log"
    with closing(sqlite3.connect(team_home.home / "curtainwall.db")) as db, db:
        (mark,) = [value for name, value in db.execute("SELECT name, value FROM mark WHERE channel = 'sums of teams'") if name != "gone"]
        db.execute("UPDATE mark SET value = ? WHERE value = ?", (mark.replace('"messages":12', '"messages":112'), mark))
    assert {it["messages"] for it in listed()} == {112, 1}, "where it fits it is gone by, and nothing is read"


@pytest.fixture
def program(team_home: TeamHome) -> Iterator[Program]:
    make_program(team_home.scratch)
    made = Program(team_home.scratch)
    try:
        yield made
    finally:
        finished(made)
