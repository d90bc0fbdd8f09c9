"""Logs of every released version load and fold to what they folded to then."""

import json
from pathlib import Path

import pytest

from curtainwall.model import AnyEvent, Entry, StreamId, encode_event, event_types
from curtainwall.session import SessionState, fold, lift, replay, transcript
from tests.golden.summary import summary
from tests.support.covers import covers

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


def load(place: Path) -> list[AnyEvent]:
    lines = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    payloads = [json.dumps(line["payload"], ensure_ascii=False).encode() for line in lines]
    return [
        lift(Entry(StreamId("session:s1"), seq, line["kind"], line["version"], payload, b""))
        for seq, (line, payload) in enumerate(zip(lines, payloads, strict=True), start=1)
    ]


@covers("session.old-logs-fold-the-same")
@pytest.mark.parametrize("place", LOGS, ids=lambda place: place.stem)
def test_a_log_of_an_earlier_version_folds_to_what_it_folded_to_then(place: Path) -> None:
    events = load(place)
    states = json.loads(place.with_suffix(".json").read_text(encoding="utf-8"))
    assert states
    # What a state knows only since then is as if nothing had happened.
    untouched = summary(SessionState(), transcript(()))["state"]
    for pinned in states:
        told = events[: pinned.pop("entries")]
        folded = summary(fold(told), transcript(told))
        later = folded["state"].keys() - pinned["state"].keys()
        assert {name: folded["state"].pop(name) for name in later} == {name: untouched[name] for name in later}
        assert folded == pinned
        assert replay(told, lambda _: None) == ()


@pytest.mark.parametrize("place", LOGS[:1], ids=lambda place: place.stem)
def test_the_first_log_holds_every_event_of_the_first_version(place: Path) -> None:
    kinds = {json.loads(line)["kind"] for line in place.read_text(encoding="utf-8").splitlines()}
    assert place.stem == "0.1.0"
    assert len(kinds) == 58
    assert kinds <= event_types()


@covers("model.a-stored-form-never-changes")
def test_what_the_newest_version_wrote_is_written_the_same_today() -> None:
    lines = [json.loads(line) for line in LOGS[-1].read_text(encoding="utf-8").splitlines()]
    for line, event in zip(lines, load(LOGS[-1]), strict=True):
        kind, version, payload = encode_event(event)
        assert (kind, version, json.loads(payload)) == (line["kind"], line["version"], line["payload"])
