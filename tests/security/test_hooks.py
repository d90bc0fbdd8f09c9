"""Hooks under attack: programs gone wild, hostile workspaces, and agents that want a guard to vanish or to run for them."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from curtainwall.facts import Masker
from curtainwall.model import CallDenied, Effect, HookReply, Stop, ToolResult, UserPromptSubmit
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.tools.hooks import HookSettings, Pins, workspace_hooks
from tests.support.covers import covers
from tests.support.hook_seams import said as denied
from tests.support.hooking import call, command, place, python, settings, shell, user_hooks, wait_until_gone
from tests.support.houses import FarSide, events, house, open_session, run, tools, write


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".claude").mkdir(parents=True)
    return (tmp_path / "work").resolve()


def bring(work: Path, **events: Any) -> None:
    told = {"hooks": {event: [{"matcher": "*", "hooks": [command(line)]}] for event, line in events.items()}}
    (work / ".claude" / "settings.json").write_text(json.dumps(told))


@covers("hooks.output-is-bounded")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_hundred_megabytes_of_output_deny_and_cost_little(tmp_path: Path, stream: str) -> None:
    line = python(tmp_path / "flood", f"for _ in range(1600): sys.{stream}.write('x' * 65536)")
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(line), PostToolUse=command(line), UserPromptSubmit=command(line)))
    start = time.monotonic()
    assert "printed more than" in denied(run(hooks.before_call(call(), place("/w"))))
    assert run(hooks.after_call(call(), ToolResult(ok=True, value=""), place("/w"))) == HookReply()
    assert run(hooks.tell(UserPromptSubmit(prompt="x"), place("/w"))) == HookReply()
    assert time.monotonic() - start < 60


def test_a_hook_without_an_end_is_ended_with_its_children(tmp_path: Path) -> None:
    body = f"trap '' TERM HUP INT; (trap '' TERM HUP INT; echo $$ >> {tmp_path}/pids; sleep 600) & echo $$ >> {tmp_path}/pids; sleep 600"
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(shell(tmp_path / "stuck", body), timeout=3)))
    start = time.monotonic()
    assert "did not end within 3 seconds" in denied(run(hooks.before_call(call(), place("/w"))))
    assert time.monotonic() - start < 40
    for pid in (tmp_path / "pids").read_text().split():
        wait_until_gone(int(pid))


def test_children_that_hold_the_pipes_open_hold_up_nobody(tmp_path: Path) -> None:
    line = shell(tmp_path / "fork", f"for i in 1 2 3; do sleep 600 & echo $! >> {tmp_path}/pids; done; echo no >&2; exit 2")
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(line, timeout=60)))
    start = time.monotonic()
    assert denied(run(hooks.before_call(call(), place("/w")))) == "no"
    assert time.monotonic() - start < 40
    for pid in (tmp_path / "pids").read_text().split():
        wait_until_gone(int(pid))


@covers("hooks.output-is-hostile")
@pytest.mark.parametrize("where", ["", "{"])
def test_garbage_is_a_failure_and_never_an_answer(tmp_path: Path, where: str) -> None:
    line = python(tmp_path / "garbage", f"sys.stdout.buffer.write({where.encode()!r} + bytes(range(256)) * 100)")
    hooks = user_hooks(settings(tmp_path, PreToolUse=command(line), UserPromptSubmit=command(line), Stop=command(line)))
    assert "failed" in denied(run(hooks.before_call(call(), place("/w"))))
    assert run(hooks.tell(UserPromptSubmit(prompt="x"), place("/w"))) == HookReply()
    assert run(hooks.tell(Stop(last_assistant_message=""), place("/w"))) == HookReply()


@covers("hooks.workspace-hooks-need-trust")
def test_the_hooks_of_a_workspace_never_run_unless_trusted(tmp_path: Path, work: Path) -> None:
    mark = tmp_path / "ran"
    bring(work, PreToolUse=f"touch {mark}", PostToolUse=f"touch {mark}", UserPromptSubmit=f"touch {mark}", Stop=f"touch {mark}")
    pins = Pins(tmp_path / "pins.json")

    def everything() -> bool:
        mark.unlink(missing_ok=True)
        hooks = user_hooks(HookSettings(), pins=pins)
        run(hooks.before_call(call(), place(work)))
        run(hooks.after_call(call(), ToolResult(ok=True, value=""), place(work)))
        run(hooks.tell(UserPromptSubmit(prompt="x"), place(work)))
        run(hooks.tell(Stop(last_assistant_message=""), place(work)))
        return mark.exists()

    assert not everything()
    pins.set("/another/workspace", workspace_hooks(work, {}).digest)
    assert not everything()
    pins.set(str(work), workspace_hooks(work, {}).digest)
    assert everything()  # the positive control
    bring(work, PreToolUse=f"touch {mark}; true", Stop=f"touch {mark}")
    assert not everything()


@covers("hooks.pinned-programs")
def test_an_agent_that_rewrites_a_trusted_program_gets_it_switched_off_and_a_human_asked(tmp_path: Path, work: Path) -> None:
    mark = tmp_path / "ran"
    bring(work, PreToolUse=shell(work / "guard.sh", "exit 0"))
    pins = Pins(tmp_path / "pins.json")
    pins.set(str(work), workspace_hooks(work, {}).digest)
    hooks = user_hooks(HookSettings(), pins=pins)
    assert run(hooks.before_call(call(), place(work))) == HookReply()
    shell(work / "guard.sh", f"touch {mark}")
    reply = run(hooks.before_call(call(), place(work)))
    assert reply.says is not None
    assert (reply.says.effect, reply.says.hook) == ("ask", "workspace-changed")
    assert f"the hooks of `{work}` are not those that were trusted and do not run; see `curtainwall hooks list`" in reply.says.reason
    assert not mark.exists()


@pytest.mark.parametrize("how", ["remove", "garble", "empty", "unreadable-shape"])
def test_a_trusted_guard_that_vanishes_has_a_human_asked(tmp_path: Path, work: Path, how: str) -> None:
    bring(work, PreToolUse="exit 2")
    pins = Pins(tmp_path / "pins.json")
    pins.set(str(work), workspace_hooks(work, {}).digest)
    file = work / ".claude" / "settings.json"
    match how:
        case "remove":
            file.unlink()
        case "garble":
            file.write_text("{")
        case "empty":
            file.write_text('{"hooks": {}}')
        case _:
            file.write_text('{"hooks": {"PreToolUse": [{"hooks": [{"type": "agent"}]}]}}')
    reply = run(user_hooks(HookSettings(), pins=pins).before_call(call(), place(work)))
    assert reply.says is not None
    assert reply.says.effect == "ask"
    assert "are not those that were trusted" in reply.says.reason


@covers("hooks.not-in-the-workspace")
def test_a_module_in_the_workspace_is_not_what_an_ordinary_hook_imports(tmp_path: Path, work: Path) -> None:
    mark, home = tmp_path / "escaped", tmp_path / "home"
    home.mkdir()
    (work / "json.py").write_text(f"open({str(mark)!r}, 'w')")
    line = f"{sys.executable} -c 'import json, sys; json.load(sys.stdin)'"
    hooks = user_hooks(settings(home, PreToolUse=command(line)))
    assert run(hooks.before_call(call(), place(work))) == HookReply()
    assert not mark.exists()
    in_workspace = user_hooks(settings(work, PreToolUse=command(line)))  # the positive control: this is what would have happened
    run(in_workspace.before_call(call(), place(work)))
    assert mark.exists()


@covers("hooks.environment-without-our-secrets")
def test_our_keys_are_neither_in_a_hooks_environment_nor_in_what_it_prints_into_the_log(tmp_path: Path, work: Path) -> None:
    secret, other = "sk-ant-api03-ours", "deploy-key-of-ours-0123"

    async def story() -> bytes:
        environ = {"ANTHROPIC_API_KEY": secret, "SOME_DSN": f"x{other}y", "PATH": os.environ["PATH"]}
        masker = Masker(b"k" * 32, {"anthropic": secret, "deploy": other})
        guard = command(f"env > {tmp_path}/env; echo 'leaks {secret} and {other}' >&2; exit 2")
        hooks = user_hooks(settings(tmp_path, PreToolUse=guard), environ=environ, masker=masker, withheld=frozenset({"ANTHROPIC_API_KEY"}))
        async with SqliteStore.open(tmp_path / "store", SystemClock(), decode=lift) as store, house(store) as h:
            session = await open_session(h, work)
            answer = await SessionGate(h, tools(FarSide(tmp_path / "far")), hooks).request(session, write(work / "a"))
            assert answer.verdict.effect is Effect.DENY
            assert "[masked:deploy:" in answer.verdict.reason
            assert any(isinstance(event, CallDenied) for event in events(h, session))
        return b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())

    stored = run(story())
    assert b"leaks [masked:" in stored
    for text in (secret, other):
        assert text.encode() not in stored
        assert text not in (tmp_path / "env").read_text()


@covers("hooks.a-crash-denies")
def test_a_guard_that_is_overrun_by_many_calls_still_denies_each(tmp_path: Path) -> None:
    hooks = user_hooks(settings(tmp_path, PreToolUse=command("cat > /dev/null; exit 2")))

    async def storm() -> list[HookReply]:
        return await asyncio.gather(*(hooks.before_call(call(canonical={"command": f"rm {number}"}), place("/w")) for number in range(100)))

    assert all(reply.says is not None and reply.says.effect == "deny" for reply in run(storm()))


def test_what_an_agent_writes_into_arguments_is_data_to_a_hook(tmp_path: Path) -> None:
    mark = tmp_path / "escaped"
    nasty = f"$(touch {mark}) `touch {mark}` '; touch {mark}; ' \" \n}}{{ \0"
    line = python(tmp_path / "read", "sys.exit(0 if json.load(sys.stdin)['tool_input']['command'].startswith('$(touch') else 2)")
    hooks = user_hooks(settings(tmp_path, PreToolUse=[command(line), command(line, args=["--x"])]))
    assert run(hooks.before_call(call(canonical={"command": nasty}), place("/w"))) == HookReply()
    assert not mark.exists()
