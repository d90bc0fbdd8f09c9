"""A program of the user's as the automatic approver: what it is told, and that nothing but an exact yes is one."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.tools import ProgramApprover
from curtainwall.tools.hooks import HookSurroundings
from tests.support.covers import covers
from tests.support.hooking import ENVIRON, call, python, shell
from tests.support.houses import run

YES = 'echo \'{"decision": "approved"}\''
READING = call("filesystem.read_file", {"path": "/etc/hosts"})


def said(command: Sequence[str], *words: str, seconds: float = 20, **environ: str) -> str | None:
    masker = Masker(b"k" * 32)
    masker.learn("token", "known-and-secret")
    around = HookSurroundings(masker, {**ENVIRON, **environ}, frozenset({"ANTHROPIC_API_KEY"}))
    return run(ProgramApprover(lambda: command, around, "/", seconds).approves(READING, words))


@covers("approver.a-program-says-exactly-yes")
def test_a_program_that_says_yes_approves_under_its_name(tmp_path: Path) -> None:
    assert said([shell(tmp_path / "guard", f"exec {YES}")]) == "approver guard"


@covers("approver.a-program-says-exactly-yes")
@pytest.mark.parametrize(
    "body",
    [
        "exit 0",
        f"{YES}; exit 1",
        f"{YES}; kill -9 $$",
        f"{YES}; sleep 60",
        "echo approved",
        "echo true",
        """echo '{"decision": "Approved"}'""",
        """echo '{"decision": "denied"}'""",
        """echo '{"decision": "approved", "for": "session"}'""",
        """echo '{"decision": "denied", "decision": "approved"}'""",
        """echo '["decision", "approved"]'""",
        """echo '{"decision": "approved"}{"decision": "approved"}'""",
        "yes | head -c 2000000",
        "head -c 100000 /dev/zero | tr '\\0' '['",
    ],
)
def test_anything_else_leaves_the_ask_to_humans(tmp_path: Path, body: str) -> None:
    assert said([shell(tmp_path / "guard", body)], seconds=2) is None


@pytest.mark.parametrize(("command", "told"), [([], ""), (["/no/such/program"], "no such file"), (["/etc/passwd"], "permission denied")])
def test_without_a_program_that_can_run_the_ask_is_left_to_humans(command: list[str], told: str, caplog: pytest.LogCaptureFixture) -> None:
    assert said(command) is None
    assert [message for message in caplog.messages if told in message] == caplog.messages
    assert bool(caplog.messages) is bool(command), "one that never works would be taken for one that never says yes"


def test_a_program_that_says_no_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert said([shell(tmp_path / "guard", "exit 1")]) is None
    assert caplog.messages == []


@covers("approver.sees-the-subject-and-the-humans-words")
def test_the_program_is_told_the_subject_and_the_words_and_no_secret_of_ours(tmp_path: Path) -> None:
    out = tmp_path / "told"
    body = f"json.dump([json.load(sys.stdin), sorted(os.environ), sys.argv[1:]], open({str(out)!r}, 'w'))"
    program = python(tmp_path / "guard", body)
    assert said([program, "--strict"], "read the hosts", ANTHROPIC_API_KEY="x", MINE="known-and-secret") is None
    told, environ, arguments = json.loads(out.read_text())
    assert told == {
        "tool": "filesystem.read_file",
        "arguments": {"path": "/etc/hosts"},
        "wants": [{"role": it.role, "value": it.value} for it in READING.resources],
        "words": ["read the hosts"],
    }
    assert not {"ANTHROPIC_API_KEY", "MINE"} & set(environ)
    assert arguments == ["--strict"]
