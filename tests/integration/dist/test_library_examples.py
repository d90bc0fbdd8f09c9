"""The examples of the library are type-checked and run against the installed wheel, outside the repository."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.dist.test_installed import environment as environment
from tests.support.covers import covers
from tests.support.repository import ROOT

EXAMPLES = {
    "conversation": ("1. done: ", "buy milk", "2. I will list", "turn: 'list the files here', done, calls: 1"),
    "live_events": ("text: 'I will read '", "tool: filesystem.read_file finished 'buy milk'", "context: estimated", "turn: done"),
    "own_tools": (
        "app.count_lines asks because of read-outside: no",
        "app.place_order asks because of unjudged-tool: yes",
        "app.price: 1.2",
        "app.place_order: ordered milk",
    ),
    "approver": (
        "done: I read ",
        "secrets stay here",
        "waiting: ",
        "a human has to decide: filesystem.write_file, because of project-edit",
    ),
    "limits": ("waiting, used up: steps", "done: ", "steps: 2 of 10 (measured)"),
    "interrupt": ("nothing runs yet", "first: interrupted", "then: done: I stopped searching."),
    "fork": ("copy: I read `todo.txt`: buy bread", "original: I read `todo.txt`: buy milk", "parent: True", "remembers 0 turns"),
    "history": ("turn: 'read todo.txt', done, 1 call(s)", "note: ticket opened, {'ticket': 4711}", "call: filesystem.read_file"),
    "teams": ("backend: done: I read `api.txt`: GET /prices", "message: the frontend has moved, answer: "),
    "web_service": ('{"status":"waiting"', "asked: tool: filesystem.write_file", '{"status":"done"', "todo.txt: bread"),
}


@covers("library.examples-run")
def test_every_example_of_the_library_runs_with_the_installed_wheel(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "library", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    assert {path.stem for path in (tmp_path / "examples").glob("*.py")} == set(EXAMPLES)
    (tmp_path / "home").mkdir()

    def outcome(name: str) -> tuple[str, int, str, str]:
        done = subprocess.run(
            (environment / "bin/python", "-W", "error", tmp_path / "examples" / f"{name}.py"),
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        return name, done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(2) as pool:
        for name, code, out, err in pool.map(outcome, EXAMPLES):
            assert (code, err) == (0, ""), (name, out, err)
            for words in EXAMPLES[name]:
                assert words in out, (name, words, out)
    assert os.listdir(tmp_path / "home") == [], "an example writes nothing outside its own directory"


@covers("library.examples-run")
def test_every_example_of_the_library_type_checks_in_strict_mode_with_the_installed_wheel(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "library", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": ["examples"], "typeCheckingMode": "strict"}))
    command = (sys.executable, "-m", "basedpyright", "--outputjson", "--project", tmp_path, "--pythonpath", environment / "bin/python")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    summary = json.loads(done.stdout)
    assert (summary["summary"]["filesAnalyzed"], summary["generalDiagnostics"]) == (len(EXAMPLES), []), done.stdout
