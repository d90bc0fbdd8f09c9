"""A workspace's own hooks: found, and trusted only as they stood when someone looked."""

import json
import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import Broken
from curtainwall.tools.hooks import HookTrust, Pins, workspace_hooks
from tests.support.covers import covers
from tests.support.hooking import command, shell


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".claude" / "hooks").mkdir(parents=True)
    return (tmp_path / "work").resolve()


def bring(work: Path, *lines: str, name: str = "settings.json", **rest: Any) -> None:
    told = {"hooks": {"PreToolUse": [{"hooks": [command(line) for line in lines]}]}, **rest}
    (work / ".claude" / name).write_text(json.dumps(told))


def trust(work: Path, digest: str) -> HookTrust:
    return workspace_hooks(work, {str(work): digest}).trust


def test_a_workspace_without_hooks_has_none(work: Path) -> None:
    assert workspace_hooks(work, {}).trust is HookTrust.NONE
    (work / ".claude" / "settings.json").write_text('{"permissions": {}}')
    assert workspace_hooks(work, {}).trust is HookTrust.NONE


@covers("hooks.pinned-by-content")
def test_hooks_are_untrusted_until_pinned_and_again_when_anything_changes(work: Path) -> None:
    bring(work, "echo a")
    found = workspace_hooks(work, {})
    assert (found.trust, [str(hook.action) for hook in found.settings.hooks], found.settings.hooks[0].directory) == (
        HookTrust.UNTRUSTED, ["echo a"], str(work),
    )  # fmt: skip
    assert trust(work, found.digest) is HookTrust.PINNED
    bring(work, "echo a", permissions={"allow": ["Bash"]})
    assert trust(work, found.digest) is HookTrust.PINNED
    bring(work, "echo b")
    assert trust(work, found.digest) is HookTrust.CHANGED
    bring(work, "echo a")
    bring(work, "echo more", name="settings.local.json")
    assert trust(work, found.digest) is HookTrust.CHANGED


def test_the_pin_is_for_the_real_path(work: Path, tmp_path: Path) -> None:
    bring(work, "echo a")
    (tmp_path / "link").symlink_to(work)
    digest = workspace_hooks(tmp_path / "link", {}).digest
    assert workspace_hooks(tmp_path / "link", {str(work): digest}).trust is HookTrust.PINNED
    assert workspace_hooks(work, {str(tmp_path / "link"): digest}).trust is HookTrust.UNTRUSTED


@covers("hooks.pinned-programs")
@pytest.mark.parametrize(
    "line",
    [
        ".claude/hooks/x.sh",
        '"$CLAUDE_PROJECT_DIR"/.claude/hooks/x.sh --all',
        "${CLAUDE_PROJECT_DIR}/.claude/hooks/x.sh",
        "sh ./.claude/hooks/../hooks/x.sh",
        "cat|.claude/hooks/x.sh;true",
        "env A=.claude/hooks/x.sh true",
        "python3 --file=.claude/hooks/x.sh",
        "'unclosed .claude/hooks/x.sh .claude/hooks/x.sh",
        "bash -c 'true && .claude/hooks/x.sh --all'",
    ],
)
def test_the_programs_that_commands_name_are_part_of_the_pin(work: Path, line: str) -> None:
    shell(work / ".claude" / "hooks" / "x.sh", "exit 0")
    bring(work, line)
    found = workspace_hooks(work, {})
    assert found.files == (str(work / ".claude" / "hooks" / "x.sh"),)
    shell(work / ".claude" / "hooks" / "x.sh", "curl evil")
    assert trust(work, found.digest) is HookTrust.CHANGED
    (work / ".claude" / "hooks" / "x.sh").unlink()
    assert trust(work, found.digest) is HookTrust.CHANGED


def test_a_link_is_pinned_by_what_it_leads_to(work: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shell(tmp_path / name, f"echo {name}")
    (work / "run").symlink_to(tmp_path / "one")
    bring(work, "./run")
    digest = workspace_hooks(work, {}).digest
    assert trust(work, digest) is HookTrust.PINNED
    (work / "run").unlink()
    (work / "run").symlink_to(tmp_path / "two")
    assert trust(work, digest) is HookTrust.CHANGED


def test_a_file_that_appears_under_a_name_that_a_command_uses_changes_the_pin(work: Path) -> None:
    bring(work, "git status")
    digest = workspace_hooks(work, {}).digest
    shell(work / "git", "evil")
    assert trust(work, digest) is HookTrust.CHANGED


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "\xff", "[" * 100_000])
def test_settings_in_disorder_are_refused(work: Path, content: str) -> None:
    (work / ".claude" / "settings.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(Broken, match=r"settings\.json` is no JSON"):
        workspace_hooks(work, {})


def test_what_is_no_regular_file_is_not_read(work: Path) -> None:
    os.mkfifo(work / ".claude" / "settings.json")
    assert workspace_hooks(work, {}).trust is HookTrust.NONE
    os.mkfifo(work / "pipe")
    bring(work, "./pipe", name="settings.local.json")
    assert workspace_hooks(work, {}).files == ()


def test_a_directory_that_a_command_names_is_no_program(work: Path) -> None:
    (work / "src").mkdir()
    bring(work, "ruff check src", "ls .claude")
    before = len(os.listdir("/proc/self/fd"))
    assert workspace_hooks(work, {}).files == ()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_settings_far_too_big_are_refused(work: Path) -> None:
    (work / ".claude" / "settings.json").write_bytes(b" " * (5 * 1024 * 1024))
    with pytest.raises(Broken, match="bigger than"):
        workspace_hooks(work, {})


def test_pins_are_kept_in_a_file_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    pins = Pins(path)
    assert pins.all() == {}
    pins.set("/a", "1")
    pins.set("/b", "2")
    pins.set("/a", "3")
    assert Pins(path).all() == pins.all() == {"/a": "3", "/b": "2"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    pins.set("/a", None)
    assert Pins(path).all() == {"/b": "2"}


def test_a_pin_of_another_process_is_seen_at_once(tmp_path: Path) -> None:
    mine, other = Pins(tmp_path / "pins.json"), Pins(tmp_path / "pins.json")
    assert mine.all() == {}
    other.set("/a", "1")
    assert mine.all() == {"/a": "1"}


TRUSTS = """
import sys
from pathlib import Path
from curtainwall.tools.hooks import Pins
path, who = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    Pins(path).set(f"/{who}/{number}", "1")
"""


@covers("hooks.two-at-once-are-both-trusted")
def test_of_two_processes_that_trust_at_the_same_moment_neither_loses_a_pin(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", TRUSTS, str(path), who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for who in ("a", "b")
        ]
        for each in both:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in both:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.close()
        pins = Pins(path)
        while any(each.poll() is None for each in both):
            pins.all()
        assert [each.returncode for each in both] == [0, 0]
    assert len(pins.all()) == 200


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\x00"])
def test_pins_in_disorder_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "pins.json").write_text(content)
    with pytest.raises(Broken, match="trust your workspaces again"):
        Pins(tmp_path / "pins.json").all()
