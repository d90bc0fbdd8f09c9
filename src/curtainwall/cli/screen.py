"""What the program shows: results on stdout, everything else on stderr, as text or as exactly one JSON document."""

import json
import os
import shutil
import signal
import sys
import termios
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.model import CurtainwallError, Effect, Millis


class Misuse(CurtainwallError):
    """The command line asks for something that makes no sense."""

    exit_code = 2


class Output(StrEnum):
    """How a result is shown."""

    TEXT = "text"
    JSON = "json"


def see_that_it_is_a_directory(path: Path | None, option: str) -> None:
    """Raise `Misuse` for a directory that was given and is not there; a typing error must not pass for an empty place."""
    if path is not None and not path.is_dir():
        why = "is no directory" if path.exists() else "does not exist"
        raise Misuse(f"{option} `{path}` {why}; name a directory that is there")


OutputOption = Annotated[Output, typer.Option("--output", help="text, or exactly one JSON document")]
YesOption = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]

_COLOURS = {"allow": "32", "ask": "33", "deny": "31", "ok": "32", "warn": "33", "fail": "31", "bold": "1", "dim": "2"}


def show(text: str) -> None:
    """Print a result."""
    print(text)


def show_json(document: object) -> None:
    """Print the one document of a command."""
    print(json.dumps(document, ensure_ascii=True))


def note(text: str) -> None:
    """Tell the user something that is not the result."""
    print(text, file=sys.stderr)


def paint(text: str, colour: str) -> str:
    """Return text in a colour where stdout is a terminal and nobody minds."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def verdict_word(effect: Effect) -> str:
    """Return an effect in its colour."""
    return paint(effect.value, effect.value)


def json_line(text: str) -> str:
    """Return a line of JSON as it is for a program, and on a terminal with everything escaped that is not plainly visible."""
    if not sys.stdout.isatty():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def timestamp(at: Millis | None) -> str | None:
    """Return a time for other programs."""
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def room() -> int | None:
    """Return how broad a line may be: as the terminal is, or as COLUMNS says of it; None where no terminal is written to."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost; raise where nobody can be asked or the answer is no."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("nobody can be asked here; add --yes if you mean it")
    # A loop that runs takes Ctrl-C for itself and ends its task when that rests next, which a question that is waited for never does.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # What was typed before the question could be read does not answer it.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as gone:
        # The question's own line is not over yet.
        note("")
        if isinstance(gone.__context__, KeyboardInterrupt):
            note("nothing was done")
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if not agreed:
        raise typer.Abort
