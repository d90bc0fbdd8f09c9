"""The ways out of a local agent's process: open in its turns, closed between them."""

import asyncio

import pytest

from curtainwall.compose.external.processes import TurnGate
from curtainwall.egress import ProviderAction, ProviderActionKind
from curtainwall.model import CallRequest, CommandRefused, HostFacts, Scope, SessionId
from tests.support.covers import covers


@covers("process.by-name")
def test_between_turns_a_process_can_neither_call_nor_ask_a_model_nor_reach_a_host() -> None:
    present = TurnGate(gate=None)  # type: ignore[arg-type] - it must not come that far

    async def scenario() -> None:
        with pytest.raises(CommandRefused, match="no turn is at work"):
            await present.request(SessionId("s"), CallRequest(tool="shell.run", arguments={"command": "id"}))
        assert not (await present.begins(call=None)).allowed  # type: ignore[arg-type] - nor is the call looked at
        assert not (await present.decide(HostFacts(host="x.example", port=443, secure=True, scope=Scope.PUBLIC))).allowed
        assert (
            await present.judge(ProviderAction("anthropic", ProviderActionKind.URL, "https://x.example", "messages", removable=True))
            == "remove"
        )

    asyncio.run(scenario())
