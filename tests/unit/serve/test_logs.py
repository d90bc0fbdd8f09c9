"""The log of `serve`: what is left out of a quiet one, and whose messages are passed on."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from curtainwall.serve.logs import Logbook, LogFormat


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Put the process's logging back as it was."""
    root, ours = logging.getLogger(), logging.getLogger("curtainwall")
    before = [*root.handlers], root.level, ours.level
    root.handlers.clear()
    yield
    root.handlers[:], level, ours_level = before
    root.setLevel(level)
    ours.setLevel(ours_level)


def test_a_quiet_log_has_warnings_and_errors_alone() -> None:
    out = io.StringIO()
    book = Logbook(LogFormat.JSON, out, quiet=True)
    book.say("ready")
    book.say("slow", "warning")
    book.say("gone", "error")
    assert [json.loads(line)["what"] for line in out.getvalue().splitlines()] == ["slow", "gone"]


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("verbose", [False, True])
def test_libraries_are_passed_on_from_warnings_on_and_our_own_modules_as_far_as_wanted(verbose: bool) -> None:
    out = io.StringIO()
    Logbook(LogFormat.JSON, out).take_over()
    logging.getLogger("curtainwall").setLevel(logging.INFO if verbose else logging.NOTSET)
    logging.getLogger("a.library").setLevel(logging.INFO)
    logging.getLogger("a.library").info("a request with a key")
    logging.getLogger("a.library").warning("careful")
    logging.getLogger("curtainwall.runtime.turns").info("the turn ended")
    lines = [(line["level"], line["what"]) for line in map(json.loads, out.getvalue().splitlines())]
    assert lines == [("warning", "careful"), *([("info", "the turn ended")] if verbose else [])]
