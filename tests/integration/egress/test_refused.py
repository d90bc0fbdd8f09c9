"""What the proxy refuses is reported, whoever sent it and however it left; what the gate has logged is not reported again."""

from collections.abc import Sequence
from pathlib import Path

from curtainwall.egress import HostDecision, Refusal
from curtainwall.model import HostFacts
from tests.support.covers import covers
from tests.support.egress import Ledger, session
from tests.support.houses import run, until

FOREIGN = "sk-ant-api03-" + "stolen0123456789" * 5


class Reports:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.refused: list[tuple[Refusal, int]] = []
        self.more = 0

    async def report(self, refused: Sequence[tuple[Refusal, int]], more: int) -> None:
        self.refused += refused
        self.more += more

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(refusal.kind, f"{refusal.method} {refusal.host}{refusal.path}") for refusal, _ in self.refused]


@covers("brokered.refusals-recorded")
def test_every_way_out_that_is_closed_is_reported_by_its_kind(tmp_path: Path) -> None:
    async def decide(facts: HostFacts) -> HostDecision:
        return HostDecision(allowed=False, is_logged=facts.host == "logged.example")

    async def story() -> None:
        reports = Reports()
        async with session(tmp_path, report=reports.report, decide=decide) as there:
            await there.ask(there.request(key=f"x-api-key: {FOREIGN}"))
            await there.ask(there.request(headers=[f"authorization: Bearer {FOREIGN}"]))
            await there.ask(there.request(key=""))
            await there.ask(there.request(path="/v1/files?q=secret"))
            await there.ask(there.request(method="GET", path="/api/claude_code/settings"))
            await there.ask(there.request(method="GET", path="/api/claude_code/settings", key=f"x-api-key: {FOREIGN}"))
            await there.ask(there.request(method="GET", path="/api/claude_code/settings?q=secret"))
            await there.ask(there.request(b'{"a":1,"a":2}'))
            for line in (
                "GET http://user:pass@collect.example/drop?q=secret",
                "CONNECT 10.0.0.1:443",
                "CONNECT api.anthropic.com:22",
                "CONNECT api.openai.com:443",
                "CONNECT unlogged.example:443",
                "CONNECT logged.example:443",
            ):
                async with there.raw() as client:
                    await client.send(f"{line} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                    await client.answer()
            await there.proxy.close()
            assert reports.kinds == [
                ("key", "POST api.anthropic.com/v1/messages"),
                ("key", "POST api.anthropic.com/v1/messages"),
                ("key", "POST api.anthropic.com/v1/messages"),
                ("endpoint", "POST api.anthropic.com/v1/files"),
                ("key", "GET api.anthropic.com/api/claude_code/settings"),
                ("endpoint", "GET api.anthropic.com/api/claude_code/settings"),
                ("malformed", "POST api.anthropic.com/v1/messages"),
                ("host", "GET collect.example/drop"),
                ("host", "CONNECT 10.0.0.1:443"),
                ("host", "CONNECT api.anthropic.com:22"),
                ("host", "CONNECT api.openai.com:443"),
                ("host", "CONNECT unlogged.example:443"),
            ]
            assert [refusal.key for refusal, _ in reports.refused][:3] == [FOREIGN, FOREIGN, ""]
            assert "secret" not in repr(reports.refused)
            assert there.far.seen == []

    run(story())


def test_what_is_over_budget_and_what_a_provider_refuses_is_no_such_refusal(tmp_path: Path) -> None:
    async def story() -> None:
        reports = Reports()
        async with session(tmp_path, report=reports.report, ledger=Ledger(refuses="used up")) as there:
            (got,) = await there.ask(there.request())
            assert got.status == 403
            await there.proxy.close()
            assert not reports.refused

    run(story())


@covers("brokered.refusals-recorded")
def test_a_client_that_is_gone_before_its_answer_and_a_flood_are_counted(tmp_path: Path) -> None:
    async def story() -> None:
        reports = Reports()
        async with session(tmp_path, report=reports.report) as there:
            for number in range(300):
                async with there.raw() as client:
                    await client.send(f"CONNECT host{number}.example:443 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                    await until(lambda number=number: there.proxy.counters.refused == number + 1)
            await there.proxy.close()
            assert len(reports.refused) == 10
            assert reports.more == 290

    run(story())
