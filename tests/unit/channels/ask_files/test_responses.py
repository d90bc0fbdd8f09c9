"""Response files: only a complete and exact yes is a yes, and what is half-written says nothing yet."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.channels.ask_files import Response, is_half_written, read_response

YES = '{"decision": "approved"}'


@pytest.mark.parametrize("text", [YES, '{"decision":"approved"}', f" \n{YES}\n", '{ "decision" : "approved" }'])
def test_an_exact_yes_approves(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert read_response(tmp_path / "r") is Response.APPROVED


@pytest.mark.parametrize(
    "text",
    ['{"decision": "aproved"}', '{"decision": "Approved"}', '{"decision": "approved", "for": "project"}', '{"Decision": "approved"}', '{}',
     f"{YES} {{}}", f"{YES}x", '{"decision": ["approved"]}', f"[{YES}]", "approved", '"approved"', "true", '{"decision": true}', "null",
     '{"decision": "denied", "decision": "approved"}', '{"decision": "approved", "decision": "approved"}', '{"decision": "denied"}',
     '[["decision", "approved"]]', "x" * 5000, YES + " " * 5000, '{"decision": "approved\\u0000"}', "\ufeff" + YES],
)  # fmt: skip
def test_anything_else_that_is_complete_denies(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert read_response(tmp_path / "r") is Response.DENIED


@pytest.mark.parametrize("end", range(len(YES)))
def test_every_beginning_of_a_yes_says_nothing_yet(tmp_path: Path, end: int) -> None:
    (tmp_path / "r").write_text(YES[:end])
    assert read_response(tmp_path / "r") is Response.HALF


def test_a_file_that_someone_still_writes_says_nothing_yet(tmp_path: Path) -> None:
    with (tmp_path / "r").open("w") as file:
        file.write(YES)
        file.flush()
        assert read_response(tmp_path / "r") is Response.BEING_WRITTEN
    assert read_response(tmp_path / "r") is Response.APPROVED


def test_bytes_that_are_no_text_deny(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(YES.encode("utf-16"))
    assert read_response(tmp_path / "r") is Response.DENIED


def test_no_file_is_no_answer(tmp_path: Path) -> None:
    assert read_response(tmp_path / "r") is Response.MISSING


def test_links_pipes_and_directories_deny_and_do_not_block(tmp_path: Path) -> None:
    (tmp_path / "yes").write_text(YES)
    (tmp_path / "link").symlink_to(tmp_path / "yes")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    assert [read_response(tmp_path / name) for name in ("link", "pipe", "directory")] == [Response.DENIED] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_denies(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(YES)
    os.chown(tmp_path / "r", 12345, 12345)
    assert read_response(tmp_path / "r") is Response.DENIED


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_only_a_yes_is_a_yes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "r"
    path.write_bytes(content)
    assert read_response(path) in (Response.DENIED, Response.HALF)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3).map(lambda value: __import__("json").dumps(value)))
def test_an_object_is_whole_exactly_when_its_last_brace_is_there(text: str) -> None:
    assert not is_half_written(text)
    assert all(is_half_written(text[:end]) for end in range(len(text)))
