import asyncio
import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import BadCall, CallId, CallPermitted, Effect, PermitId, Place, Prepared, SessionId, ToolResult, Verdict, Workspace
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners, move_refiners
from curtainwall.tools.files.moves import EXTENT_INSIDE


class Room:
    """A workspace of the agent's own, a place outside it, and a path that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.work, self.outside, self.secret = root / "work", root / "outside", root / "secret"
        for path in (self.work, self.outside, self.secret):
            path.mkdir()
        masker = Masker(b"k")
        self.place = Place(session=SessionId("s"), workspace=Workspace(path=str(self.work), own=True))
        refiners = move_refiners(masker, lambda path, _place: path.startswith(str(self.secret)))
        self.tools = NativeTools(
            Catalogue(NATIVE_TOOLS), home=str(root), masker=masker, runners=filesystem_runners(masker), refiners=refiners
        )

    def prepare(self, source: str | Path, destination: str | Path) -> Prepared:
        arguments: dict[str, JsonValue] = {"source": str(source), "destination": str(destination)}
        return self.tools.prepare("filesystem.move_file", arguments, self.place)

    def run(self, prepared: Prepared) -> ToolResult:
        verdict = Verdict(effect=Effect.ALLOW, because=(), reason="", findings=())
        permit = CallPermitted(at=0, call=CallId("c"), permit=PermitId("p"), digest=prepared.subject.digest, verdict=verdict)
        return asyncio.run(self.tools.run(prepared, permit, self.place))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(Path(os.path.realpath(tmp_path)))


def moves(prepared: Prepared) -> JsonValue:
    return prepared.subject.canonical["moves"]


def test_a_move_in_the_workspace_keeps_the_file_and_a_move_out_of_it_makes_another(room: Room) -> None:
    (room.work / "a").write_text("x")
    number = (room.work / "a").stat().st_ino
    assert room.run(room.prepare("a", "b")).ok
    assert (room.work / "b").stat().st_ino == number
    assert room.run(room.prepare("b", room.outside / "b")).ok
    assert (room.outside / "b").stat().st_ino != number


def test_what_changes_after_the_call_was_judged_is_not_moved_in_the_workspace_either(room: Room) -> None:
    (room.work / "a").write_text("x")
    prepared = room.prepare("a", "b")
    (room.work / "a").write_text("y")
    result = room.run(prepared)
    assert not result.ok
    assert "changed after it was judged" in str(result.value)
    assert (room.work / "a").exists()


def test_too_much_is_moved_unseen_in_the_workspace_and_refused_beyond_it(room: Room) -> None:
    with (room.work / "big").open("wb") as file:
        file.truncate(EXTENT_INSIDE.size + 1)
    assert str(moves(room.prepare("big", "b"))).startswith("something too big")
    assert moves(room.prepare("big", room.outside / "b")) == "a file of 67,108,865 bytes"
    deep = room.work / "deep" / "/".join(["d"] * 60)
    deep.mkdir(parents=True)
    assert room.run(room.prepare("deep", "other")).ok
    with pytest.raises(BadCall, match="too many files or bytes; move it in parts"):
        room.prepare("other", room.outside / "deep")


def test_what_cannot_be_copied_does_not_leave(room: Room) -> None:
    os.mkfifo(room.work / "pipe")
    with pytest.raises(BadCall, match="besides files, directories and links"):
        room.prepare("pipe", room.outside / "pipe")
    assert room.run(room.prepare("pipe", "other")).ok


def test_a_protected_path_is_not_looked_into(room: Room) -> None:
    (room.secret / "key").write_text("x")
    assert "moves" not in room.prepare(room.secret / "key", "key").subject.canonical


def test_a_link_shows_where_it_leads(room: Room) -> None:
    (room.work / "link").symlink_to("/etc/hostname")
    assert moves(room.prepare("link", room.outside / "link")) == "a link to `/etc/hostname`"


@pytest.mark.parametrize("inside", [False, True])
def test_a_named_pipe_of_a_project_is_not_moved(room: Room, *, inside: bool) -> None:
    (room.work / "d").mkdir()
    os.mkfifo(room.work / "d" / "pipe")
    source = "d" if inside else "d/pipe"
    assert moves(room.prepare(source, "e")), "in its own workspace nobody but the agent has one"
    room.place = Place(session=SessionId("s"), workspace=Workspace(path=str(room.work), own=False))
    with pytest.raises(BadCall, match="something besides files, directories and links"):
        room.prepare(source, "e")
