"""What is remembered of archived conversations, and when it is not gone by."""

from curtainwall.model import SessionId
from curtainwall.runtime import SystemClock
from curtainwall.store import MemoryStore
from curtainwall.teams.archive import Archive, ArchivedLog
from curtainwall.teams.pairs import Pair, PairFigures
from tests.support.houses import house, run

PAIR = Pair(asker="frontend", team="backend")
ONE, TWO = SessionId("one"), SessionId("two")
FIGURES = PairFigures(PAIR, ONE, 1, 2, 3, 0, 4, 0.5, "archived")


def test_figures_are_those_that_were_told_while_the_log_is_as_it_was() -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            archive = Archive(opened.stores.marks, opened.feed)
            assert (archive.figures(PAIR, ONE), archive.at_rest()) == (None, {})
            await archive.keep([ArchivedLog(ONE, 7, 0, FIGURES), ArchivedLog(TWO, 8, 0, None)])
            assert archive.figures(PAIR, ONE) == FIGURES
            assert archive.figures(PAIR, TWO) is None
            assert archive.at_rest() == {ONE: 7, TWO: 8}
            await archive.keep([ArchivedLog(ONE, 7, 9, FIGURES)])
            assert archive.figures(PAIR, ONE) is None, "the log ends elsewhere"
            await archive.forget_all_but({TWO})
            assert archive.at_rest() == {TWO: 8}

    run(story())
