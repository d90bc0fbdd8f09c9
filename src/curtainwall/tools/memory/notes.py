"""How a memory is written down: markdown, each note under a heading of its own, with where it came from in a comment beneath.

What agents write stands behind `> `, line by line, so nothing in it can pass for a heading or a comment of ours.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from curtainwall.model import Label, Millis

_HEADING: Final = "## "
_OPENS, _CLOSES = "<!-- curtainwall: ", " -->"
_QUOTED: Final = re.compile(r"> ?")
_LABEL: Final = re.compile(r"[^\s<>]{1,128}")
_MOST_LABELS: Final = 64


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to remember. One by hand has no id, no session and no labels: it is the user's own word."""

    text: str
    id: str = ""
    at: Millis = 0
    session: str = ""
    agent: str = ""
    labels: tuple[Label, ...] = ()

    @property
    def is_by_hand(self) -> bool:
        """Tell whether the user wrote it."""
        return not self.id

    @property
    def name(self) -> str:
        """Return how people name it: by its id, or one by hand by what it says."""
        return self.id or f"hand{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class DamagedNote:
    """A part that says it is an agent's note and cannot be read; it is passed over, and said."""

    line: int
    why: str


def render_note(note: Note) -> str:
    """Return an agent's note as it stands in the file."""
    told = {"id": note.id, "at": note.at, "session": note.session, "agent": note.agent, "labels": list(note.labels)}
    # In JSON any letter can be written so; a comment ends at the first `-->`.
    comment = json.dumps(told, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    heading = datetime.fromtimestamp(note.at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(f"> {line}".rstrip() for line in note.text.splitlines())
    return f"{_HEADING}{heading}\n{_OPENS}{comment}{_CLOSES}\n\n{body}\n"


def read_notes(text: str) -> Iterator[Note | DamagedNote]:
    """Return every note of a file in order, agents' and the user's own."""
    return (found for found, _, _ in _sections(text))


def remove_note(text: str, name: str) -> tuple[str, str, int]:
    """Return a file without the note of that name, then the note as it stood there, and its line; the rest is left to the letter."""
    lines = text.split("\n")
    found = [(begin, end) for each, begin, end in _sections(text) if isinstance(each, Note) and each.name == name]
    meant = {number for begin, end in found for number in range(begin, end)}
    rest = "\n".join(line for number, line in enumerate(lines) if number not in meant)
    return rest, "\n".join(line for number, line in enumerate(lines) if number in meant), min(meant, default=0)


def restore_note(text: str, note: str, line: int) -> str:
    """Return a file with a note that was taken out of it, at its line, or behind the note that has come to stand there."""
    lines = text.split("\n") if text else []
    starts = [number for number, each in enumerate(lines) if each.startswith(_HEADING) and number >= line]
    # Without a heading of its own it is what stands above all headings.
    place = next(iter(starts), len(lines)) if note.startswith(_HEADING) else int(text.startswith("# "))
    return "\n".join([*lines[:place], *note.split("\n"), *lines[place:]])


def _sections(text: str) -> Iterator[tuple[Note | DamagedNote, int, int]]:
    """Yield every note with its first line and the one behind its last."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    starts = [number for number, line in enumerate(lines) if line.startswith(_HEADING)]
    # A first line such as `# Notes` is the file's title.
    title = 1 if lines[0].startswith("# ") else 0
    for begin, end in zip((title, *starts), (*starts, len(lines)), strict=True):
        if (found := _read(lines[begin:end], begin)) is not None:
            yield found, begin, end


def _read(lines: list[str], number: int) -> Note | DamagedNote | None:
    heading = lines[0] if lines and lines[0].startswith(_HEADING) else None
    body = lines if heading is None else lines[1:]
    first = next((place for place, line in enumerate(body) if line.strip()), None)
    if heading is not None and first is not None and body[first].startswith(_OPENS.rstrip()):
        told = _parse_comment(body[first])
        return DamagedNote(number + 1, told) if isinstance(told, str) else _note_from(told, body[first + 1 :])
    text = "\n".join([*([heading.removeprefix(_HEADING)] if heading is not None else []), *body]).strip()
    return Note(text) if text else None


def _note_from(told: Note, body: list[str]) -> Note:
    text = "\n".join(_QUOTED.sub("", line, count=1) if line.startswith(">") else line for line in body).strip("\n")
    return Note(text, told.id, told.at, told.session, told.agent, told.labels)


def _parse_comment(comment: str) -> Note | str:
    """Return what a comment says, as a note without its text, or what is wrong with it."""
    if not comment.rstrip().endswith(_CLOSES.strip()):
        return "its comment has no end"
    try:
        read: object = json.loads(comment.strip().removeprefix(_OPENS.strip()).removesuffix(_CLOSES.strip()))
    except (ValueError, RecursionError):
        return "its comment is no JSON"
    told = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    id_, at, session, agent, labels = (told.get(name) for name in ("id", "at", "session", "agent", "labels"))
    if not (isinstance(id_, str) and id_ and type(at) is int and 0 <= at < 2**46 and isinstance(session, str) and isinstance(agent, str)):
        return "its comment does not say where it came from"
    if not isinstance(labels, list) or len(cast("list[object]", labels)) > _MOST_LABELS:
        return "its comment does not say which labels it has"
    names = [name for name in cast("list[object]", labels) if isinstance(name, str) and _LABEL.fullmatch(name)]
    if len(names) != len(cast("list[object]", labels)):
        return "its comment names labels that are none"
    return Note("", id_, at, session, agent, tuple(map(Label, names)))
