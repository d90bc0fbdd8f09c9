"""Claude Code's own transcripts: where they are stored, whether one is whole, and what was asked and answered in it."""

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.agents.external import nested, nested_text
from curtainwall.model import record

_LONGEST: Final = 200
_PLAIN: Final = re.compile(r"[A-Za-z0-9]")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def project_slug(project: str) -> str:
    """Return Claude Code's name for a real path: dashes for all UTF-16 units but ASCII letters and digits; a long one is cut and hashed."""
    units = tuple(_units(project))
    plain = "".join(chr(unit) if unit < 128 and _PLAIN.match(chr(unit)) else "-" for unit in units)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}-{_hash(units)}"


def transcript_path(config: Path, project: Path, conversation: str) -> Path:
    """Return the path of a conversation, whether it exists or not.

    Another version may use another hash, so a long name is also matched by its beginning.
    """
    name = project_slug(str(project))
    expected = config / "projects" / name / f"{conversation}.jsonl"
    if expected.exists() or len(name) <= _LONGEST:
        return expected
    matches = (path for path in (config / "projects").glob(f"{name[:_LONGEST]}-*/{conversation}.jsonl"))
    return next(iter(sorted(matches)), expected)


def _units(text: str) -> Iterator[int]:
    data = text.encode("utf-16-le", errors="surrogatepass")
    return (int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


def _hash(units: tuple[int, ...]) -> str:
    """Return the classic JavaScript string hash (times 31 plus the unit, signed 32 bits) as an absolute value in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    amount = abs(value - 2**32 if value >= 2**31 else value)
    digits = ""
    while amount:
        amount, digit = divmod(amount, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


PART_MISSING: Final = "a part of its file is missing"
_MOST: Final = 1024**3
_ENDS: Final = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal"})


@record
class Damage:
    """Why a conversation cannot be resumed."""

    why: str


GONE: Final = Damage("its file is gone")
"""The file is missing."""


@record
class StoredConversation:
    """A conversation on disk."""

    conversation: str
    path: Path
    size: int
    changed: float
    """When it was last written to, in seconds since 1970."""


class ClaudeTranscript:
    """One conversation's file, as it was when it was read."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._content = content

    def has(self, mark: str) -> bool:
        """Tell whether it contains our message with this id."""
        return f'"uuid":"{mark}"'.encode() in self._content

    def leads_back(self, marks: Sequence[str]) -> bool:
        """Tell whether the newest of these messages leads back, entry by entry, to the first one or to a fresh start of the agent.

        If it does not, the agent would silently continue without what came before.
        """
        parents = {entry["uuid"]: entry.get("parentUuid") for entry in self._entries() if isinstance(entry.get("uuid"), str)}
        at: JsonValue = next((mark for mark in reversed(marks) if mark in parents), None)
        while at is not None:
            if at not in parents:
                return False
            if at == marks[0]:
                return True
            # Visit each entry only once: the file may contain a cycle.
            at = parents.pop(at)
        return True

    def answer_to(self, mark: str) -> str | None:
        """Return the complete answer to our message, or None if it is missing or incomplete."""
        texts: list[str] = []
        is_asked = is_whole = False
        for entry in self._entries():
            if entry.get("uuid") == mark:
                is_asked = True
            elif is_asked and entry.get("type") == "assistant" and not entry.get("isSidechain"):
                texts += _texts(entry)
                is_whole = nested_text(dict(entry), "message", "stop_reason") in _ENDS
            elif is_asked and entry.get("type") == "user" and not entry.get("isMeta"):
                is_whole = False
        return "\n\n".join(texts) if is_whole and texts else None

    def _entries(self) -> Iterator[Mapping[str, JsonValue]]:
        for line in self._content.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield cast("Mapping[str, JsonValue]", entry)


def read_transcript(path: Path, *, mend: bool = False) -> ClaudeTranscript | Damage:
    """Read a conversation. `mend` cuts off an incomplete last line, which a killed process leaves behind."""
    try:
        content = _content(path)
    except FileNotFoundError:
        return GONE
    except (OSError, ValueError) as error:
        return Damage(f"its file cannot be read: {_reason(error)}")
    whole, newline, rest = content.rpartition(b"\n")
    if rest and mend:
        # Otherwise the next line would be spoilt too.
        try:
            os.truncate(path, len(whole) + len(newline))
        except OSError as error:
            return Damage(f"its file cannot be mended: {_reason(error)}")
    lines = whole.split(b"\n")
    if not whole or not all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines if line.strip()):
        return Damage("its file is damaged" if content else "its file is empty")
    return ClaudeTranscript(path, whole)


def conversations_in(config: Path, project: Path) -> Sequence[StoredConversation]:
    """Return the stored conversations of a project, newest first."""
    stored: list[StoredConversation] = []
    for path in transcript_path(config, project, "*").parent.glob("*.jsonl"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            stored.append(StoredConversation(path.stem, path, status.st_size, status.st_mtime))
    return sorted(stored, key=lambda conversation: conversation.changed, reverse=True)


def copy_conversation(path: Path, config: Path, project: Path, conversation: str) -> None:
    """Copy a conversation to where Claude Code looks for it, unless one is already there."""
    target = transcript_path(config, project, conversation)
    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(path, temporary, follow_symlinks=False)
    temporary.chmod(0o600)
    temporary.rename(target)


def _content(path: Path) -> bytes:
    # The agent may write to this directory and put anything there, even a file that never ends.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            raise ValueError("it is no file of a conversation")
        if status.st_mode & 0o600 != 0o600:
            raise PermissionError(None, "permission denied")
        return file.read()


def _texts(entry: Mapping[str, JsonValue]) -> Iterator[str]:
    content = nested(dict(entry), "message", "content")
    for part in content if isinstance(content, list) else ():
        text = nested_text(part, "text") if nested_text(part, "type") == "text" else ""
        if text:
            yield text


def _reason(error: Exception) -> str:
    return (error.strerror or "unknown").lower() if isinstance(error, OSError) else str(error)
