"""The examples run to their end, without a terminal and without a home."""

import subprocess
import sys

from tests.integration.app.conftest import ROOT, Program


def test_the_tour_of_the_gate_shows_what_it_promises(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "gate_tour.py")],
        capture_output=True,
        text=True,
        env=program.environ,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("allow (known-tool, workspace-free)", "deny (protected-path)", "granted once", "the human's answer covers read-outside",
                  "salaries.txt", "deny (denied-by-human)", "ok: 20 entries", "ApprovalAnswered → CallDropped"):  # fmt: skip
        assert words in done.stdout, words
    assert "nobody should read this" not in done.stdout
    assert "\x1b" not in done.stdout
    assert not program.home.exists()


def test_the_example_of_the_library_holds_its_conversation(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "library.py")],
        capture_output=True,
        text=True,
        env=program.environ,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("1. done: ", "buy milk", "2. asked because of read-outside: yes", "2. done: ", "paint the fence blue", "3. I will list",
                  "todo.txt", "turn: 'read todo.txt', 1 calls, done", "(estimated)"):  # fmt: skip
        assert words in done.stdout, words
    assert not program.home.exists()
