"""Real hooks at the real gate: real programs, the shipped policy, a far side that counts what ran."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    AnswerApproval,
    ApprovalAsked,
    ApprovalQuery,
    CallDenied,
    CallRequest,
    ChangeMode,
    Effect,
    ExtensionNoted,
    GrantScope,
    Mode,
    RecordProgress,
    SessionId,
    ToolResult,
)
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.store import MemoryStore
from curtainwall.tools.hooks import HookSettings
from tests.support.covers import covers
from tests.support.hooking import command, python, settings, shell, told, user_hooks
from tests.support.houses import ANN, FarSide, events, house, kinds, open_session, run, tools, until, write


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return (tmp_path / "workspace").resolve()


@pytest.fixture
def far(tmp_path: Path) -> FarSide:
    return FarSide(tmp_path / "far")


@asynccontextmanager
async def staged(
    workspace: Path, far: FarSide, found: HookSettings, **rest: Any
) -> AsyncGenerator[tuple[SessionRegistry, SessionGate, SessionId]]:
    async with house(MemoryStore(SystemClock())) as h:

        async def note(session: SessionId, data: Mapping[str, JsonValue]) -> None:
            noted = ExtensionNoted(at=h.clock.now(), extension="hooks", data=data)
            await h.send(session, RecordProgress(by=SYSTEM, events=(noted,)))

        yield h, SessionGate(h, tools(far), user_hooks(found, note=note)), await open_session(h, workspace, **rest)


def decision(**fields: Any) -> str:
    return f"print(json.dumps({{'hookSpecificOutput': {{'hookEventName': 'PreToolUse', **{fields!r}}}}}))"


def rewriting(tmp_path: Path, **changes: str) -> dict[str, Any]:
    told = "json.load(sys.stdin)['tool_input']"
    body = f"print(json.dumps({{'hookSpecificOutput': {{'updatedInput': {{**{told}, **{changes!r}}}}}}}))"
    return command(python(tmp_path / "rewrite", body))


def open_asks(h: SessionRegistry) -> list[Any]:
    return [row.approval for row in h.stores.index.approvals(ApprovalQuery())]


def test_a_hook_denies_what_policy_allows(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        guard = command(shell(tmp_path / "guard", "echo 'not on sundays' >&2; exit 2"))
        async with staged(workspace, far, settings(tmp_path, PreToolUse=guard)) as (h, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert (answer.verdict.effect, answer.verdict.reason) == (Effect.DENY, "not on sundays")
            assert answer.verdict.because[0].startswith("hook:guard-")
            assert kinds(h, session)[-2:] == ["CallRequested", "CallDenied"]
            assert far.lines == []

    run(story())


@covers("hooks.a-crash-denies")
@pytest.mark.parametrize(
    "line",
    ["exit 1", "kill -9 $$", "echo '{'", "no-such-program-anywhere", "sleep 60", "printf '\\377\\376'", 'echo \'{"continue": "maybe"}\''],
)
def test_a_hook_that_crashes_denies(workspace: Path, far: FarSide, tmp_path: Path, line: str) -> None:
    async def story() -> None:
        guard = command(line, timeout=0.3 if "sleep" in line else 20)
        async with staged(workspace, far, settings(tmp_path, PreToolUse=guard)) as (_, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.verdict.effect is Effect.DENY
            assert "failed" in answer.verdict.reason
            assert far.lines == []

    run(story())


@covers("hooks.a-guard-answers-clearly")
@pytest.mark.parametrize(
    "body",
    [
        """echo checking; echo '{"decision": "block", "reason": "no"}'""",
        """echo '{"decision": "block", "reason": "no"}'; echo done""",
        """echo '{"decision": "approve"}'; echo '{"decision": "block", "reason": "no"}'""",
        """echo '{"decision": "block", "decision": "approve"}'""",
        """echo '{"permissionDecision": "deny"}'""",
        """printf '\\357\\273\\277{"decision": "block"}'""",
        "echo fine",
    ],
)
def test_a_guard_whose_answer_is_not_clear_denies_and_says_what_to_print(workspace: Path, far: FarSide, tmp_path: Path, body: str) -> None:
    async def story() -> None:
        guard = command(shell(tmp_path / "guard", body))
        async with staged(workspace, far, settings(tmp_path, PreToolUse=guard)) as (h, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.verdict.effect is Effect.DENY
            assert answer.verdict.reason.startswith("the hook `guard-")
            assert answer.verdict.reason.endswith("print nothing or one JSON object on stdout, and log lines on stderr")
            assert kinds(h, session)[-2:] == ["CallRequested", "CallDenied"]
            assert far.lines == []

    run(story())


def test_a_guard_that_logs_on_stderr_and_allows_lets_a_call_through(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        guard = command(shell(tmp_path / "guard", """echo checking >&2; echo '{"decision": "approve"}'"""))
        async with staged(workspace, far, settings(tmp_path, PreToolUse=guard)) as (_, gate, session):
            assert (await gate.request(session, write(workspace / "a"))).result is not None
            assert len(far.lines) == 1

    run(story())


@covers("hooks.allow-never-widens")
def test_an_allow_widens_nothing(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        yes = command(python(tmp_path / "yes", decision(permissionDecision="allow", permissionDecisionReason="go on")))
        async with staged(workspace, far, settings(tmp_path, PreToolUse=yes)) as (h, gate, session):
            assert (await gate.request(session, write("/etc/hostname"), wait=False)).waiting
            unknown = await gate.request(session, CallRequest(tool="filesystem.rm_rf", arguments={}))
            assert unknown.verdict.because == ("unknown-tool",)
            await h.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            assert (await gate.request(session, write(workspace / "a"))).verdict.effect is Effect.DENY
            assert far.lines == []

    run(story())


def test_a_hook_has_a_human_asked_and_a_grant_answers_for_this_hook_alone(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        ask = decision(permissionDecision="ask", permissionDecisionReason="look first")
        one, two = (command(python(tmp_path / name, ask)) for name in ("one", "two"))
        async with staged(workspace, far, settings(tmp_path, PreToolUse=one)) as (h, gate, session):
            asking = asyncio.create_task(gate.request(session, write(workspace / "a")))
            [approval] = await until(lambda: open_asks(h))
            shown = next(event.shown for event in events(h, session) if isinstance(event, ApprovalAsked))
            assert "look first" in shown
            assert far.lines == []
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True, scope=GrantScope.SESSION))
            assert (await asking).result == ToolResult(ok=True, value="done")
            assert (await gate.request(session, write(workspace / "a"), wait=False)).result is not None
            both = SessionGate(h, tools(far), user_hooks(settings(tmp_path, PreToolUse=[one, two])))
            assert (await both.request(session, write(workspace / "a"), wait=False)).waiting
            assert len(far.lines) == 2

    run(story())


@covers("hooks.a-rewrite-is-judged-again")
def test_rewritten_arguments_are_judged_again_and_run_as_rewritten(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        inside = settings(tmp_path, PreToolUse=rewriting(tmp_path, path=str(workspace / "b")))
        async with staged(workspace, far, inside) as (_, gate, session):
            assert (await gate.request(session, write(workspace / "a"))).result is not None
            assert far.lines == [f"filesystem.write_file {workspace}/b"]

    run(story())


@covers("hooks.a-rewrite-is-judged-again")
def test_a_path_rewritten_to_outside_asks_and_after_the_answer_it_is_the_one_that_runs(
    workspace: Path, far: FarSide, tmp_path: Path
) -> None:
    async def story() -> None:
        outside = settings(tmp_path, PreToolUse=rewriting(tmp_path, path="/etc/curtainwall-test"))
        async with staged(workspace, far, outside) as (h, gate, session):
            asking = asyncio.create_task(gate.request(session, write(workspace / "a")))
            [approval] = await until(lambda: open_asks(h))
            [asked] = [event for event in events(h, session) if isinstance(event, ApprovalAsked)]
            assert "/etc/curtainwall-test" in {cover.value for cover in asked.covers}
            assert far.lines == []
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await asking).result is not None
            assert far.lines == ["filesystem.write_file /etc/curtainwall-test"]

    run(story())


@pytest.mark.parametrize("changes", [{"extra": "x"}, {"path": "\0"}, {"path": ""}])
def test_a_rewrite_that_means_nothing_is_denied(workspace: Path, far: FarSide, tmp_path: Path, changes: dict[str, str]) -> None:
    async def story() -> None:
        async with staged(workspace, far, settings(tmp_path, PreToolUse=rewriting(tmp_path, **changes))) as (_, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.verdict.because == ("invalid-arguments",)
            assert far.lines == []

    run(story())


def test_a_rewrite_cannot_bring_a_mask_into_a_file(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        found = settings(tmp_path, PreToolUse=rewriting(tmp_path, content="key: [masked:github-token:1a2b3c4d]"))
        async with staged(workspace, far, found) as (_, gate, session):
            secret = CallRequest(tool="filesystem.write_file", arguments={"path": "a", "content": "ghp_" + "a1B2" * 9})
            assert (await gate.request(session, secret)).verdict.because == ("masked-arguments",)
            assert far.lines == []

    run(story())


def test_what_a_rewrite_leaves_masked_stays_as_the_agent_wrote_it(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    written: list[object] = []
    far.on_run = lambda prepared: written.append(prepared.arguments["content"])

    async def story() -> None:
        found = settings(tmp_path, PreToolUse=rewriting(tmp_path, path=str(workspace / "b")))
        async with staged(workspace, far, found) as (_, gate, session):
            content = "password = 'hunter2-and-more'"
            secret = CallRequest(tool="filesystem.write_file", arguments={"path": "a", "content": content})
            assert (await gate.request(session, secret)).result is not None
            assert far.lines == [f"filesystem.write_file {workspace / 'b'}"]
            assert written == [content]

    run(story())


def test_hooks_that_rewrite_differently_deny(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        lines = [command(python(tmp_path / name, decision(updatedInput={"path": name, "content": "x"}))) for name in ("b", "c")]
        async with staged(workspace, far, settings(tmp_path, PreToolUse=lines)) as (_, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.verdict.because == ("hook:ambiguous",)
            assert far.lines == []

    run(story())


@covers("hooks.a-failed-after-hook-is-noted")
def test_a_failure_after_a_call_changes_nothing_and_is_recorded(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        async with staged(workspace, far, settings(tmp_path, PostToolUse=command("exit 9"))) as (h, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.result == ToolResult(ok=True, value="done")
            assert (answer.context, answer.stopped) == ("", None)
            assert kinds(h, session)[-2:] == ["CallFinished", "ExtensionNoted"]

    run(story())


def test_what_hooks_want_the_agent_to_know_comes_with_the_answer(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        before = python(tmp_path / "before", decision(additionalContext="style: tabs"))
        after = shell(tmp_path / "after", "echo 'line 3 is too long' >&2; exit 2")
        found = settings(tmp_path, PreToolUse=command(before), PostToolUse=command(after))
        async with staged(workspace, far, found) as (_, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.result == ToolResult(ok=True, value="done")
            assert answer.context == "style: tabs\nline 3 is too long"

    run(story())


def test_a_stop_denies_and_is_told(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        stop = command("""echo '{"continue": false, "stopReason": "enough"}'""")
        async with staged(workspace, far, settings(tmp_path, PreToolUse=stop)) as (h, gate, session):
            answer = await gate.request(session, write(workspace / "a"))
            assert (answer.verdict.effect, answer.verdict.reason, answer.stopped) == (Effect.DENY, "enough", "enough")
            assert any(isinstance(event, CallDenied) for event in events(h, session))

    run(story())


def test_only_calls_that_are_matched_meet_the_hook(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        group = {"matcher": "Bash|mcp__filesystem__read.*", "hooks": [command(f"cat >> {tmp_path}/told; echo >> {tmp_path}/told")]}
        async with staged(workspace, far, settings(tmp_path, PreToolUse=[group])) as (_, gate, session):
            await gate.request(session, write(workspace / "a"))
            await gate.request(session, CallRequest(tool="filesystem.read_file", arguments={"path": "sub/../a"}))
            [event] = told(tmp_path / "told")
            assert json.dumps(event["tool_input"]) == json.dumps({"path": str(workspace / "a")})

    run(story())
