"""The file format of a memory: markdown with one heading per note, and the origin of the note in a comment below it.

Each line that an agent wrote starts with `> `, so nothing in it can pass for one of our headings or comments.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, cast

from curtainwall.model import Label, Millis, record

_HEADING: Final = "## "
_OPENS, _CLOSES = "<!-- curtainwall: ", " -->"
_QUOTED: Final = re.compile(r"> ?")
_LABEL: Final = re.compile(r"[^\s<>]{1,128}")
_MOST_LABELS: Final = 64


@record
class Note:
    """One thing to remember. A handwritten note by the user has no id, session or labels."""

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
        """Return its name for people: the id, or for a handwritten note a digest of its text."""
        return self.id or f"hand{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"


@record
class DamagedNote:
    """A section that claims to be an agent's note but cannot be parsed; it is skipped and reported."""

    line: int
    why: str


def render_note(note: Note) -> str:
    """Return an agent's note in the format of the file."""
    fields = {"id": note.id, "at": note.at, "session": note.session, "agent": note.agent, "labels": list(note.labels)}
    # JSON can escape any character; a comment ends at the first `-->`.
    comment = json.dumps(fields, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    heading = datetime.fromtimestamp(note.at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(f"> {line}".rstrip() for line in note.text.splitlines())
    return f"{_HEADING}{heading}\n{_OPENS}{comment}{_CLOSES}\n\n{body}\n"


def read_notes(text: str) -> Iterator[Note | DamagedNote]:
    """Return every note of a file in order, both agents' and the user's."""
    return (note for note, _, _ in _sections(text))


def remove_note(text: str, name: str) -> tuple[str, str, int]:
    """Return the file without the named note, the note's text, and its line; everything else stays unchanged."""
    lines = text.split("\n")
    ranges = [(begin, end) for note, begin, end in _sections(text) if isinstance(note, Note) and note.name == name]
    removed = {number for begin, end in ranges for number in range(begin, end)}
    rest = "\n".join(line for number, line in enumerate(lines) if number not in removed)
    return rest, "\n".join(line for number, line in enumerate(lines) if number in removed), min(removed, default=0)


def restore_note(text: str, note: str, line: int) -> str:
    """Return the file with a removed note restored at its line, or after the note that now occupies that line."""
    lines = text.split("\n") if text else []
    starts = [number for number, text_line in enumerate(lines) if text_line.startswith(_HEADING) and number >= line]
    # A note without a heading belongs above all headings.
    position = next(iter(starts), len(lines)) if note.startswith(_HEADING) else int(text.startswith("# "))
    return "\n".join([*lines[:position], *note.split("\n"), *lines[position:]])


def _sections(text: str) -> Iterator[tuple[Note | DamagedNote, int, int]]:
    """Yield every note with its first line and the line after its last."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    starts = [number for number, line in enumerate(lines) if line.startswith(_HEADING)]
    # A first line such as `# Notes` is the file's title.
    title = 1 if lines[0].startswith("# ") else 0
    for begin, end in zip((title, *starts), (*starts, len(lines)), strict=True):
        if (note := _read(lines[begin:end], begin)) is not None:
            yield note, begin, end


def _read(lines: list[str], number: int) -> Note | DamagedNote | None:
    heading = lines[0] if lines and lines[0].startswith(_HEADING) else None
    body = lines if heading is None else lines[1:]
    first = next((place for place, line in enumerate(body) if line.strip()), None)
    if heading is not None and first is not None and body[first].startswith(_OPENS.rstrip()):
        parsed = _parse_comment(body[first])
        return DamagedNote(number + 1, parsed) if isinstance(parsed, str) else _note_from(parsed, body[first + 1 :])
    text = "\n".join([*([heading.removeprefix(_HEADING)] if heading is not None else []), *body]).strip()
    return Note(text) if text else None


def _note_from(origin: Note, body: list[str]) -> Note:
    text = "\n".join(_QUOTED.sub("", line, count=1) if line.startswith(">") else line for line in body).strip("\n")
    return Note(text, origin.id, origin.at, origin.session, origin.agent, origin.labels)


def _parse_comment(comment: str) -> Note | str:
    """Parse a comment into a note without text, or return what is wrong with it."""
    if not comment.rstrip().endswith(_CLOSES.strip()):
        return "its comment has no end"
    try:
        parsed: object = json.loads(comment.strip().removeprefix(_OPENS.strip()).removesuffix(_CLOSES.strip()))
    except (ValueError, RecursionError):
        return "its comment is no JSON"
    fields = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    id_, at, session, agent, labels = (fields.get(name) for name in ("id", "at", "session", "agent", "labels"))
    if not (isinstance(id_, str) and id_ and type(at) is int and 0 <= at < 2**46 and isinstance(session, str) and isinstance(agent, str)):
        return "its comment does not say where it came from"
    if not isinstance(labels, list) or len(cast("list[object]", labels)) > _MOST_LABELS:
        return "its comment does not say which labels it has"
    names = [name for name in cast("list[object]", labels) if isinstance(name, str) and _LABEL.fullmatch(name)]
    if len(names) != len(cast("list[object]", labels)):
        return "its comment names labels that are none"
    return Note("", id_, at, session, agent, tuple(map(Label, names)))
