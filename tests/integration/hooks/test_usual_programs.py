"""Hooks as projects write them, trusted and run for real: with what they need beside themselves, or with a word about what they miss."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import Mode
from curtainwall.tools.hooks import HookTrust, exchange_warnings, missing_beside_copies, workspace_hooks
from tests.support.covers import covers
from tests.support.hook_seams import bring, fired, said, trusted
from tests.support.hooking import ENVIRON, command


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in (".claude/hooks", "scripts/lib", "node_modules/.bin"):
        (tmp_path / "work" / name).mkdir(parents=True)
    return (tmp_path / "work").resolve()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environment(work: Path) -> Path:
    """Make a real environment of Python, with a package that only it has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", work / ".venv"], check=True, timeout=60)
    (packages,) = (work / ".venv/lib").glob("python3*/site-packages")
    write(packages / "only_there.py", "WORD = 'only there'")
    return work / ".venv/bin/python"


BASH = 'set -euo pipefail\nHERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nsource "$HERE/lib/say.sh"\nsay\n'
SAY = {"lib/say.sh": "say() { echo 'from beside' >&2; exit 2; }\n"}
SAY_IN_PYTHON = "import sys\ndef say():\n    print('from beside', file=sys.stderr)\n    return 2\n"
NODE_FILE = "const word = fs.readFileSync(path.join(__dirname, 'lib', 'w'))\n"
NODE = "process.stderr.write(word); process.exitCode = 2\n"
PYTHON = "#!/usr/bin/env python3\nimport pathlib, sys\n"
PROGRAMS: dict[str, tuple[str, str, dict[str, str]]] = {
    "sh": ("check.sh", '#!/bin/sh\nset -e\n. "$(dirname "$0")/lib/say.sh"\nsay\n', SAY),
    "sh-by-its-name": ("check.sh", '#!/bin/sh\nset -e\n. "${0%/*}/lib/say.sh"\nsay\n', SAY),
    "bash": ("check.sh", f"#!/usr/bin/env bash\n{BASH}", SAY),
    "a-program-beside": ("check", '#!/bin/sh\nexec "$(dirname "$0")/guard" "$@"\n', {"guard": "#!/bin/sh\necho from beside >&2; exit 2\n"}),
    "python-module": ("check.py", f"{PYTHON}import words\nsys.exit(words.say())\n", {"words.py": SAY_IN_PYTHON}),
    "python-package": ("check.py", f"{PYTHON}from words.said import say\nsys.exit(say())\n",
        {"words/__init__.py": "", "words/said.py": "from .how import say\n", "words/how.py": SAY_IN_PYTHON}),
    "python-file": ("check.py", f"{PYTHON}H = pathlib.Path(__file__).parent\nexit(sys.stderr.write(open(H / 'lib' / 'w').read()) and 2)",
        {"lib/w": "from beside"}),
    "node-require": ("check.js", f"#!/usr/bin/env node\nconst {{word}} = require('./lib/words')\n{NODE}",
        {"lib/words.js": "exports.word = require('./word.json').word\n", "lib/word.json": '{"word": "from beside"}'}),
    "node-module": ("check.mjs", f"#!/usr/bin/env node\nimport {{ word }} from './lib/words.mjs'\n{NODE}",
        {"lib/words.mjs": "export const word = 'from beside'\n"}),
    "node-by-package": ("check.js", f"#!/usr/bin/env node\nimport {{ word }} from './lib/words.js'\n{NODE}",
        {"lib/words.js": "export const word = 'from beside'\n"}),
    "a-link-beside": ("check.sh", '#!/bin/sh\n"$(dirname "$0")/lib/python" -c "raise SystemExit(\'from beside\')" || exit 2\n', {}),
    "node-file": ("check.js", f"#!/usr/bin/env node\nconst fs = require('fs'), path = require('path')\n{NODE_FILE}{NODE}",
        {"lib/w": "from beside"}),
}  # fmt: skip


@covers("hooks.a-copy-has-what-it-needs")
@pytest.mark.parametrize("free", [{}, {"mode": Mode.BYPASS}], ids=["as-usual", "bypass"])
@pytest.mark.parametrize("directory", ["scripts", ".claude/hooks"])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_finds_what_it_needs_beside_itself_as_it_was_looked_at(
    tmp_path: Path, work: Path, kind: str, directory: str, free: dict[str, Any]
) -> None:
    name, text, files = PROGRAMS[kind]
    program = write(work / directory / name, text)
    write(work / "package.json", '{"type": "module"}' if kind == "node-by-package" else "{}")
    (work / directory / "lib").mkdir(exist_ok=True)
    (work / directory / "lib" / "python").symlink_to(sys.executable)
    for file, content in files.items():
        write(work / directory / file, content)
    bring(work, command(f'"$CLAUDE_PROJECT_DIR"/{directory}/{name}'))
    pins = trusted(tmp_path, work)
    assert list(missing_beside_copies(workspace_hooks(work, {}))) == []

    def exchange() -> None:
        # Where agents are kept from `.claude`, nothing there is exchanged.
        for path in (program, *(work / directory / file for file in files)) if directory == "scripts" or free else ():
            path.write_text("#!/bin/sh\nexit 0\n")
        (work / directory / "lib" / "python").unlink() if directory == "scripts" or free else None

    assert said(fired(pins, work, exchange, **free)).strip() == "from beside"


@covers("hooks.pinned-programs")
def test_what_a_program_needs_is_part_of_the_pin(tmp_path: Path, work: Path) -> None:
    name, text, files = PROGRAMS["bash"]
    write(work / "scripts" / name, text)
    (beside,) = (write(work / "scripts" / file, content) for file, content in files.items())
    bring(work, command(f"scripts/{name}"))
    pins = trusted(tmp_path, work)
    beside.write_text("say() { exit 0; }\n")
    assert workspace_hooks(work, pins.all()).trust is HookTrust.CHANGED
    beside.write_text(files["lib/say.sh"])
    assert workspace_hooks(work, pins.all()).trust is HookTrust.PINNED
    beside.chmod(0o644)
    assert workspace_hooks(work, pins.all()).trust is HookTrust.CHANGED


@covers("hooks.a-link-out-runs-as-its-target")
def test_an_interpreter_that_leads_out_of_the_workspace_runs_as_what_it_leads_to(tmp_path: Path, work: Path) -> None:
    python, mark = environment(work), tmp_path / "escaped"
    write(work / "check.py", "import sys\nprint(sys.prefix == sys.base_prefix, file=sys.stderr)\nsys.exit(2)\n")
    bring(work, command(".venv/bin/python check.py"))
    pins = trusted(tmp_path, work)
    found = workspace_hooks(work, {})
    assert list(missing_beside_copies(found)) == []
    assert os.path.realpath(found.looked[str(python)].leads_to or "") == os.path.realpath(python)

    def exchange() -> None:
        python.unlink()
        write(python, f"#!/bin/sh\ntouch {mark}\n")
        write(work / ".venv/pyvenv.cfg", f"home = {work}\n")

    assert said(fired(pins, work, exchange)) == "True"
    assert not mark.exists()
    assert workspace_hooks(work, pins.all()).trust is HookTrust.CHANGED


@pytest.mark.parametrize("word", [".", "source"])
def test_an_environment_that_a_line_enters_is_there_with_its_packages_and_that_is_told(tmp_path: Path, work: Path, word: str) -> None:
    python = environment(work)
    write(work / "check.py", "import sys\nimport only_there\nprint(only_there.WORD, file=sys.stderr)\nsys.exit(2)\n")
    bring(work, command(f"{word} .venv/bin/activate && python check.py", shell="bash"))
    pins = trusted(tmp_path, work)
    (told,) = exchange_warnings(workspace_hooks(work, {}))
    assert "has programs looked for in" in told
    assert said(fired(pins, work, lambda: None)) == "only there"
    python.unlink()
    write(python, "#!/bin/sh\n")
    assert workspace_hooks(work, pins.all()).trust is HookTrust.CHANGED


def test_an_environment_outside_the_workspace_is_there_with_its_packages_also_by_a_link(tmp_path: Path, work: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    environment(tmp_path / "elsewhere")
    (work / ".venv").symlink_to(tmp_path / "elsewhere" / ".venv")
    write(work / "check.py", "import sys\nimport only_there\nprint(only_there.WORD, file=sys.stderr)\nsys.exit(2)\n")
    bring(work, command(".venv/bin/python check.py"))
    assert said(fired(trusted(tmp_path, work), work, lambda: None)) == "only there"


MISSES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "packages-of-python": (".venv/bin/python check.py", {"check.py": "import only_there\n"}, "`only_there`",
        "sh -c '.venv/bin/python check.py'"),
    "module-of-python": (".venv/bin/python -m only_there", {}, "`only_there`", "sh -c '.venv/bin/python -m only_there'"),
    "packages-of-node": ("node scripts/c.js", {"scripts/c.js": "require('lint')\n", "node_modules/lint/index.js": "0"}, "`lint`",
        "sh -c 'node scripts/c.js'"),
    "modules-of-node": ("node_modules/.bin/lint .", {"node_modules/.bin/lint": "#!/usr/bin/env node\nrequire('inner')\n",
        "node_modules/inner/index.js": "0"}, "`inner`", "npx --no-install lint"),
    "its-directory": ("scripts/c.sh", {"scripts/c.sh": '#!/bin/sh\nset -e\ncd "$(dirname "$0")/.."\ntest -e there\n', "there": ""},
        "goes to the directory that it lies in", 'cd "$CLAUDE_PROJECT_DIR"'),
    "what-nobody-can-tell": ("scripts/c.sh", {"scripts/c.sh": '#!/bin/sh\nfor each in a b; do . "$(dirname "$0")/$each.sh"; done\n'},
        "looks for files from where it lies", "sh -c scripts/c.sh"),
}  # fmt: skip


@covers("hooks.what-a-copy-misses-is-told")
@pytest.mark.parametrize("kind", MISSES)
def test_what_a_program_will_not_find_is_told_beforehand_with_what_to_write_and_again_when_it_fails(
    tmp_path: Path, work: Path, kind: str
) -> None:
    line, files, missed, instead = MISSES[kind]
    if ".venv" in line:
        environment(work)
    for name, text in files.items():
        write(work / name, text)
    bring(work, command(line))
    (told,) = missing_beside_copies(workspace_hooks(work, {}))
    assert missed in told
    assert f"`{instead}`" in told
    sentence, otherwise, follows = told.partition("; otherwise it fails")
    assert (otherwise, follows) == ("; otherwise it fails", ", and each call that it stands before is denied")
    assert sentence in said(fired(trusted(tmp_path, work), work, lambda: None))


@pytest.mark.parametrize("kind", ["packages-of-python", "module-of-python", "packages-of-node", "what-nobody-can-tell"])
def test_the_line_to_write_instead_does_run(tmp_path: Path, work: Path, kind: str) -> None:
    line, files, _, instead = MISSES[kind]
    if ".venv" in line:
        environment(work)
    for name, text in {**files, "scripts/a.sh": "", "scripts/b.sh": ""}.items():
        write(work / name, text)
    bring(work, command(instead))
    assert fired(trusted(tmp_path, work), work, lambda: None).says is None


def test_a_failure_for_another_reason_is_told_as_it_is(tmp_path: Path, work: Path) -> None:
    write(work / "scripts/c.sh", '#!/bin/sh\necho "the tests are red" >&2\nexit 1\n')
    bring(work, command("scripts/c.sh"))
    assert said(fired(trusted(tmp_path, work), work, lambda: None)).endswith("it ended with exit code 1: the tests are red")


def test_a_program_that_misses_what_nobody_foresaw_says_that_it_is_a_copy(tmp_path: Path, work: Path) -> None:
    write(work / "scripts/c.rb", "#!/bin/sh\nexec no-such-program-anywhere\n")
    bring(work, command("scripts/c.rb"))
    assert "it ran as a copy of what you trusted" in said(fired(trusted(tmp_path, work), work, lambda: None))


def test_the_programs_of_these_tests_are_there() -> None:
    for name in ("bash", "node", "python3"):
        subprocess.run([name, "--version"], env=ENVIRON, check=True, capture_output=True, timeout=30)
