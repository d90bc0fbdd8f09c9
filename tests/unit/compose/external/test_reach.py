"""What a foreign agent wants from the network past its tools: denied unless a rule permits it, and then judged as anything else."""

import asyncio
from pathlib import Path

from curtainwall.compose.connections import TurnNetworkGate
from curtainwall.egress import ProviderAction, ProviderActionKind
from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    BudgetKind,
    CallDenied,
    CallPermitted,
    CallRequested,
    HostFacts,
    Scope,
    SessionId,
    SubjectKind,
    TurnAt,
    TurnId,
)
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools.session_tools import session_runners
from tests.support.covers import covers
from tests.support.houses import ANN, events, house, open_session, until
from tests.support.mcp import native
from tests.support.policies import policy
from tests.support.talking import of, run

SEARCH = ProviderAction("anthropic", ProviderActionKind.WEB, "web_search_20250305", "tools[0]", removable=True)
HOST = HostFacts(host="example.com", port=443, secure=False, scope=Scope.PUBLIC)
MINE = """
@id("my-search") permit (principal, action == Action::"use-tool", resource == Tool::"egress.provider_web");
@id("my-tunnels") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");
@id("my-pictures") permit (principal, action == Action::"use-tool", resource == Tool::"egress.provider_url");
"""


async def no_more(_session: SessionId, _kind: BudgetKind, more: float) -> float:
    return more


@covers("brokered.tunnels-denied", "brokered.provider-tools")
def test_without_a_rule_everything_is_denied_and_asked_for_once_a_turn(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            asking = TurnNetworkGate(SessionGate(opened, native(session_runners(no_more))), TurnAt(session=session, turn=TurnId("t")))
            for _ in range(3):
                assert await asking.judge(SEARCH) == "remove"
                ruling = await asking.decide(HOST)
                assert not ruling.allowed
                assert ruling.reason.startswith("What no rule knows is refused")
            told = events(opened, session)
            assert [event.subject.tool for event in of(CallRequested, told)] == ["egress.provider_web", "egress.connect"]
            assert {event.subject.kind for event in of(CallRequested, told)} == {SubjectKind.EGRESS}
            assert len(of(CallDenied, told)) == 2

    run(story())


@covers("brokered.tunnels-asked", "brokered.provider-tools")
def test_with_a_rule_a_search_passes_and_a_connection_is_asked_about(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(MINE))) as opened:
            session = await open_session(opened, tmp_path)
            asking = TurnNetworkGate(SessionGate(opened, native(session_runners(no_more))), TurnAt(session=session, turn=TurnId("t")))
            assert await asking.judge(SEARCH) == "allow"

            async def answer(*, granted: bool, number: int) -> ApprovalAsked:
                asks = await until(lambda: of(ApprovalAsked, events(opened, session))[number:])
                await opened.send(session, AnswerApproval(by=ANN, approval=asks[0].approval, granted=granted))
                return asks[0]

            ruling, asked = await asyncio.gather(asking.decide(HOST), answer(granted=True, number=0))
            assert ruling.allowed
            assert [(cover.role, cover.value) for cover in asked.covers] == [("send-url", "https://example.com")]
            picture = ProviderAction("openai", ProviderActionKind.URL, "https://example.com/a.png", "input[0]", removable=False)
            handling, asked = await asyncio.gather(asking.judge(picture), answer(granted=False, number=1))
            assert handling == "remove"
            assert [(cover.role, cover.value) for cover in asked.covers] == [("fetch-url", "https://example.com")]
            assert len(of(CallPermitted, events(opened, session))) == 2

    run(story())
