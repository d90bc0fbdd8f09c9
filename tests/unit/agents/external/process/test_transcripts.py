"""What is read from a conversation's file, which its agent may have made anything of."""

import json
import os
from pathlib import Path

import pytest

from curtainwall.agents.external.process.transcripts import ClaudeTranscript, Damage, conversations_in, copy_conversation, read_transcript

ASKED = {"type": "user", "uuid": "m1", "message": {"role": "user", "content": "hello"}}
TOOL = {
    "type": "assistant",
    "uuid": "a0",
    "message": {"stop_reason": "tool_use", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}]},
}
RESULT = {"type": "user", "uuid": "r0", "message": {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}}
DONE = {"type": "assistant", "uuid": "a1", "message": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "Done."}]}}


def written(path: Path, *entries: object, end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(each, separators=(",", ":")) for each in entries) + end)
    return path


def read(path: Path) -> ClaudeTranscript:
    found = read_transcript(path)
    assert isinstance(found, ClaudeTranscript)
    return found


def test_an_answer_is_taken_from_it_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    assert read(written(path, ASKED)).answer_to("m1") is None
    assert read(written(path, ASKED, TOOL)).answer_to("m1") is None
    assert read(written(path, ASKED, TOOL, RESULT)).answer_to("m1") is None
    assert read(written(path, ASKED, TOOL, RESULT, DONE)).answer_to("m1") == "I look.\n\nDone."
    assert read(written(path, ASKED, DONE, {**ASKED, "uuid": "m2"})).answer_to("m2") is None
    assert read(written(path, ASKED, {**DONE, "isSidechain": True})).answer_to("m1") is None


def test_a_message_is_known_by_its_own_mark(tmp_path: Path) -> None:
    found = read(written(tmp_path / "c.jsonl", ASKED, DONE))
    assert found.has("m1")
    assert not found.has("m")


def test_half_a_line_at_the_end_is_cut_off_by_whoever_goes_on_and_left_alone_by_whoever_looks(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", ASKED, DONE, end='\n{"type":"us')
    assert read(path).has("m1")
    assert path.read_text().endswith('{"type":"us')
    assert isinstance(read_transcript(path, mend=True), ClaudeTranscript)
    assert path.read_text().endswith("}\n")


def linked(*names: str) -> list[dict[str, object]]:
    """Return messages of which each names the one before it, as Claude Code links them."""
    before = (None, *names)
    return [{**ASKED, "uuid": name, "parentUuid": parent} for name, parent in zip(names, before, strict=False)]


@pytest.mark.parametrize("missing", [slice(0, 1), slice(1, 2), slice(0, 3)])
def test_a_file_that_lacks_a_part_before_its_last_message_is_seen_to(tmp_path: Path, missing: slice) -> None:
    path, entries = tmp_path / "c.jsonl", linked("m1", "a1", "m2", "a2", "m3")
    assert read(written(path, *entries)).leads_back(("m1", "m2", "m3"))
    del entries[missing]
    assert not read(written(path, *entries)).leads_back(("m1", "m2", "m3"))


def test_a_line_in_the_middle_that_is_no_json_counts_as_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", *linked("m1", "a1", "m2"))
    path.write_text(path.read_text().replace('"uuid":"a1"', '"uu#"a1"'))
    assert not read(path).leads_back(("m1", "m2"))


def test_what_lies_before_our_first_message_or_was_left_behind_is_no_missing_part(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    adopted = [{**each, "parentUuid": each["parentUuid"] or "elsewhere"} for each in linked("m1", "a1", "m2")]
    assert read(written(path, *adopted)).leads_back(("m1", "m2"))
    boundary = {"type": "system", "uuid": "b1", "parentUuid": None, "logicalParentUuid": "elsewhere"}
    assert read(written(path, boundary, {**ASKED, "uuid": "m2", "parentUuid": "b1"})).leads_back(("m1", "m2"))
    assert read(written(path, *linked("m1", "a1"))).leads_back(("m1", "m2")), "the end is looked at by whoever goes on"


def test_a_file_whose_messages_go_round_in_a_circle_keeps_nobody_busy(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", {**ASKED, "uuid": "m2", "parentUuid": "y"}, {**ASKED, "uuid": "y", "parentUuid": "m2"})
    assert not read(path).leads_back(("m1", "m2"))


@pytest.mark.parametrize(
    ("content", "why"), [("", "empty"), ("garbage\n", "damaged"), ('{"a":1}\nxx\n{"b":2}\n', "damaged"), ("{", "damaged")]
)
def test_what_is_no_conversation_is_said_to_be_none(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    found = read_transcript(path)
    assert isinstance(found, Damage)
    assert why in found.why


def test_a_missing_a_closed_and_a_planted_file_are_told_apart_and_never_waited_for(tmp_path: Path) -> None:
    assert read_transcript(tmp_path / "none.jsonl") == Damage("its file is gone")
    closed = written(tmp_path / "closed.jsonl", ASKED)
    closed.chmod(0)
    assert read_transcript(closed) == Damage("its file cannot be read: permission denied")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "dir.jsonl").mkdir()
    for name in ("pipe", "link", "dir"):
        found = read_transcript(tmp_path / f"{name}.jsonl")
        assert isinstance(found, Damage)
        assert "cannot be read" in found.why


def test_conversations_of_a_project_are_listed_newest_first_and_links_are_none(tmp_path: Path) -> None:
    place = tmp_path / "projects" / "-p"
    place.mkdir(parents=True)
    for number, name in enumerate(("old", "new")):
        written(place / f"{name}.jsonl", ASKED)
        os.utime(place / f"{name}.jsonl", (number, number))
    (place / "link.jsonl").symlink_to("/etc/passwd")
    assert [each.conversation for each in conversations_in(tmp_path, Path("/p"))] == ["new", "old"]


def test_a_conversation_from_elsewhere_is_copied_and_never_over_another(tmp_path: Path) -> None:
    source = written(tmp_path / "there.jsonl", ASKED)
    copy_conversation(source, tmp_path, Path("/p"), "c")
    there = tmp_path / "projects" / "-p" / "c.jsonl"
    assert there.read_bytes() == source.read_bytes()
    assert there.stat().st_mode & 0o777 == 0o600
    written(source, ASKED, DONE)
    copy_conversation(source, tmp_path, Path("/p"), "c")
    assert not read(there).has("a1")
