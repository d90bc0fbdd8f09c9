import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import BadCall, ToolResult
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from curtainwall.tools.files.tool import MAX_LISTED, MAX_MATCHES, MAX_READ
from tests.support.machines import permit
from tests.unit.tools.stage import Stage


def run(stage: Stage, tool: str, **arguments: JsonValue) -> ToolResult:
    prepared = stage.prepare(f"filesystem.{tool}", **arguments)
    return asyncio.run(stage.tools.run(prepared, permit(prepared), stage.place))


def done(stage: Stage, tool: str, **arguments: JsonValue) -> JsonValue:
    result = run(stage, tool, **arguments)
    assert result.ok, result.value
    return result.value


def fault(stage: Stage, tool: str, **arguments: JsonValue) -> str:
    result = run(stage, tool, **arguments)
    assert not result.ok, result.value
    assert isinstance(result.value, str)
    return result.value


# Reading


def test_a_file_is_read_as_it_is(stage: Stage) -> None:
    (stage.workspace / "a").write_bytes("ä\r\nb\n".encode())
    assert done(stage, "read_file", path="a") == "ä\r\nb\n"


@pytest.mark.parametrize(
    ("which", "count", "lines"), [("head", 2, "1\n2\n"), ("tail", 2, "4\n5"), ("head", 99, "1\n2\n3\n4\n5"), ("tail", 99, "1\n2\n3\n4\n5")]
)
def test_the_first_or_last_lines_alone(stage: Stage, which: str, count: int, lines: str) -> None:
    (stage.workspace / "a").write_text("1\n2\n3\n4\n5")
    assert done(stage, "read_file", path="a", **{which: count}) == lines


def test_head_and_tail_at_once_make_no_sense(stage: Stage) -> None:
    assert "at once" in fault(stage, "read_file", path="a", head=1, tail=1)


@pytest.mark.parametrize("content", [b"\0", b"PK\x03\x04\0\0", b"\xff\xfe", b"caf\xe9"])
def test_what_is_not_text_is_not_read_as_text(stage: Stage, content: bytes) -> None:
    (stage.workspace / "a").write_bytes(content)
    assert "binary" in (told := fault(stage, "read_file", path="a")) or "not UTF-8" in told


def test_a_big_file_is_read_in_pieces_only(stage: Stage) -> None:
    (stage.workspace / "big").write_bytes(b"first\n" + b"x" * MAX_READ + b"\nlast\n")
    assert "`head` or `tail`" in fault(stage, "read_file", path="big")
    assert done(stage, "read_file", path="big", head=1) == "first\n"
    assert done(stage, "read_file", path="big", tail=1) == "last\n"


def test_what_is_no_file_is_told_apart(stage: Stage) -> None:
    os.mkfifo(stage.workspace / "pipe")
    assert "does not exist" in fault(stage, "read_file", path="none")
    assert "is a directory" in fault(stage, "read_file", path=".")
    assert "no regular file" in fault(stage, "read_file", path="pipe")


def test_one_file_that_cannot_be_read_does_not_stop_the_others(stage: Stage) -> None:
    (stage.workspace / "a").write_text("A")
    (stage.workspace / "c").write_bytes(b"\0")
    told = done(stage, "read_multiple_files", paths=["a", "none", "c"])
    assert isinstance(told, list)
    assert told[0] == {"path": str(stage.workspace / "a"), "content": "A"}
    assert [sorted(one) for one in told[1:] if isinstance(one, dict)] == [["error", "path"]] * 2


def test_results_are_masked(stage: Stage) -> None:
    secret = "ghp_" + "a1B2" * 9
    (stage.workspace / "a").write_text(f"token: {secret}\n")
    assert secret not in str(done(stage, "read_file", path="a"))
    assert "[masked:" in str(done(stage, "read_file", path="a"))


KEY = "\n".join(f"{number:02}{'aB3+' * 15}xY" for number in range(20))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("after", ["", "x\n" * 3, "x\n" * 20_000])
@pytest.mark.parametrize("before", ["", "y\n" * 3, "y\n" * 20_000])
def test_a_part_of_a_file_shows_no_line_of_a_key(stage: Stage, before: str, after: str) -> None:
    (stage.workspace / "a").write_text(f"{before}{PEM}{after}")
    above, below = before.count("\n"), after.count("\n")
    for lines in (1, 2, 5, 21, 22, 23):
        for told in (done(stage, "read_file", path="a", head=above + lines), done(stage, "read_file", path="a", tail=below + lines)):
            assert "aB3+" not in str(told)
            assert str(told).count("[masked:private-key:") == 1
    assert done(stage, "read_file", path="a", head=above + 23).startswith(before)
    assert done(stage, "read_file", path="a", tail=below + 23).endswith(after)


def test_the_last_lines_of_a_big_file_show_no_line_of_a_key(stage: Stage) -> None:
    # What is read of it begins in the middle of the key.
    (stage.workspace / "big").write_text(PEM + f"{'z' * 99}\n" * ((MAX_READ - 700) // 100))
    told = str(done(stage, "read_file", path="big", tail=1_000_000))
    assert "aB3+" not in told
    assert told.startswith("[masked:private-key:")


# Writing


def test_a_file_is_written_whole(stage: Stage) -> None:
    done(stage, "write_file", path="a", content="ä\n")
    assert (stage.workspace / "a").read_bytes() == "ä\n".encode()
    assert os.listdir(stage.workspace) == ["a"]


def test_a_file_in_a_directory_that_is_missing_is_not_written(stage: Stage) -> None:
    assert "does not exist" in fault(stage, "write_file", path="none/a", content="x")


def test_an_edit_shows_the_difference(stage: Stage) -> None:
    (stage.workspace / "a").write_text("one\ntwo\nthree\n")
    told = done(stage, "edit_file", path="a", edits=[{"oldText": "two", "newText": "2"}, {"oldText": "2\nthree", "newText": "2\n3"}])
    assert (stage.workspace / "a").read_text() == "one\n2\n3\n"
    assert "-two\n-three\n+2\n+3\n" in str(told)


def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    (stage.workspace / "a").write_text("one\n")
    assert "+two" in str(done(stage, "edit_file", path="a", edits=[{"oldText": "one", "newText": "two"}], dryRun=True))
    assert (stage.workspace / "a").read_text() == "one\n"


@pytest.mark.parametrize(("old", "why"), [("none", "not in the file"), ("x", "2 times"), ("xx ", "not in the file")])
def test_an_edit_that_is_not_certain_changes_nothing(stage: Stage, old: str, why: str) -> None:
    (stage.workspace / "a").write_text("y x x\n")
    assert why in fault(stage, "edit_file", path="a", edits=[{"oldText": "y", "newText": "z"}, {"oldText": old, "newText": "z"}])
    assert (stage.workspace / "a").read_text() == "y x x\n"


def test_an_edit_keeps_the_file_s_own_line_ends(stage: Stage) -> None:
    (stage.workspace / "a").write_bytes(b"one\r\ntwo\r\n")
    done(stage, "edit_file", path="a", edits=[{"oldText": "one\ntwo", "newText": "1\n2"}])
    assert (stage.workspace / "a").read_bytes() == b"1\r\n2\r\n"


@pytest.mark.parametrize("dry", [True, False])
def test_a_difference_shows_no_line_of_a_key(stage: Stage, dry: bool) -> None:
    (stage.workspace / "a").write_text(f"{PEM}one\ntwo\n")
    told = str(done(stage, "edit_file", path="a", edits=[{"oldText": "one", "newText": "1"}], dryRun=dry))
    assert "aB3+" not in told
    assert "-one\n+1\n" in told
    assert (stage.workspace / "a").read_text() == f"{PEM}{'one' if dry else '1'}\ntwo\n"


def test_an_edit_beside_a_secret_does_not_bring_it_to_light(stage: Stage) -> None:
    (stage.workspace / "a").write_text("password: hunter22\n")
    told = str(done(stage, "edit_file", path="a", edits=[{"oldText": "password: ", "newText": "colour: "}], dryRun=True))
    assert "+colour: [masked:password:" in told
    assert "hunter22" not in told


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("guess", ["hunter2", "n", "d: h", "22\n", "password: hunter22", "password: wrong"])
def test_a_guess_at_a_secret_is_answered_like_a_text_that_is_not_there(stage: Stage, guess: str, dry: bool) -> None:
    (stage.workspace / "a").write_text("password: hunter22\nlast\n")
    told = fault(stage, "edit_file", path="a", edits=[{"oldText": guess, "newText": "x"}], dryRun=dry)
    assert told == fault(stage, "edit_file", path="a", edits=[{"oldText": "nowhere", "newText": "x"}], dryRun=dry)
    assert (stage.workspace / "a").read_text() == "password: hunter22\nlast\n"


def test_what_a_secret_holds_is_not_counted(stage: Stage) -> None:
    (stage.workspace / "a").write_text("password: hunter22\n22\n")
    assert "-22\n+33\n" in str(done(stage, "edit_file", path="a", edits=[{"oldText": "22", "newText": "33"}]))
    assert (stage.workspace / "a").read_text() == "password: hunter22\n33\n"


def test_a_difference_of_long_texts_is_made_in_a_moment(stage: Stage) -> None:
    lines = [f"{number % 150}\n" for number in range(300_000)]
    (stage.workspace / "a").write_text("".join(["first\n", *lines, "last\n"]))
    edits: JsonValue = [{"oldText": "first", "newText": "1"}, {"oldText": "last", "newText": "2"}]
    begun = time.process_time()
    assert "too many to be shown" in str(done(stage, "edit_file", path="a", edits=edits, dryRun=True))
    assert "@@ -299999,4 +299999,4 @@\n 147" in str(done(stage, "edit_file", path="a", edits=[edits[1]], dryRun=True))
    assert time.process_time() - begun < 5


def test_directories_are_made_and_listed(stage: Stage) -> None:
    done(stage, "create_directory", path="d/e")
    assert "already there" in str(done(stage, "create_directory", path="d/e"))
    (stage.workspace / "d" / "link").symlink_to("/")
    assert done(stage, "list_directory", path="d") == {
        "entries": [{"name": "e", "type": "directory"}, {"name": "link", "type": "link"}],
        "left_out": 0,
    }
    (stage.workspace / "f").write_text("")
    assert "not a directory" in fault(stage, "create_directory", path="f")


def test_moving_never_replaces(stage: Stage) -> None:
    (stage.workspace / "a").write_text("A")
    (stage.workspace / "b").write_text("B")
    assert "already there" in fault(stage, "move_file", source="a", destination="b")
    done(stage, "move_file", source="a", destination="c")
    assert sorted(os.listdir(stage.workspace)) == ["b", "c"]


def test_deleting_takes_files_and_links_alone(stage: Stage) -> None:
    (stage.workspace / "d").mkdir()
    (stage.outside / "x").write_text("X")
    (stage.workspace / "link").symlink_to(stage.outside / "x")
    done(stage, "delete_file", path="link")
    assert (stage.outside / "x").read_text() == "X"
    assert "only files are deleted" in fault(stage, "delete_file", path="d")
    assert "does not exist" in fault(stage, "delete_file", path="link")


# Looking around


def found(stage: Stage, pattern: str, **more: JsonValue) -> list[str]:
    told = done(stage, "search_files", path=".", pattern=pattern, **more)
    assert isinstance(told, dict)
    assert told["cut"] is False
    assert isinstance(told["matches"], list)
    return [stage.short(str(path)) for path in told["matches"]]


@pytest.fixture
def tree(stage: Stage) -> Stage:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/c.txt", "build/d.py", "node_modules/e/f.py", ".git/g.py"):
        file = stage.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return stage


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*.py", ["W/a.py", "W/build/d.py", "W/node_modules/e/f.py", "W/src/b.py", "W/src/deep/c.py"]),
        ("src/*.py", ["W/src/b.py"]),
        ("src/**/*.py", ["W/src/b.py", "W/src/deep/c.py"]),
        ("**/c.{py,txt}", ["W/src/deep/c.py", "W/src/deep/c.txt"]),
        ("deep", ["W/src/deep"]),
        ("src/deep/**", ["W/src/deep/c.py", "W/src/deep/c.txt"]),
        ("[ab].py", ["W/a.py", "W/src/b.py"]),
        ("../*", []),
    ],
)
def test_files_are_found_by_pattern(tree: Stage, pattern: str, matches: list[str]) -> None:
    assert found(tree, pattern) == matches


def test_excluded_and_ignored_files_are_not_found(tree: Stage) -> None:
    assert found(tree, "*.py", excludePatterns=["node_modules", "src/deep/*"]) == ["W/a.py", "W/build/d.py", "W/src/b.py"]
    (tree.workspace / ".gitignore").write_text("# comment\nnode_modules/\n/build\n*.txt\n")
    (tree.workspace / "src" / ".gitignore").write_text("*.py\n!b.py\n")
    assert found(tree, "*.py") == ["W/a.py", "W/src/b.py"]
    assert found(tree, "*.txt") == []


def test_walks_do_not_follow_links_nor_enter_protected_places(tree: Stage) -> None:
    (tree.outside / "z.py").write_text("")
    (tree.workspace / "link").symlink_to(tree.outside)
    kept = str(tree.workspace / "src")
    tools = NativeTools(
        Catalogue(NATIVE_TOOLS),
        home=str(tree.home),
        masker=Masker(b"k"),
        runners=filesystem_runners(
            Masker(b"k"), is_protected=lambda path: path == kept, shown=lambda path, _: path.replace(str(tree.workspace), "/workspace")
        ),
    )
    careful = Stage(tree.root, tools, tree.place)
    told = done(careful, "search_files", path=".", pattern="[a-d].py")
    assert told == {"matches": ["/workspace/a.py", "/workspace/build/d.py"], "cut": False}
    names = re.findall(r"'name': '([^']+)'", str(done(careful, "directory_tree", path=".")))
    assert "link" in names
    assert not {"src", "z.py"} & {*names}


def test_the_tree_is_nested_as_the_directories_are(stage: Stage) -> None:
    (stage.workspace / "a" / "b").mkdir(parents=True)
    (stage.workspace / "a" / "b" / "c").write_text("")
    (stage.workspace / "d").write_text("")
    assert done(stage, "directory_tree", path=".") == {
        "tree": [
            {
                "name": "a",
                "type": "directory",
                "children": [{"name": "b", "type": "directory", "children": [{"name": "c", "type": "file"}]}],
            },
            {"name": "d", "type": "file"},
        ],
        "cut": False,
    }


def test_listings_end_and_say_so(stage: Stage) -> None:
    for number in range(MAX_LISTED + 10):
        (stage.workspace / f"f{number}").touch()
    listed, tree = done(stage, "list_directory", path="."), done(stage, "directory_tree", path=".")
    matches = done(stage, "search_files", path=".", pattern="f*")
    assert isinstance(listed, dict)
    assert listed["left_out"] == 10
    assert listed["note"] == "there are 10 others; `filesystem.search_files` finds them by a pattern, as `a*`"
    assert isinstance(tree, dict)
    assert tree["cut"] is True
    assert str(tree["note"]).startswith("not all of it is here; show a directory further down")
    assert isinstance(matches, dict)
    assert isinstance(matches["matches"], list)
    assert (len(matches["matches"]), matches["cut"]) == (MAX_MATCHES, True)
    assert str(matches["note"]).endswith("search in a directory further down, or with a pattern that fits fewer names")


def test_a_pattern_made_to_take_for_ever_does_not(stage: Stage) -> None:
    (stage.workspace / ("a" * 250)).touch()
    assert found(stage, "*a" * 500 + "b") == []
    assert found(stage, "**/" * 300 + "b") == []
    assert found(stage, "{a,b}" * 200) == []


def test_names_that_are_not_utf8_do_no_harm(stage: Stage) -> None:
    with open(os.fsencode(stage.workspace) + b"/\xff.py", "wb"):
        pass
    assert done(stage, "list_directory", path=".") == {"entries": [{"name": "\\xff.py", "type": "file"}], "left_out": 0}
    assert found(stage, "*") == []


def test_a_file_is_described(stage: Stage) -> None:
    (stage.workspace / "a").write_text("abc")
    (stage.workspace / "a").chmod(0o640)
    told = done(stage, "get_file_info", path="a")
    assert isinstance(told, dict)
    assert (told["type"], told["size"], told["permissions"]) == ("file", 3, "-rw-r-----")


def test_every_tool_has_a_runner() -> None:
    tools = {spec.full_name for spec in NATIVE_TOOLS if spec.server == "filesystem"}
    assert tools == filesystem_runners(Masker(b"k" * 32)).keys(), "a tool without a runner is left out of what agents are offered"


def test_the_workspace_is_what_is_free(stage: Stage) -> None:
    assert done(stage, "list_allowed_directories") == [str(stage.workspace)]


# What was judged is what is touched


def test_a_permit_for_another_subject_runs_nothing(stage: Stage) -> None:
    other = permit(stage.prepare("filesystem.read_file", path="b"))
    with pytest.raises(BadCall, match="another subject"):
        asyncio.run(stage.tools.run(stage.prepare("filesystem.write_file", path="a", content="x"), other, stage.place))
    assert os.listdir(stage.workspace) == []


def test_a_tool_without_a_runner_says_so(stage: Stage) -> None:
    prepared = stage.prepare("shell.run", command="ls")
    assert asyncio.run(stage.tools.run(prepared, permit(prepared), stage.place)) == ToolResult(
        ok=False, value="this tool cannot run on this machine yet"
    )


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "list_directory", "create_directory", "delete_file"])
def test_a_link_put_there_after_the_judgement_is_not_followed(stage: Stage, tool: str) -> None:
    (stage.workspace / "d").mkdir()
    (stage.workspace / "d" / "f").write_text("mine")
    (stage.outside / "f").write_text("theirs")
    (stage.outside / "e").mkdir()
    arguments: dict[str, JsonValue] = {
        "write_file": {"path": "d/f", "content": "x"},
        "edit_file": {"path": "d/f", "edits": [{"oldText": "e", "newText": "x"}]},
        "list_directory": {"path": "d/e"},
        "create_directory": {"path": "d/new/deep"},
    }.get(tool, {"path": "d/f"})  # pyright: ignore[reportAssignmentType] - a literal of JSON
    prepared = stage.prepare(f"filesystem.{tool}", **arguments)
    os.rename(stage.workspace / "d", stage.workspace / "moved")
    (stage.workspace / "d").symlink_to(stage.outside)
    result = asyncio.run(stage.tools.run(prepared, permit(prepared), stage.place))
    assert not result.ok
    assert "a link stands in the way" in str(result.value)
    assert (stage.outside / "f").read_text() == "theirs"
    assert sorted(os.listdir(stage.outside)) == ["e", "f"]


# Puts now the real thing, now a link to the other side into the same place, and counts in a shared page until it is stopped.
SWAPPER = """
import mmap, os, sys
place, kept, other, page = sys.argv[1:]
with open(page, "r+b") as file:
    count = mmap.mmap(file.fileno(), 8)
swaps = 0
while True:
    os.rename(place, kept)
    os.symlink(other, place)
    os.unlink(place)
    os.rename(kept, place)
    swaps += 1
    count[:] = swaps.to_bytes(8, "little")
    for _ in range(5_000):
        pass  # long enough for some reads to succeed
"""


@contextmanager
def swapping(place: Path, other: Path, root: Path) -> Iterator[Callable[[], int]]:
    """Run the program that swaps, and give what tells how often it has."""
    page = root / "page"
    page.write_bytes(bytes(8))
    program = subprocess.Popen([sys.executable, "-S", "-c", SWAPPER, str(place), str(root / "kept"), str(other), str(page)])
    try:
        yield lambda: int.from_bytes(page.read_bytes(), "little")
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("what", ["the file", "its directory"])
def test_no_swap_makes_a_read_reach_the_other_side(stage: Stage, what: str) -> None:
    wanted = 1_000
    (stage.workspace / "d").mkdir()
    (stage.workspace / "d" / "f").write_text("mine")
    (stage.outside / "f").write_text("theirs")
    place, other = (stage.workspace / "d" / "f", stage.outside / "f") if what == "the file" else (stage.workspace / "d", stage.outside)
    prepared = stage.prepare("filesystem.read_file", path="d/f")
    allowed = permit(prepared)

    async def read_on(swaps: Callable[[], int]) -> tuple[int, int]:
        reads = refused = 0
        for _ in range(200_000):
            result = await stage.tools.run(prepared, allowed, stage.place)
            assert result.value != "theirs"
            reads += result.ok
            refused += "a link stands in the way" in str(result.value)
            if reads >= wanted and refused and swaps() >= wanted:
                break
        return reads, refused

    with swapping(place, other, stage.root) as swaps:
        reads, refused = asyncio.run(read_on(swaps))
        assert swaps() >= wanted
    assert reads >= wanted
    assert refused, "no read ever met the link, so nothing was tried"
