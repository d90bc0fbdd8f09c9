"""Attacks on reviews: an agent that applies changes itself, and change sets that are altered, borrowed or lead elsewhere."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from curtainwall.model import (
    APPLY_CHANGES,
    BadCall,
    BlobRef,
    CallRequest,
    ChangeKind,
    ChangeSet,
    Effect,
    FileChange,
    FileKind,
    FileState,
    TurnStatus,
)
from curtainwall.operations.presented import difference_lines, presented_changes
from curtainwall.tools.changes import load_changes, manifest_of
from tests.support.covers import covers
from tests.support.reviews import Reviewed, reviewed
from tests.support.views import plant, tree_of
from tests.support.waiting import run

FILES = {"a.txt": "one\n", "docs/c.md": "# c\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, FILES)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "home"


@dataclass
class Held:
    """A store of blobs with one text in it."""

    content: bytes

    async def put(self, content: bytes) -> BlobRef:
        raise NotImplementedError

    def get(self, digest: str) -> bytes:
        return self.content


def alter_blob(home: Path, digest: str) -> None:
    (blob,) = home.glob(f"blobs/*/{digest}")
    blob.write_bytes(blob.read_bytes().replace(b"a.txt", b"b.txt"))


def edit(root: Path) -> None:
    (root / "a.txt").write_text("two\n")


def test_an_agent_cannot_apply_its_changes_itself(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            digest = str(here.ask.subject.canonical["changes"])
            for request in (
                CallRequest(tool=APPLY_CHANGES, arguments={"changes": digest}),
                CallRequest(tool="session.propose_plan", arguments={"steps": [{"tool": APPLY_CHANGES, "arguments": {"changes": digest}}]}),
            ):
                answer = await here.wired.gate.request(here.session, request, wait=False)
                assert (answer.verdict.effect, answer.verdict.because) == (Effect.DENY, ("unknown-tool",))
            assert (here.asks, tree_of(project)["a.txt"][2]) == (1, b"one\n")
            await here.answer()
            assert (here.agent.turns, tree_of(project)["a.txt"][2]) == (1, b"two\n"), "the refused calls disturb nothing"

    run(story())


def test_a_change_set_that_was_altered_after_the_ask_is_not_applied(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            digest = str(here.ask.subject.canonical["changes"])
            alter_blob(home, digest)
            await here.answer()
            assert tree_of(project).keys() == {"a.txt", "docs", "docs/c.md"}
            assert tree_of(project)["a.txt"][2] == b"one\n"
            assert (await here.stands(), here.agent.turns) == (TurnStatus.DONE, 1)

    run(story())


FILE = FileState(kind=FileKind.FILE, digest="d" * 64, mode=0o644, size=1)


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/passwd", "a//b", "", ".", "a\0b"])
def test_a_manifest_with_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    changes = ChangeSet(project="/srv/project", changes=(FileChange(path=path, kind=ChangeKind.ADDED, after=FILE),))
    renamed = ChangeSet(project="/srv/project", changes=(FileChange(path="x", source=path or "..", kind=ChangeKind.RENAMED, after=FILE),))
    for each in (changes, renamed):
        with pytest.raises(BadCall, match="cannot be applied"):
            load_changes(Held(manifest_of(each)), each.digest, "/srv/project")


def test_a_change_set_of_another_project_is_refused() -> None:
    changes = ChangeSet(project="/srv/other", changes=(FileChange(path="x", kind=ChangeKind.ADDED, after=FILE),))
    with pytest.raises(BadCall, match="not one of this project"):
        load_changes(Held(manifest_of(changes)), changes.digest, "/srv/project")


def listed(here: Reviewed) -> list[str]:
    return [line for line in here.card if line.startswith(("file: ", "runs later"))]


def differences(here: Reviewed) -> list[str]:
    return [line.strip() for line in here.card if line.startswith("  ")]


@covers("review.replaced-files-are-shown")
def test_what_a_file_holds_that_took_the_place_of_a_link_or_directory_is_shown(home: Path, project: Path) -> None:
    (project / "run").symlink_to("a.txt")

    def replace(root: Path) -> None:
        (root / "run").unlink()
        (root / "run").write_text("#!/bin/sh\nharm\n")
        (root / "docs/c.md").unlink()
        (root / "docs").rmdir()
        (root / "docs").write_text("more harm\n")
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to("run")
        for name in ("run", "docs"):
            (root / name).chmod(0o755)

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(replace)
            assert listed(here) == [
                'file: replaced, a file became a link to "run", +0 -1  a.txt',
                "file: replaced, a directory became a file, +1 -0, executable  docs",
                "file: deleted, +0 -1  docs/c.md",
                'file: replaced, a link to "a.txt" became a file, +2 -0, executable  run',
            ]
            assert differences(here) == ["1       - one", "1 + more harm", "1       - # c", "1 + #!/bin/sh", "2 + harm"]

    run(story())


@covers("review.what-is-cut-is-stated")
def test_changes_that_are_far_apart_are_counted_and_shown_in_full_on_request(home: Path, project: Path) -> None:
    lines = [f"line {number}" for number in range(5_000)]
    (project / "long.txt").write_text("\n".join(lines) + "\n")

    def edit(root: Path) -> None:
        (root / "long.txt").write_text("\n".join(["first", *lines[1:-1], "harm"]) + "\n")
        (root / "large.txt").write_text("x\n" * 300_000 + "harm\n")
        (root / "new.txt").write_text("x\n" * 5_000 + "harm\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert listed(here) == [
                "file: added, large, 600,005 bytes  large.txt",
                "file: modified, +5000 -5000  long.txt",
                "file: added, +5001 -0  new.txt",
            ]
            stores, views = here.wired.registry.stores, here.wired.views
            presented = presented_changes(here.state, stores.blobs, views, here.wired.masker, ("large.txt",))
            for name, last in (("large.txt", "300001 + harm"), ("long.txt", "5000 + harm"), ("new.txt", "5001 + harm")):
                *_, end = difference_lines(presented, (name,))
                assert end.strip() == last

    run(story())


def test_a_file_with_too_many_lines_hides_none_of_another(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / "a.txt").write_text("\n" * 250_000)
        (root / "b.txt").write_text("harm\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert listed(here) == ["file: modified, not compared here, 250,000 instead of 4 bytes  a.txt", "file: added, +1 -0  b.txt"]
            assert differences(here) == ["1 + harm"]

    run(story())


def test_a_byte_that_is_not_utf_8_hides_no_line(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / "a.txt").write_bytes(b"one\nharm \xff\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert listed(here) == ["file: modified, +1 -0, not UTF-8, other bytes are spelled out  a.txt"]
            assert differences(here) == ["1     1   one", r"2 + harm \xff"]

    run(story())


def test_a_long_target_of_a_link_is_not_cut_silently(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(lambda root: (root / "link").symlink_to("./" * 300 + "a.txt"))
            assert listed(here) == [f'file: added, a link to "{"./" * 150}…[305 more characters]…"  link']

    run(story())


def test_what_every_user_of_the_machine_could_change_is_said_to_be_so(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / "open").mkdir()
        (root / "open").chmod(0o777)
        (root / "tool").write_text("x\n")
        (root / "tool").chmod(0o757)

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert listed(here) == [
                "file: added, a directory, writable by every user (mode 777)  open",
                "file: added, +1 -0, executable, writable by every user (mode 757)  tool",
            ]

    run(story())


def test_a_name_that_applying_needs_for_itself_is_not_presented(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / ".curtainwall-x").mkdir()
        (root / ".curtainwall-x/0").write_text("x\n")
        (root / "b.txt").write_text("x\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert listed(here) == ["file: added, +1 -0  b.txt"]
            assert any(line.startswith("not in it: `.curtainwall-x`, `.curtainwall-x/0`: ") for line in here.card)

    run(story())
