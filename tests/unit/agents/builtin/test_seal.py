"""A saved program is taken up only where it was saved, by whoever saved it, as it was saved, and nobody else can read it."""

import base64
import json
from typing import Any

import pytest

from curtainwall.agents.builtin.snapshots import PendingCall, ProgramSnapshot, SnapshotSeal
from curtainwall.model import Broken, CallId
from tests.support.covers import covers

KEY = b"k" * 32
SNAPSHOT = ProgramSnapshot(b"\0interpreter" * 100, "so far\n", {7: PendingCall(CallId("c1"), "far.look", {"path": "a", "n": 1})}, "x = 1")
OF_0_1_0 = {
    "dump": "eAFjyMwrSS0qKEoFkgyj7NFwGE0Do2lgEKcBAI0+1mA=",
    "prints": "so far\n",
    "pending": {"7": ["c1", "far.look", {"path": "a", "n": 1}]},
    "mac": "fb781fa230999d5b4eddd45682a672afdac9b7416fe63528a337df741270d937",
}


def sealed() -> dict[str, Any]:
    told = SnapshotSeal(KEY).close(SNAPSHOT, "s1:p1:3")
    assert isinstance(told, dict)
    return dict(told)


def test_what_was_sealed_here_opens_here() -> None:
    assert SnapshotSeal(KEY).open(sealed(), "s1:p1:3") == SNAPSHOT


def test_what_0_1_0_saved_opens_and_has_no_code() -> None:
    found = SnapshotSeal(KEY).open(OF_0_1_0, "s1:p1:3")
    assert found == ProgramSnapshot(SNAPSHOT.dump, SNAPSHOT.prints, SNAPSHOT.pending)


@covers("agents.saved-programs-are-sealed")
def test_nobody_reads_a_saved_program_without_the_key() -> None:
    told = json.dumps(sealed())
    for word in ("interpreter", "so far", "far.look", "x = 1"):
        assert word not in told
        assert word.encode() not in base64.b64decode(sealed()["sealed"])
    assert sealed() != sealed()


@pytest.mark.parametrize("about", ["s2:p1:3", "s1:p2:3", "s1:p1:4", "", "s1:p1:3\0"])
@covers("agents.saved-programs-are-sealed")
def test_another_session_program_or_step_is_another_place(about: str) -> None:
    with pytest.raises(Broken, match="not here"):
        SnapshotSeal(KEY).open(sealed(), about)


@covers("agents.saved-programs-are-sealed")
def test_another_key_opens_nothing() -> None:
    with pytest.raises(Broken, match="not saved by us"):
        SnapshotSeal(b"x" * 32).open(sealed(), "s1:p1:3")


@pytest.mark.parametrize(
    "change",
    [
        {"dump": base64.b64encode(b"mine").decode()},
        {"prints": "other words\n"},
        {"pending": {}},
        {"pending": {"7": ["c1", "far.look", {"path": "b", "n": 1}]}},
        {"pending": {"8": ["c1", "far.look", {"path": "a", "n": 1}]}},
        {"mac": "0" * 64},
        {"mac": ""},
        {"mac": "ü" * 64},
    ],
)
@covers("agents.saved-programs-are-sealed")
def test_a_change_anywhere_is_noticed(change: dict[str, Any]) -> None:
    with pytest.raises(Broken):
        SnapshotSeal(KEY).open({**OF_0_1_0, **change}, "s1:p1:3")


@pytest.mark.parametrize("place", [0, 5, 12, 40, -1])
@covers("agents.saved-programs-are-sealed")
def test_one_other_bit_is_noticed(place: int) -> None:
    data = bytearray(base64.b64decode(sealed()["sealed"]))
    data[place] ^= 1
    for changed in (base64.b64encode(data).decode(), base64.b64encode(data[:-3]).decode(), "", "no Base64!"):
        with pytest.raises(Broken, match="not saved by us"):
            SnapshotSeal(KEY).open({"sealed": changed}, "s1:p1:3")


@pytest.mark.parametrize("told", [None, "x", [], {}, {"dump": 1, "prints": "", "pending": {}, "mac": ""}, {"mac": "a"}])
def test_what_has_another_form_is_broken(told: Any) -> None:
    with pytest.raises(Broken, match="unknown form"):
        SnapshotSeal(KEY).open(told, "s1:p1:3")
