"""Refusals on their way to the log: each kind at once, repeats counted, and a flood never more than a few lines."""

import asyncio
from collections.abc import Sequence

from curtainwall.egress import Refusal
from curtainwall.egress.refusals import Refusals
from tests.support.covers import covers
from tests.support.houses import run, until


class Kept:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[tuple[Sequence[tuple[Refusal, int]], int]] = []

    async def report(self, refused: Sequence[tuple[Refusal, int]], more: int) -> None:
        self.reports.append((refused, more))

    @property
    def total(self) -> int:
        return sum(more + sum(count for _, count in refused) for refused, more in self.reports)


def refusal(path: str = "/v1/files", kind: str = "endpoint") -> Refusal:
    return Refusal(kind, "api.example", "POST", path, "no")  # type: ignore[arg-type] - a kind by its name


def test_the_first_of_its_kind_is_reported_at_once_and_repeats_when_the_proxy_closes() -> None:
    async def story() -> None:
        kept = Kept()
        refusals = Refusals(kept.report, 60)
        for _ in range(5):
            refusals.note(refusal())
        await until(lambda: kept.reports)
        assert kept.reports == [(((refusal(), 1),), 0)]
        await refusals.close(5)
        assert kept.reports[1:] == [(((refusal(), 4),), 0)]
        await refusals.close(5)
        assert len(kept.reports) == 2

    run(story())


@covers("brokered.refusals-recorded")
def test_a_flood_is_a_few_reports_that_count_all_of_it_and_hides_no_other_kind() -> None:
    async def story() -> None:
        kept = Kept()
        refusals = Refusals(kept.report, 60)
        for number in range(10_000):
            refusals.note(refusal(f"/v1/{number}"))
        refusals.note(refusal("/v1/messages", "key"))
        await refusals.close(5)
        assert len(kept.reports) == 12
        assert kept.total == 10_001
        assert [refused[0][0].kind for refused, _ in kept.reports if refused][-1] == "key"

    run(story())


def test_while_refusals_go_on_reports_come_ever_more_rarely() -> None:
    async def story() -> None:
        kept = Kept()
        refusals = Refusals(kept.report, 0.02)
        until_ = asyncio.get_running_loop().time() + 1.3
        noted = 0
        while asyncio.get_running_loop().time() < until_:
            refusals.note(refusal())
            noted += 1
            await asyncio.sleep(0)
        await refusals.close(5)
        assert kept.total == noted
        # Windows of 20, 40, 80, 160, 320 and 640 ms, each with its first refusal and its count.
        assert len(kept.reports) <= 16

    run(story())


def test_the_key_is_in_no_text_about_a_refusal() -> None:
    assert "sk-secret" not in repr(Refusal("key", "h", "POST", "/", "no", "sk-secret"))


def test_a_report_that_fails_disturbs_nobody() -> None:
    async def fails(refused: Sequence[tuple[Refusal, int]], more: int) -> None:
        raise OSError("the disk is full")

    async def story() -> None:
        refusals = Refusals(fails, 60)
        refusals.note(refusal())
        refusals.note(refusal())
        await refusals.close(5)

    run(story())
