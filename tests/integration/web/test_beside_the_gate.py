"""What happened past the gate, as a person at a browser sees it: on the session's page while it happens, and in the audit."""

import pytest
from playwright.sync_api import expect

from curtainwall.model import (
    SYSTEM,
    Progress,
    RecordProgress,
    RefusedRequest,
    ReportedUse,
    RequestsRefused,
    ToolUsesReported,
    TurnId,
)
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import Web

TURN = TurnId("t1")
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("scripts", [True, False])
@covers("web.beside-the-gate")
def test_refused_requests_and_reported_tools_are_on_the_page_of_the_session_and_in_the_audit(
    screens: Screens, web: Web, *, scripts: bool
) -> None:
    house = web.served.wired.registry
    session = web.session()
    page = screens.window("ann", java_script_enabled=scripts)
    page.goto(f"{web.base}/sessions/{session}")
    now = house.clock.now()
    refused = RefusedRequest(kind="key", host="api.example", method="POST", path=f"/{MARKUP}", reason="not listed", key="[masked:key:ab]")
    happened: tuple[Progress, ...] = (
        RequestsRefused(at=now, turn=TURN, requests=(refused,), more=3),
        ToolUsesReported(at=now, turn=TURN, uses=(ReportedUse(tool="Bash", arguments=f"ls {MARKUP}"),)),
    )
    web.do(house.send(session, RecordProgress(by=SYSTEM, events=happened)))
    if not scripts:
        page.reload()
    expect(page.locator("#items")).to_contain_text(
        f"the network proxy refused POST api.example/{MARKUP} with key [masked:key:ab]: not listed; 3 more requests"
    )
    expect(page.locator("#items")).to_contain_text(f"the agent says it used its own tools: Bash ls {MARKUP}")
    audit = f"{web.base}/audit?session={session}"
    web.until(lambda: page.goto(audit) and page.locator(".timeline .ToolUsesReported").count())
    expect(page.locator(".timeline .RequestsRefused")).to_contain_text("refused by the proxy")
    expect(page.locator(".timeline .RequestsRefused")).to_contain_text(f"POST api.example/{MARKUP} with key [masked:key:ab]: not listed")
    expect(page.locator(".timeline .ToolUsesReported")).to_contain_text("reported by the agent")
    expect(page.locator(".timeline .ToolUsesReported")).to_contain_text(f"Bash ls {MARKUP}")
    page.goto(f"{audit}&kind=refused requests")
    expect(page.locator(".timeline .RequestsRefused")).to_have_count(1)
    expect(page.locator(".timeline .ToolUsesReported")).to_have_count(0)
