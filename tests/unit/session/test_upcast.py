"""Old events lifted to the present, one version at a time; what nobody knows refuses the log."""

import json
from typing import Any

import pytest

from curtainwall.model import Broken, Entry, SessionRenamed, StreamId, encode_event, event_types
from curtainwall.session import LIFTS, Lift, lift
from tests.support.covers import covers
from tests.support.given import ANN, NOW

EVENT = SessionRenamed(at=NOW, name="a", by=ANN)


def entry(kind: str = "SessionRenamed", version: int = 1, payload: bytes = b"") -> Entry:
    return Entry(StreamId("session:s1"), 7, kind, version, payload or encode_event(EVENT)[2], b"")


def _second(old: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in old.items() if key != "title"}, "called": old["title"]}


def _third(old: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in old.items() if key != "called"}, "name": old["called"]}


# Made up: as if there had been two versions before the first one.
STEPS: dict[tuple[str, int], Lift] = {("SessionRenamed", -1): _second, ("SessionRenamed", 0): _third}


def test_a_present_event_is_read_as_it_is() -> None:
    assert lift(entry()) == EVENT


@covers("session.old-events-are-lifted")
def test_an_old_event_is_lifted_step_by_step() -> None:
    told = {"at": NOW, "by": {"name": "ann"}}
    assert lift(entry(version=-1, payload=json.dumps({**told, "title": "a"}).encode()), STEPS) == EVENT
    assert lift(entry(version=0, payload=json.dumps({**told, "called": "a"}).encode()), STEPS) == EVENT
    assert lift(entry(version=1), STEPS) == EVENT


def test_a_missing_step_is_said() -> None:
    with pytest.raises(Broken, match="there is no way from version -2 of `SessionRenamed` to the next"):
        lift(entry(version=-2), STEPS)
    with pytest.raises(Broken, match="there is no way from version 0 of `SessionRenamed` to the next"):
        lift(entry(version=0))


@pytest.mark.parametrize("payload", [b"{", b"[]", b"null", b"{}", b"\xff"])
def test_a_damaged_old_event_is_broken(payload: bytes) -> None:
    with pytest.raises(Broken, match="entry 7 of `session:s1` is a damaged `SessionRenamed`"):
        lift(entry(version=-1, payload=payload), STEPS)


@covers("session.unknown-events-refuse-the-log")
@pytest.mark.parametrize(("kind", "version"), [("SessionTeleported", 1), ("SessionRenamed", 2)])
def test_what_a_newer_program_wrote_is_refused(kind: str, version: int) -> None:
    words = f"entry 7 of `session:s1` is a `{kind}` of version {version}, which this program does not know: upgrade it"
    with pytest.raises(Broken) as caught:
        lift(entry(kind, version))
    assert str(caught.value) == words


def test_every_step_leads_from_an_event_that_exists() -> None:
    assert {kind for kind, _ in LIFTS} <= event_types()
