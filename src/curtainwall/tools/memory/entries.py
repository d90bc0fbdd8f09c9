"""How a memory is written down: markdown, each note under a heading of its own, with where it came from in a comment beneath.

What agents write stands behind `> `, line by line, so nothing in it can pass for a heading or a comment of ours.
"""

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


@dataclass(frozen=True, slots=True)
class Damaged:
    """A part that says it is an agent's note and cannot be read; it is passed over, and said."""

    line: int
    why: str


def written(note: Note) -> str:
    """Return an agent's note as it stands in the file."""
    told = {"id": note.id, "at": note.at, "session": note.session, "agent": note.agent, "labels": list(note.labels)}
    # In JSON any letter can be written so; a comment ends at the first `-->`.
    comment = json.dumps(told, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    heading = datetime.fromtimestamp(note.at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(f"> {line}".rstrip() for line in note.text.splitlines())
    return f"{_HEADING}{heading}\n{_OPENS}{comment}{_CLOSES}\n\n{body}\n"


def read_notes(text: str) -> Iterator[Note | Damaged]:
    """Return every note of a file in order, agents' and the user's own."""
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(_HEADING)]
    # A first line such as `# Notes` is the file's title.
    title = 1 if lines[0].startswith("# ") else 0
    for begin, end in zip((title, *starts), (*starts, len(lines)), strict=True):
        if (found := _read(lines[begin:end], begin)) is not None:
            yield found


def _read(lines: list[str], number: int) -> Note | Damaged | None:
    heading = lines[0] if lines and lines[0].startswith(_HEADING) else None
    body = lines if heading is None else lines[1:]
    first = next((place for place, line in enumerate(body) if line.strip()), None)
    if heading is not None and first is not None and body[first].startswith(_OPENS.rstrip()):
        told = _told(body[first])
        return Damaged(number + 1, told) if isinstance(told, str) else _noted(told, body[first + 1 :])
    text = "\n".join([*([heading.removeprefix(_HEADING)] if heading is not None else []), *body]).strip()
    return Note(text) if text else None


def _noted(told: Note, body: list[str]) -> Note:
    text = "\n".join(_QUOTED.sub("", line, count=1) if line.startswith(">") else line for line in body).strip("\n")
    return Note(text, told.id, told.at, told.session, told.agent, told.labels)


def _told(comment: str) -> Note | str:
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
