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
from curtainwall.tools.changes import load_changes, manifest_of
from tests.support.reviews import reviewed
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
