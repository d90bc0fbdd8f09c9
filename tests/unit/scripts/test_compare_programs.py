"""The script that compares two programs finds one changed word, and takes ids and times for the same."""

import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

MAIN = """
import secrets, sys, time

ID = "1" + "".join(secrets.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(15))
if sys.argv[1:] == ["--help"]:
    print("Usage: curtainwall\\n\\nCommands:\\n  look  look at something")
elif sys.argv[1:] == ["look", "--help"]:
    print(f"session {ID} at {time.strftime('%Y-%m-%d %H:%M')}: {ID} is WORD")
else:
    print("used wrongly", file=sys.stderr)
    sys.exit(CODE)
"""


def program(place: Path, word: str = "here", code: int = 2) -> Path:
    package = place / "src" / "curtainwall"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(MAIN.replace("WORD", word).replace("CODE", str(code)))
    return package.parent


def compare(old: Path, new: Path, only: str = "help") -> tuple[int, str]:
    words = [sys.executable, str(ROOT / "scripts" / "compare-programs"), str(old), str(new), "--only", only]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_same_program_does_not_differ_from_itself(tmp_path: Path) -> None:
    code, out = compare(program(tmp_path / "old"), program(tmp_path / "new"))
    assert "0 differ" in out
    assert code == 0


def test_one_changed_word_is_shown(tmp_path: Path) -> None:
    code, out = compare(program(tmp_path / "old"), program(tmp_path / "new", word="there"))
    assert code == 1
    assert "=== help: look --help" in out
    assert "-session <id 1> at <time>: <id 1> is here" in out
    assert "+session <id 1> at <time>: <id 1> is there" in out
    assert "1 differ" in out


def test_another_exit_code_is_shown(tmp_path: Path) -> None:
    code, out = compare(program(tmp_path / "old"), program(tmp_path / "new", code=1))
    assert code == 1
    assert "-exit code 2" in out
    assert "+exit code 1" in out
