"""Suggestions: the words, and what each takes here and now."""

import pytest

from curtainwall.channels.slash import SuggestionSource, suggest
from curtainwall.model import SessionQuery
from tests.support.desks import MemoryDesk
from tests.support.given import SESSION
from tests.unit.channels.slash.test_control import asking, told


def suggested(desk: MemoryDesk, before: str) -> list[str]:
    known = SuggestionSource(lambda: desk.view(SESSION), lambda: desk.find(SessionQuery()))
    return [before[: len(before) - it.length] + it.text for it in suggest(before, known)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/ap", ["/approve"]),
        ("/RES", ["/reset", "/resume"]),
        ("/mode a", ["/mode accept-edits"]),
        ("/help co", ["/help context", "/help compact"]),
        ("/budget s", ["/budget steps", "/budget seconds"]),
        ("/compact o", ["/compact off"]),
        ("/resume s", ["/resume s1"]),
        ("hello /ap", []),
        ("//ap", []),
        ("/quit ", []),
        ("", []),
        ("/a\n/b", []),
    ],
)
def test_words_and_their_arguments_are_suggested(before: str, after: list[str]) -> None:
    assert suggested(MemoryDesk(), before) == after


def test_open_asks_their_scopes_rules_and_grants_are_suggested() -> None:
    desk, _, approvals = asking("a.example", "b.example")
    for word in ("approve", "deny", "pending", "why"):
        assert suggested(desk, f"/{word} ") == [f"/{word} {approval}" for approval in approvals]
    assert suggested(desk, f"/approve {approvals[0]} s") == [f"/approve {approvals[0]} session"]
    rule = desk.view(SESSION).pending[0].because[0]
    assert f"/disable {rule}" in suggested(desk, "/disable ")
    told(desk, f"/disable {rule}")
    assert suggested(desk, "/enable ") == [f"/enable {rule}"]
    told(desk, f"/approve {approvals[0]} session")
    assert suggested(desk, "/revoke ") == [f"/revoke {desk.view(SESSION).grants[0].id}"]
