"""How a turn takes up a conversation whose file does not have everything that the log says was told."""

import json
from pathlib import Path

import pytest

from curtainwall.agents.external.process.conversation import ConversationOpening, ProcessHistory, open_conversation
from curtainwall.agents.external.process.transcripts import transcript_path

NAME = "49913744-f3dc-4116-a860-084513b2ad53"


def past_of(*turns: tuple[str, str]) -> ProcessHistory:
    """Return a past in which these messages were delivered, each with the answer to it, or none."""
    past = ProcessHistory("process", lambda payload: payload.inline)
    past.note({"conversation": NAME})
    for number, (told, answer) in enumerate(turns, 1):
        past.undelivered = [told]
        past.note({"conversation": NAME, "delivered": f"t{number}", "mark": f"m{number}"})
        past.transcript += [("You", answer)] if answer else []
    return past


def opened(past: ProcessHistory, place: Path, *marks: str) -> ConversationOpening:
    """Return what is done where the file has only these messages."""
    file = transcript_path(place, place, NAME)
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps({"type": "user", "uuid": mark}, separators=(",", ":")) + "\n" for mark in marks))
    return open_conversation(past, place, place, "now", "fresh")


def test_messages_that_were_broken_off_before_they_were_written_down_lose_nothing(tmp_path: Path) -> None:
    past = past_of(("first", "one"), ("second", ""), ("third", ""), ("fourth", "four"))
    found = opened(past, tmp_path, "m1")
    assert (found.conversation, found.is_new, found.lost) == (NAME, False, "")
    assert "User: second\n\nUser: third\n\nUser: fourth\n\nYou: four" in found.preface


@pytest.mark.parametrize("marks", [("m1",), ("m9",)])
def test_a_file_that_lacks_more_than_the_last_answer_was_cut_short(tmp_path: Path, marks: tuple[str, ...]) -> None:
    past = past_of(("first", "one"), ("second", "two"), ("third", "three"))
    assert opened(past, tmp_path, *marks).lost == "its file was cut short"


def test_where_nothing_was_ever_answered_a_file_that_is_not_there_is_no_loss(tmp_path: Path) -> None:
    found = open_conversation(past_of(("first", ""), ("second", "")), tmp_path, tmp_path, "now", "fresh")
    assert (found.conversation, found.is_new, found.lost) == ("fresh", True, "")
    assert "second" in found.preface


def test_where_anything_was_answered_a_file_that_is_gone_is_a_loss(tmp_path: Path) -> None:
    found = open_conversation(past_of(("first", "one"), ("second", "")), tmp_path, tmp_path, "now", "fresh")
    assert found.lost == "its file is gone"
