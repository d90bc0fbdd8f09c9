"""The log of `serve` on stderr: one line for each event, for people or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, TextIO

Level = Literal["info", "warning", "error"]


class LogFormat(StrEnum):
    """The format of a line."""

    TEXT = "text"
    JSON = "json"


class Logbook:
    """The log lines of one process. Nothing that an agent wrote can move the cursor or start a new line."""

    def __init__(self, shape: LogFormat = LogFormat.TEXT, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._shape = shape
        self._out = out or sys.stderr
        self._is_quiet = quiet

    def say(self, what: str, level: Level = "info", **more: str | float | None) -> None:
        """Write what happened, with related values under names; a quiet log leaves out `info`."""
        if self._is_quiet and level == "info":
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._shape is LogFormat.JSON:
            line = json.dumps({"at": at, "level": level, "what": what, **more})
        else:
            mark = "" if level == "info" else f"{level}: "
            line = f"{at} {mark}{''.join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in what)}"
        # If the reader has gone away, keep serving.
        try:
            print(line, file=self._out, flush=True)
        except OSError:
            return

    def service(self, name: str, what: str) -> None:
        """Write what happened to a service."""
        self.say(f"{name}: {what}", "warning", service=name)

    def take_over(self) -> None:
        """Send warnings of libraries here as well, and what we log ourselves."""
        logging.basicConfig(handlers=[_Libraries(self)], level=logging.WARNING, force=True)


class _Libraries(logging.Handler):
    """Passes on what libraries log, from warnings on, and whatever our own modules log: how much that is, `-v` says."""

    def __init__(self, book: Logbook) -> None:
        super().__init__(logging.INFO)
        self._book = book

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and not record.name.startswith("curtainwall."):
            return
        level: Level = "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
        self._book.say(record.getMessage(), level, library=record.name)
