"""What is printed in locales whose encoding lacks some characters, and what is made of bytes that are no text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from curtainwall.cli.streams import replace_unencodable
from tests.support.covers import covers
from tests.support.in_process import Places

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1 = {"PYTHONIOENCODING": "latin-1:strict"}
TASK = "read 'h\u00e9 \u2026 \U0001f600.txt'"


def curtainwall(*words: str | bytes, **environ: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "curtainwall", *words], env={**os.environ, **environ}, capture_output=True, check=False, timeout=120
    )
    assert b"UnicodeEncodeError" not in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr, done.stderr
    return done


@covers("cli.any-locale")
@pytest.mark.parametrize(
    ("environ", "answer"),
    [
        ({"LC_ALL": "C"}, "h\u00e9 \u2026 \U0001f600.txt".encode()),
        ({"LC_ALL": "", "LANG": "", "LC_CTYPE": ""}, "h\u00e9 \u2026 \U0001f600.txt".encode()),
        (LATIN_1, b"h\xe9 ... \\ud83d\\ude00.txt"),
    ],
)
def test_an_answer_is_readable_in_every_locale(places: Places, environ: dict[str, str], answer: bytes) -> None:
    done = curtainwall("start", "--workspace", str(places.workspace), TASK, **environ)
    assert answer in done.stdout


def test_a_locale_that_nobody_chose_prints_utf8(places: Places) -> None:
    (places.workspace / "notes.txt").write_text("caf\u00e9 \u2026", encoding="utf-8")
    done = curtainwall("start", "--workspace", str(places.workspace), "read notes.txt", **ASCII)
    assert "caf\u00e9 \u2026".encode() in done.stdout


@covers("cli.any-locale")
@pytest.mark.parametrize("environ", [ASCII, LATIN_1])
def test_json_stays_whole_in_every_locale(places: Places, environ: dict[str, str]) -> None:
    name = "h\u00e9 \u2026 \u201cq\u201d \U0001f600.txt"
    words = ("start", "--workspace", str(places.workspace), "--output", "json", f"read '{name}'")
    session = json.loads(curtainwall(*words, LC_ALL="C.UTF-8").stdout)["session"]
    plain = curtainwall("sessions", "export", session, LC_ALL="C.UTF-8")
    assert name.encode() in plain.stdout
    assert curtainwall("sessions", "export", session, **environ).stdout == plain.stdout
    judged = [json.loads(line) for line in curtainwall("audit", "tail", session, **environ).stdout.splitlines()]
    assert any(name in resource["value"] for line in judged for resource in line.get("resources", ()))


@pytest.mark.parametrize("environ", [{"LC_ALL": "C.UTF-8"}, ASCII])
def test_bytes_that_are_no_text_are_shown_as_escapes(tmp_path: Path, environ: dict[str, str]) -> None:
    home = os.fsencode(tmp_path) + b"/\xff"
    found = curtainwall("--home", home, "config", "path", **environ)
    assert (found.returncode, found.stdout) == (0, os.fsencode(tmp_path) + b"/\\udcff/config.toml\n")
    assert json.loads(curtainwall("--home", home, "config", "path", "--output", "json", **environ).stdout)


@pytest.mark.parametrize("environ", [{"LC_ALL": "C.UTF-8"}, ASCII])
def test_an_argument_that_is_no_text_is_refused(places: Places, environ: dict[str, str]) -> None:
    refused = curtainwall("start", "--workspace", str(places.workspace), b"read \xff", **environ)
    assert refused.returncode == 1
    assert b"cannot be stored" in refused.stderr
    refused = curtainwall("sessions", "show", b"ab\xff", **environ)
    assert refused.returncode == 2
    assert refused.stderr.startswith(rb"curtainwall: `ab\udcff` is not valid ")


def test_a_replacement_never_ends_a_string_in_json() -> None:
    whole = "".join(chr(code) for code in range(0x80, 0x3000)) + "\udcff\U0001f600"
    printed, end = replace_unencodable(UnicodeEncodeError("ascii", whole, 0, len(whole), "test"))
    assert end == len(whole)
    assert printed.isascii()
    assert json.loads(f'"{printed}"').startswith("\x80")
