"""Claude Code's settings, read strictly: what cannot be honoured never vanishes silently."""

import re
from typing import Any

import pytest

from curtainwall.facts import canonical_url
from curtainwall.model import Broken
from curtainwall.tools.hooks import EVENTS, CommandHook, HttpHook, read_settings
from curtainwall.tools.hooks.settings import Hook, Matcher
from tests.support.covers import covers

GUARD = {"type": "command", "command": "guard"}


def hooks(**events: Any) -> dict[str, Any]:
    return {"hooks": events}


def test_the_format_of_claude_code_is_read() -> None:
    told = hooks(
        PreToolUse=[{"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "check.sh", "timeout": 5}]}],
        Stop=[{"hooks": [{"type": "http", "url": "http://localhost:9/stop", "headers": {"X": "$T"}, "allowedEnvVars": ["T"]}]}],
    )
    before, stop = read_settings(told, directory="/d").hooks
    assert (before.event, before.matcher.text, before.action, before.seconds, before.directory) == (
        "PreToolUse", "Bash|Edit", CommandHook("check.sh"), 5, "/d",
    )  # fmt: skip
    assert isinstance(stop.action, HttpHook)
    assert (stop.action.url.text, stop.action.headers, stop.action.variables, stop.seconds) == (
        "http://localhost:9/stop", (("X", "$T"),), ("T",), 60,
    )  # fmt: skip


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_is_known(event: str) -> None:
    assert read_settings(hooks(**{event: [{"hooks": [GUARD]}]}), directory="/", strict=True).hooks[0].event == event


def test_other_keys_of_a_settings_file_are_not_ours() -> None:
    assert read_settings({"permissions": {"allow": ["*"]}, "env": {}, "model": "x"}, directory="/").hooks == ()


@covers("hooks.a-guard-never-vanishes")
@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"hooks": [{"type": "prompt", "prompt": "ok?"}]}, "its `type` must be `command` or `http`"),
        ({"hooks": [{"type": "command"}]}, "`command` is missing"),
        ({"hooks": [{"type": "command", "command": ""}]}, "`command` must not be empty"),
        ({"hooks": [{**GUARD, "if": "Bash(rm *)"}]}, "`if` is not supported here"),
        ({"hooks": [{**GUARD, "async": True}]}, "`async` is not supported here"),
        ({"hooks": [{**GUARD, "timeout": 0}]}, "`timeout`"),
        ({"hooks": [{**GUARD, "timeout": True}]}, "`timeout`"),
        ({"hooks": [{**GUARD, "timeout": "60"}]}, "`timeout`"),
        ({"hooks": [{**GUARD, "command": "a\0b"}]}, "NUL"),
        ({"hooks": [{**GUARD, "shell": "powershell"}]}, "`shell`"),
        ({"hooks": [{"type": "http", "url": "file:///etc/passwd"}]}, "does not start with `https://` or `http://`"),
        ({"hooks": [{"type": "http", "url": "http://a\\b/"}]}, "backslash"),
        ({"hooks": ["guard"]}, ""),
        ({"hooks": GUARD}, "`hooks`"),
        ({"matcher": "(", "hooks": [GUARD]}, "the matcher `(` is no regular expression"),
        ({"matcher": 5, "hooks": [GUARD]}, "`matcher`"),
        ({"matcher": "*", "hook": [GUARD], "hooks": []}, "`hook` is not supported here"),
        ("guard", ""),
    ],
)
def test_a_guard_that_cannot_be_honoured_refuses_the_file(group: object, why: str) -> None:
    with pytest.raises(Broken, match=r"`hooks\.PreToolUse\[0\]") as caught:
        read_settings(hooks(PreToolUse=[group]), directory="/")
    assert why in str(caught.value)


def test_what_guards_nothing_is_left_out_and_named() -> None:
    told = hooks(SubagentStop=[{"hooks": [GUARD]}], Notification=[{"hooks": [GUARD, {"type": "agent", "prompt": "x"}]}])
    read = read_settings(told, directory="/")
    assert [hook.event for hook in read.hooks] == ["Notification"]
    assert read.notes == (
        "`hooks.SubagentStop` is left out: there is no such event here",
        "`hooks.Notification[0].hooks[1]` is left out: its `type` must be `command` or `http`",
    )
    with pytest.raises(Broken, match="SubagentStop"):
        read_settings(told, directory="/", strict=True)


@pytest.mark.parametrize("told", [[], None, {"hooks": []}, {"hooks": {"Stop": {}}}])
def test_settings_of_another_shape_are_refused(told: Any) -> None:
    with pytest.raises(Broken):
        read_settings(told, directory="/")


def test_hooks_that_are_switched_off_are_off_and_this_is_said() -> None:
    read = read_settings({**hooks(PreToolUse=[{"hooks": [GUARD]}]), "disableAllHooks": True}, directory="/")
    assert (read.hooks, len(read.notes)) == ((), 1)


@covers("hooks.a-name-is-one-hook")
def test_a_name_can_be_read_and_is_another_one_as_soon_as_anything_differs() -> None:
    def name(group: dict[str, Any], **handler: Any) -> str:
        return read_settings(hooks(PreToolUse=[{**group, "hooks": [{**GUARD, **handler}]}]), directory="/").hooks[0].name

    assert re.fullmatch(r"guard-[0-9a-f]{6}", name({}))
    assert name({}, command="python3 /x/check.py --all").startswith("check.py-")
    assert name({}, command="$(rm -rf)\n;").isprintable()
    all_of_them = [name({}), name({"matcher": "Bash"}), name({}, timeout=5), name({}, command="/a/guard"), name({}, command="/b/guard")]
    assert len(set(all_of_them)) == 5


@covers("hooks.a-name-is-one-hook")
def test_names_are_those_of_0_1_0_because_rules_and_grants_refer_to_them() -> None:
    def name(action: CommandHook | HttpHook) -> str:
        return Hook("PreToolUse", Matcher("Bash"), action, 60.0, "/home/u").name

    assert name(CommandHook("cat > /dev/null")) == "cat-be6008"
    assert name(CommandHook("/x/y", ("a", "b"), "bash")) == "y-90c1e7"
    url = canonical_url("https://Example.com:8443/a%20b?q=1#f")
    assert name(HttpHook(url, (("A", "b $X"),), ("X",))) == "example.com-ce20fe"
    assert name(HttpHook(canonical_url("http://127.0.0.1/hook"))) == "127.0.0.1-b8dbfe"
