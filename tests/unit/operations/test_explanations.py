"""Why things were judged as they were: told from a session's log and the rules in force."""

from pathlib import Path

import pytest

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import AnswerApproval, ApprovalQuery, CallRequest, Effect, NotFound, SessionId, Who
from curtainwall.operations.explanations import Explanations
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.houses import until
from tests.support.talking import Home, home, run

__all__ = ["home"]

ANN = Who(name="ann")


async def wish(wired: GatedSessions, session: SessionId, tool: str, **arguments: str) -> None:
    await wired.gate.request(session, CallRequest(tool=tool, arguments=dict(arguments)), wait=False)


async def opened(wired: GatedSessions) -> SessionId:
    return await open_new(wired.sessions, SessionSpec("demo", agent="nobody"), ANN)


def a_secret(workspace: Path) -> Path:
    found = workspace / ".env"
    found.write_text("COLOUR=blue")
    return found


def test_a_verdict_is_told_with_what_happened_then_and_what_is_so_now(home: Home) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session, explanations = await opened(wired), Explanations(wired.sessions)
            await wish(wired, session, "filesystem.read_file", path=str(home.outside / "a.txt"))
            (approval,) = [row.approval for row in wired.store.index.approvals(ApprovalQuery())]
            asked = explanations.why(session, approval)
            assert (asked.tool, asked.now, [rule.rule for rule in asked.rules]) == ("filesystem.read_file", Effect.ASK, ["read-outside"])
            assert [line.split(" ", 3)[3] for line in asked.then] == [f"asked as {approval} because of read-outside"]
            assert any(str(home.outside / "a.txt") in fact for fact in asked.facts)
            await wired.registry.send(session, AnswerApproval(by=ANN, approval=approval, granted=False, reason="not today"))
            settled = explanations.why(session, approval)
            assert settled.call == asked.call
            assert any(line.endswith("denied by ann, for once (not today)") for line in settled.then)
            assert settled.now is Effect.ASK, "an answer for once changes no rule"

    run(story())


def test_without_a_name_the_last_call_is_meant_and_labels_name_the_call_that_set_them(home: Home) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session, explanations = await opened(wired), Explanations(wired.sessions)
            with pytest.raises(NotFound, match="there was no call here yet"):
                explanations.why(session)
            secret = a_secret(wired.setup.home.session(session).workspace)
            await wish(wired, session, "filesystem.read_file", path=".env")
            # The outcome of a look is in the log a moment after its answer.
            await until(lambda: explanations.why(session).then[-1].endswith(" ran"))
            first = explanations.why(session)
            assert first.then[0].endswith("; it set sensitive")
            assert first.then[-1].endswith(" ran")
            assert [(str(first.call) in line, str(secret) in line) for line in first.labels] == [(True, True)]
            await wish(wired, session, "fetch.get", url="https://example.org/")
            assert "sensitive-stays" in [rule.rule for rule in explanations.why(session).rules]
            assert explanations.why(session, first.call) == first
            with pytest.raises(NotFound, match="no approval and no call `zzz`"):
                explanations.why(session, "zzz")

    run(story())


def test_rules_stand_as_the_session_is_and_count_how_often_they_asked(home: Home) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session, explanations = await opened(wired), Explanations(wired.sessions)
            before = {rule.rule: rule for rule in explanations.rules(session)}
            await wish(wired, session, "filesystem.read_file", path=str(home.outside / "a.txt"))
            after = {rule.rule: rule for rule in explanations.rules(session)}
            assert after.keys() == before.keys()
            assert [name for name in after if after[name] != before[name]] == ["read-outside"]
            with pytest.raises(NotFound):
                explanations.rules(SessionId("0000000000000000"))

    run(story())
