"""What scripts say that they need, told by their words alone."""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.model import Broken
from curtainwall.tools.hooks import workspace_hooks
from curtainwall.tools.hooks.scripts import Language, link_target_outside, script_language, script_needs
from tests.support.hook_seams import bring
from tests.support.hooking import shell


@pytest.mark.parametrize(
    ("name", "first", "language"),
    [
        ("a.sh", "", Language.SHELL), ("a", "#!/bin/bash -e", Language.SHELL), ("a", "#!/usr/bin/env -S bash", Language.SHELL),
        ("a.py", "", Language.PYTHON), ("a", "#!/usr/bin/env python3.12", Language.PYTHON), ("a.sh", "#!/usr/bin/python3", Language.PYTHON),
        ("a.js", "", Language.NODE), ("a.cjs", "", Language.NODE), ("a.mts", "", Language.NODE), ("a", "#!/usr/bin/node", Language.NODE),
        ("a", "", None), ("a.rb", "", None), ("a", "#!", None), ("a", "#!/usr/bin/perl", None),
    ],
)  # fmt: skip
def test_a_script_is_known_by_its_first_line_or_its_name(name: str, first: str, language: Language | None) -> None:
    assert script_language(f"/w/{name}", f"{first}\n".encode()) is language


@pytest.mark.parametrize(
    ("language", "text", "files", "modules"),
    [
        (Language.SHELL, '. "$(dirname "$0")/lib.sh"', ["lib.sh"], []),
        (Language.SHELL, 'D="${0%/*}"\n. "$D/a/b.sh"\ncat "$D"/c.txt', ["a/b.sh", "c.txt"], []),
        (Language.SHELL, 'D=$(dirname "$(realpath "$0")")\nE=$D\nsource ${E}/../lib/b.sh', ["../lib/b.sh"], []),
        (Language.SHELL, '# . "$(dirname "$0")/lib.sh"\ncat "$HOME/a" "$CLAUDE_PROJECT_DIR/README.md"\necho "usage: $0"', [], []),
        (Language.PYTHON, "import json, one as o\nfrom two.deep import x\nfrom . import y\nimport os.path", [], ["one", "two"]),
        (Language.PYTHON, "H = Path(__file__).parent\nopen(H / 'a' / 'b')\nopen('README.md')", ["a", "b", "a/b"], []),
        (Language.NODE, "const a = require('eslint/x'), b = require('@s/p/q'), c = require('node:fs')", [], ["eslint", "@s/p"]),
        (Language.NODE, "fs.readFileSync(__dirname + '/rules.json')\nfs.readFileSync('README.md')", ["rules.json"], []),
    ],
)  # fmt: skip
def test_what_a_script_needs_is_what_it_names_from_where_it_lies(
    language: Language, text: str, files: list[str], modules: list[str]
) -> None:
    needs = script_needs(language, text.encode())
    assert (list(needs.files), list(needs.modules)) == (files, modules)


def test_what_is_no_text_needs_nothing_and_takes_no_time() -> None:
    before = time.process_time()
    for language in Language:
        for content in (b"\xff\0" * 400_000, b"$" * 1_000_000, b'"' * 1_000_000, b"import " * 150_000, b"D=$0\n" + b"D" * 900_000):
            needs = script_needs(language, content)
            assert (list(needs.files), set(needs.modules) - {"import"}) == ([], set()), (language, content[:10])
    assert time.process_time() - before < 10, "all of it takes a third of a second; what looks back over what it read takes minutes"


PIECES = [
    "#!", "#!/bin/sh\n", "import ", "from ", "require('", "./", "../", "__file__", "__dirname", "$0", '$(dirname "$0")/', "D=", "\n", "\0",
    "'", '"', "a" * 300, "a", "é", "/", " ", "b.sh",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30), st.sampled_from(["a.sh", "a.py", "a.js", "a"]))
def test_whatever_an_agent_writes_into_a_script_is_looked_at_or_refused(pieces: list[str], name: str) -> None:
    with TemporaryDirectory() as made:
        work = Path(made).resolve() / "work"
        (work / ".claude").mkdir(parents=True)
        (work / "b.sh").touch()
        (work / name).write_bytes("".join(pieces).encode(errors="replace"))
        bring(work, {"type": "command", "command": f"./{name}"})
        try:
            found = workspace_hooks(work, {})
        except Broken:
            return
        assert {str(work / name)} <= set(found.files) <= {str(work / name), str(work / "b.sh")}


def test_a_program_that_needs_too_much_cannot_be_trusted(tmp_path: Path) -> None:
    work = tmp_path.resolve() / "work"
    (work / ".claude").mkdir(parents=True)
    (work / "big").mkdir()
    for number in range(201):
        (work / "big" / f"m{number}.py").touch()
    (work / "check.py").write_text("import big\n")
    bring(work, {"type": "command", "command": "python3 check.py"})
    with pytest.raises(Broken, match="needs more than 200 files beside itself"):
        workspace_hooks(work, {})


def test_a_program_in_claude_needs_nothing_outside_of_it_and_none_beyond_the_workspace(tmp_path: Path) -> None:
    """It runs where it lies, and what it finds from there in the project is to be the project as it is."""
    work = tmp_path.resolve() / "work"
    (work / ".claude" / "hooks").mkdir(parents=True)
    for name in ("README.md", "../pyvenv.cfg", ".claude/hooks/words.txt"):
        (work / name).touch()
    guard = shell(work / ".claude" / "hooks" / "guard.sh", 'D="$(dirname "$0")"\ncat "$D/words.txt" "$D/../../README.md"')
    (work / "python").symlink_to(sys.executable)
    bring(work, {"type": "command", "command": f"./python -V && {guard}"})
    assert workspace_hooks(work, {}).beside == {str(work / "python"): (), guard: (str(work / ".claude/hooks/words.txt"),)}


def test_the_way_out_of_a_workspace_is_the_first_place_outside(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "work" / "bin").mkdir(parents=True)
    (root / "out").mkdir()
    shell(root / "out" / "real", "exit 0")
    (root / "out" / "name").symlink_to("real")
    work = str(root / "work")
    links = {"python": "python3", "python3": "../../out/name", "round": "round", "inside": "python4", "back": "../../out/into"}
    (root / "out" / "into").symlink_to(f"{work}/bin/python3")
    (root / "out" / "home").symlink_to(f"{work}/file")
    for link, target in {**links, "home": "../../out/home"}.items():
        (root / "work" / "bin" / link).symlink_to(target)
    (root / "work" / "there").symlink_to(root / "out")
    assert link_target_outside(f"{work}/bin/python", work) == f"{root}/out/name"
    assert link_target_outside(f"{work}/there/real", work) == f"{root}/out/real"
    assert link_target_outside(f"{work}/bin/back", work) == f"{root}/out/name", (
        "what leads through the workspace again is an agent's to lead"
    )
    assert [link_target_outside(f"{work}/bin/{name}", work) for name in ("round", "inside", "gone", "home")] == [None] * 4
