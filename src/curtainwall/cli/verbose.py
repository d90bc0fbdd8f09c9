"""What `-v` adds to stderr: messages that we log, and where an error came from. Import it only then; logging is slow to import."""

import logging
import sys

from curtainwall import __version__

_OURS = logging.getLogger("curtainwall")


class PlainFormatter(logging.Formatter):
    """Formats log lines in which nothing can move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text; a message has one line, and a traceback follows it in lines of its own."""
        message, newline, trace = super().format(record).partition("\n") if record.exc_info else (super().format(record), "", "")
        return _plain(message) + newline + "\n".join(map(_plain, trace.split("\n")))


def log_more() -> None:
    """Print what we log, from level INFO on. Libraries stay at WARNING: what they log may quote requests, and with them secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _OURS.setLevel(logging.INFO)
    _OURS.info("version %s with Python %s at `%s`", __version__, sys.version.partition(" ")[0], sys.executable)


def log_origin(error: Exception) -> None:
    """Print where an error came from."""
    _OURS.info("this is where the error came from", exc_info=error)


def _plain(line: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
