"""Every event that hooks can listen to, in a real session with a real program as each hook, and what each program is given."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from curtainwall import Session, open_session
from curtainwall.agents.builtin.language_model import Delta, ModelFault, ModelReply, Prompt
from curtainwall.agents.builtin.models.script import ScriptModel
from curtainwall.config.schema import HooksSection
from curtainwall.model import Mode, TurnFailed
from tests.support.covers import covers
from tests.support.hooking import shell, told
from tests.support.waiting import until

EVENTS = tuple(name for name in HooksSection.model_fields if name[0].isupper())
LINES = (
    {"code": "await filesystem.read_file(path='/etc/hostname')"},
    {"text": "The file is read."},
    {"text": "And that is all there is to say about it, at some length, so that a summary is worth its while. " * 40},
)


class EndingModel(ScriptModel):
    """A model that plays its script and is then refused by its provider."""

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        if prompt.may_run and prompt.replies >= len(LINES):
            raise ModelFault("key", "the provider says that the key is wrong")
        async for piece in super().reply(prompt):
            yield piece


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the hooks of every event write down what they are given in."""
    home = tmp_path / "cw"
    home.mkdir(mode=0o700)
    line = shell(tmp_path / "hook", f"flock {tmp_path}/lock sh -c '{{ cat; echo; }} >> {tmp_path}/heard'")
    groups = (f'[[hooks.{event}]]\nhooks = [{{type = "command", command = "{line}"}}]\n' for event in EVENTS)
    (home / "config.toml").write_text(f'[hooks]\nidle = "1s"\n{"".join(groups)}')
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    monkeypatch.setenv("CURTAINWALL_HOME", str(home))
    return tmp_path / "heard"


def given_to(heard: Path, event: str, **fields: str) -> list[dict[str, Any]]:
    """Return what the hooks of an event were given, where it has these fields."""
    events = told(heard) if heard.exists() else []
    return [it for it in events if it["hook_event_name"] == event and fields.items() <= it.items()]


@covers("hooks.every-event-fires")
def test_every_event_fires_in_a_real_session_and_carries_what_happened(heard: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with open_session(model=EndingModel.read(tmp_path / "script.jsonl")) as session:
            await work_through(session, heard)

    asyncio.run(story())
    assert {it["hook_event_name"] for it in told(heard)} == set(EVENTS)
    everything = told(heard)
    assert len({it["session_id"] for it in everything}) == 1
    assert {it["cwd"] for it in everything} == {str(tmp_path / "cw" / "sessions" / everything[0]["session_id"] / "workspace")}
    [submitted, *_] = given_to(heard, "UserPromptSubmit")
    assert submitted["prompt"] == "read it"
    [started] = given_to(heard, "SessionStart")
    assert (started["source"], started["model"]) == ("startup", f"script:{tmp_path}/script.jsonl")
    [before], [after] = given_to(heard, "PreToolUse"), given_to(heard, "PostToolUse")
    assert before["tool_input"]["path"] == after["tool_input"]["path"] == "/etc/hostname"
    assert (after["is_error"], after["tool_response"]) == (False, Path("/etc/hostname").read_text())
    [asked] = given_to(heard, "Notification", notification_type="permission_prompt")
    assert asked["title"] == "Approval needed"
    assert asked["message"].startswith("filesystem.read_file waits for an answer")
    assert "/etc/hostname" in asked["message"]
    stopped = given_to(heard, "Stop")
    assert [it["last_assistant_message"] for it in stopped] == ["The file is read.", LINES[2]["text"]]
    assert [(it["response"], it["stop_hook_active"]) for it in stopped] == [(it["last_assistant_message"], False) for it in stopped]
    [failed] = given_to(heard, "StopFailure")
    assert "the key is wrong" in failed["error"]
    assert failed["reason"] == failed["error"]
    [idle] = given_to(heard, "Notification", notification_type="idle_prompt")
    assert (bool(idle["message"]), bool(idle["title"])) == (True, True)
    [prepared], [compacted] = given_to(heard, "PreCompact"), given_to(heard, "PostCompact")
    assert (prepared["trigger"], prepared["custom_instructions"]) == ("manual", "keep names")
    assert compacted["compact_summary"]
    assert {it["permission_mode"] for it in (prepared, compacted, failed)} == {"plan"}
    assert {it["permission_mode"] for it in (submitted, started, before, after, asked)} == {"default"}
    [ended] = given_to(heard, "SessionEnd")
    assert ended["reason"] == "that was all"


async def work_through(session: Session, heard: Path) -> None:
    """Have everything happen that hooks can hear of."""
    waiting = await session.send("read it")
    await session.answer(waiting.pending[0].approval, granted=True)
    assert (await session.go_on()).text == "The file is read."
    await asyncio.to_thread(until, lambda: given_to(heard, "Notification", notification_type="idle_prompt"))
    await session.send("tell me more")
    await session.change_mode(Mode.PLAN)
    await session.compact("keep names")
    await asyncio.to_thread(until, lambda: given_to(heard, "PostCompact"))
    with pytest.raises(TurnFailed):
        await session.send("this is more than the script has")
    await session.close("that was all")
