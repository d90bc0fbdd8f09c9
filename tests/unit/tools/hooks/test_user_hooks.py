"""The user's hooks behind the port: what they are told, which run, and what becomes of what they say."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    Closed,
    HookEvent,
    HookReply,
    HookSays,
    Notification,
    PostCompact,
    PreCompact,
    SessionEnd,
    SessionId,
    SessionStart,
    Stop,
    StopFailure,
    ToolResult,
    UserPromptSubmit,
)
from curtainwall.tools.hooks import Pins, workspace_hooks
from tests.support.covers import covers
from tests.support.hooking import call, command, place, python, settings, shell, told, user_hooks, wait_until_gone
from tests.support.houses import run, until


class Notes(list[Mapping[str, JsonValue]]):
    """What was noted about hooks."""

    async def take(self, session: SessionId, data: Mapping[str, JsonValue]) -> None:
        self.append(data)


def recorder(tmp_path: Path) -> dict[str, Any]:
    return command(f"cat >> {tmp_path}/told; echo >> {tmp_path}/told")


@covers("hooks.stdin")
def test_a_hook_before_a_call_is_told_what_would_run(tmp_path: Path) -> None:
    hooks = user_hooks(settings(tmp_path, PreToolUse=recorder(tmp_path)))
    subject = call("filesystem.write_file", {"path": "/w/a", "content": "x"}, raw={"path": "../w/a", "content": "x"})
    assert run(hooks.before_call(subject, place("/w"))) == HookReply()
    assert told(tmp_path / "told") == [
        {
            "session_id": "s1", "cwd": "/w", "permission_mode": "default", "hook_event_name": "PreToolUse",
            "tool_name": "filesystem.write_file", "tool_input": {"path": "/w/a", "content": "x"},
        }
    ]  # fmt: skip


def test_a_hook_after_a_call_is_told_what_came_of_it(tmp_path: Path) -> None:
    hooks = user_hooks(settings(tmp_path, PostToolUse=recorder(tmp_path)))
    run(hooks.after_call(call(), ToolResult(ok=False, value={"out": "no"}), place("/w")))
    [event] = told(tmp_path / "told")
    assert (event["hook_event_name"], event["tool_response"], event["is_error"]) == ("PostToolUse", {"out": "no"}, True)


def test_a_tool_is_told_under_the_name_by_which_the_matcher_knows_it(tmp_path: Path) -> None:
    groups = [{"matcher": matcher, "hooks": [command(f"cat >> {tmp_path}/told-{number}")]} for number, matcher in enumerate(
        ("*", "mcp__filesystem__write_file", "Write|Edit", "Bash"))]  # fmt: skip
    hooks = user_hooks(settings(tmp_path, PreToolUse=groups))
    run(hooks.before_call(call("filesystem.write_file", {"path": "/w/a", "content": "x"}), place("/w")))
    heard = [
        (event["tool_name"], event["tool_input"].get("file_path")) for number in range(4) for event in told(tmp_path / f"told-{number}")
    ]
    assert heard == [("filesystem.write_file", None), ("mcp__filesystem__write_file", None), ("Write", "/w/a")]


@covers("hooks.stop-carries-the-last-message")
@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (UserPromptSubmit(prompt="hi"), {"prompt": "hi"}),
        (SessionStart(source="fork", model="m"), {"source": "fork", "model": "m"}),
        (SessionEnd(reason="done"), {"reason": "done"}),
        (Stop(last_assistant_message="bye", stop_hook_active=True), {"last_assistant_message": "bye", "stop_hook_active": True}),
        (StopFailure(error="rate_limit", error_details="429"), {"error": "rate_limit", "error_details": "429"}),
        (PreCompact(trigger="manual", custom_instructions="keep names"), {"trigger": "manual", "custom_instructions": "keep names"}),
        (PostCompact(trigger="auto", compact_summary="all"), {"trigger": "auto", "compact_summary": "all"}),
        (
            Notification(message="look", notification_type="permission_prompt"),
            {"message": "look", "notification_type": "permission_prompt"},
        ),
    ],
)
def test_other_events_carry_their_fields(tmp_path: Path, event: HookEvent, fields: dict[str, JsonValue]) -> None:
    hooks = user_hooks(settings(tmp_path, **{type(event).__name__: recorder(tmp_path)}))

    async def story() -> None:
        await hooks.tell(event, place("/w"))
        await hooks.aclose()

    run(story())
    [heard] = told(tmp_path / "told")
    assert {"session_id": "s1", "cwd": "/w", "hook_event_name": type(event).__name__, **fields}.items() <= heard.items()


def test_the_matcher_of_an_event_is_compared_with_what_it_is_about(tmp_path: Path) -> None:
    def heard(event: HookEvent, matcher: str) -> bool:
        (tmp_path / "told").unlink(missing_ok=True)
        hooks = user_hooks(settings(tmp_path, **{type(event).__name__: [{"matcher": matcher, "hooks": [recorder(tmp_path)]}]}))
        run(hooks.tell(event, place("/w")))
        return (tmp_path / "told").exists()

    assert heard(SessionStart(source="startup"), "startup|resume")
    assert not heard(SessionStart(source="fork"), "startup|resume")
    assert heard(PreCompact(trigger="auto"), "auto")
    assert not heard(PreCompact(trigger="manual"), "auto")
    assert heard(StopFailure(error="rate_limit"), "rate_.*")
    assert not heard(Notification(message="x", notification_type="idle"), "permission_prompt")
    assert heard(Stop(last_assistant_message=""), "nothing")
    assert heard(UserPromptSubmit(prompt="x"), "nothing")


@covers("hooks.parallel")
def test_hooks_of_one_event_run_at_the_same_time(tmp_path: Path) -> None:
    # Each waits for the other to be there; one after the other, they would wait for ever.
    lines = [f"touch {tmp_path}/{me}; while [ ! -e {tmp_path}/{other} ]; do sleep 0.01; done" for me, other in (("a", "b"), ("b", "a"))]
    hooks = user_hooks(settings(tmp_path, PreToolUse=[command(line, timeout=20) for line in lines]))
    assert run(hooks.before_call(call(), place("/w"))) == HookReply()


def test_the_same_program_runs_once(tmp_path: Path) -> None:
    hooks = user_hooks(settings(tmp_path, PreToolUse=[{"hooks": [recorder(tmp_path)]}, {"matcher": "*", "hooks": [recorder(tmp_path)]}]))
    run(hooks.before_call(call(), place("/w")))
    assert len(told(tmp_path / "told")) == 1


def test_rewritten_arguments_lose_what_was_only_shown(tmp_path: Path) -> None:
    body = "new = {**json.load(sys.stdin)['tool_input'], 'branch': 'dev'}; print(json.dumps({'hookSpecificOutput': {'updatedInput': new}}))"
    hooks = user_hooks(settings(tmp_path, PreToolUse=[{"matcher": "*", "hooks": [command(python(tmp_path / "x", body))]}]))
    subject = call("git.push", {"path": "/w", "remote": "origin", "urls": ["https://a/b"], "branch": "main"}, raw={"branch": "main"})
    reply = run(hooks.before_call(subject, place("/w")))
    assert reply.arguments == {"branch": "dev"}


def test_an_argument_that_a_hook_really_adds_stays(tmp_path: Path) -> None:
    body = "print(json.dumps({'hookSpecificOutput': {'updatedInput': {'command': 'ls', 'urls': ['evil'], 'new': 1}}}))"
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(python(tmp_path / "x", body))))
    reply = run(hooks.before_call(call(canonical={"command": "ls", "urls": []}, raw={"command": "ls"}), place("/w")))
    assert reply.arguments == {"command": "ls", "urls": ["evil"], "new": 1}


@covers("hooks.a-failed-after-hook-is-noted")
@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("echo oh >&2; exit 1", "it ended with exit code 1: oh"),
        ("kill -9 $$", "it was ended by signal 9"),
        ("echo '{'", "its JSON cannot be used: "),
        ("no-such-program-anywhere", "it ended with exit code 127"),
        ("sleep 60", "it did not end within 0.3 seconds"),
    ],
)
def test_a_hook_that_fails_after_a_call_is_noted_and_nothing_else(tmp_path: Path, line: str, failure: str) -> None:
    notes = Notes()
    hooks = user_hooks(settings(tmp_path, PostToolUse=command(line, timeout=0.3 if "sleep" in line else 20)), note=notes.take)
    assert run(hooks.after_call(call(), ToolResult(ok=True, value="fine"), place("/w"))) == HookReply()
    [note] = notes
    assert note["event"] == "PostToolUse"
    assert str(note["failure"]).startswith(failure)


def test_a_refusal_that_can_change_nothing_is_noted_as_a_failure(tmp_path: Path) -> None:
    notes = Notes()
    hooks = user_hooks(settings(tmp_path, SessionEnd=command("echo no >&2; exit 2")), note=notes.take)
    assert run(hooks.tell(SessionEnd(reason="x"), place("/w"))) == HookReply()
    assert [(note["event"], note["failure"]) for note in notes] == [("SessionEnd", "no")]


def test_context_and_messages_are_noted_and_silence_is_not(tmp_path: Path) -> None:
    notes = Notes()
    line = """echo '{"systemMessage": "look", "hookSpecificOutput": {"additionalContext": "ctx"}}'"""
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(line), PostToolUse=command("echo chatter")), note=notes.take)
    run(hooks.before_call(call(), place("/w")))
    run(hooks.after_call(call(), ToolResult(ok=True, value=""), place("/w")))
    assert [(note["event"], note["context"], note["warning"]) for note in notes] == [("PreToolUse", "ctx", "look")]


def test_a_note_that_cannot_be_kept_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(session: SessionId, data: Mapping[str, JsonValue]) -> None:
        raise Closed("this session is closed")

    hooks = user_hooks(settings(tmp_path, SessionEnd=command("exit 1")), note=refuse)
    assert run(hooks.tell(SessionEnd(reason="x"), place("/w"))) == HookReply()
    assert "exit code 1" in caplog.text


@covers("hooks.masked")
def test_what_a_hook_prints_is_masked(tmp_path: Path) -> None:
    notes = Notes()
    masker = Masker(b"k" * 32, {"deploy": "hunter2-and-more"})
    reasons = user_hooks(settings(tmp_path, PreToolUse=command("echo 'no: hunter2-and-more' >&2; exit 2")), masker=masker)
    says = run(reasons.before_call(call(), place("/w"))).says
    assert says is not None
    assert says.reason.startswith("no: [masked:deploy:")
    others = settings(
        tmp_path, UserPromptSubmit=command("echo hunter2-and-more"), PostToolUse=command("echo hunter2-and-more >&2; exit 1"),
        Stop=command("""echo '{"continue": false, "stopReason": "hunter2-and-more", "systemMessage": "hunter2-and-more"}'"""),
    )  # fmt: skip
    hooks = user_hooks(others, masker=masker, note=notes.take)
    replies = [
        run(hooks.tell(UserPromptSubmit(prompt="x"), place("/w"))),
        run(hooks.after_call(call(), ToolResult(ok=True, value=""), place("/w"))),
        run(hooks.tell(Stop(last_assistant_message=""), place("/w"))),
    ]
    assert len(notes) == 3
    assert "hunter2" not in json.dumps(list(map(dict, notes))) + str(replies)


def test_a_cancelled_call_ends_its_hooks(tmp_path: Path) -> None:
    line = shell(tmp_path / "slow", f"echo $$ > {tmp_path}/pid; exec sleep 600")

    async def story() -> int:
        hooks = user_hooks(settings(tmp_path, PreToolUse=command(line, timeout=600)))
        asking = asyncio.create_task(hooks.before_call(call(), place("/w")))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return int((tmp_path / "pid").read_text())

    wait_until_gone(run(story()))


def test_a_workspace_without_a_pin_costs_no_look(tmp_path: Path) -> None:
    hooks = user_hooks(settings(tmp_path), pins=Pins(tmp_path / "pins.json"))
    subject, here = call(), place(tmp_path)

    async def many() -> float:
        start = time.process_time()
        for _ in range(1_000):
            await hooks.before_call(subject, here)
        return time.process_time() - start

    assert run(many()) < 1


def test_pinned_hooks_of_a_workspace_run_beside_the_users(tmp_path: Path) -> None:
    work = (tmp_path / "work").resolve()
    (work / ".claude").mkdir(parents=True)
    theirs = {"hooks": {"PreToolUse": [{"hooks": [command("pwd -P >&2; exit 2")]}]}}
    (work / ".claude" / "settings.json").write_text(json.dumps(theirs))
    pins = Pins(tmp_path / "pins.json")
    hooks = user_hooks(settings(tmp_path, PreToolUse=recorder(tmp_path)), pins=pins)
    assert run(hooks.before_call(call(), place(work))) == HookReply()
    pins.set(str(work), workspace_hooks(work, {}).digest)
    says = run(hooks.before_call(call(), place(work))).says
    assert says is not None
    assert (says.effect, says.reason) == ("deny", str(work))
    assert len(told(tmp_path / "told")) == 2
    (work / ".claude" / "settings.json").unlink()
    gone = run(hooks.before_call(call(), place(work))).says
    assert gone is not None
    assert (gone.effect, gone.hook) == ("ask", "workspace-changed")
    assert run(hooks.tell(Stop(last_assistant_message=""), place(work))) == HookReply()


def test_an_ask_of_a_hook_has_its_name_and_reason(tmp_path: Path) -> None:
    line = """echo '{"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "sure?"}}'"""
    found = settings(tmp_path, PreToolUse=command(line))
    assert run(user_hooks(found).before_call(call(), place("/w"))).says == HookSays(effect="ask", hook=found.hooks[0].name, reason="sure?")
