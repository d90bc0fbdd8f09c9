"""Branches as a repository keeps them: which one is checked out, and the commit that each stands at. Runs no git."""

import os
import re
from typing import Final

from curtainwall.facts.git.config import Repository, read_bytes
from curtainwall.facts.refusal import Unclear, quoted

HEADS: Final = "refs/heads/"

_MAX_REF = 4_096
# Everybody waits while it is read; 32 MiB are half a million refs.
_MAX_PACKED = 1 << 25
_MOST_LINKS = 5
_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# As git has it: no empty part, none that starts with a dot or ends in `.lock`, nothing that means something else in a revision.
_NAME = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f/:?*~^\[\\])+(?<!\.lock)(?<!\.))+")


def current_branch(repository: Repository) -> str | None:
    """Return the branch that is checked out, whether it has a commit or not; None where a commit is checked out and no branch."""
    told = _loose(repository.own, "HEAD")
    name = _led_to(told) if told is not None else None
    return name.removeprefix(HEADS) if name is not None and name.startswith(HEADS) and _NAME.fullmatch(name) else None


def commit_at(repository: Repository, ref: str) -> str | None:
    """Return the id that a full ref stands at, or None where there is no such ref; raise `Unclear` where that cannot be told."""
    if any((entry.section, entry.key) == ("extensions", "refstorage") for entry in repository.entries):
        raise Unclear(
            "the repository keeps its branches in a table, which is not read here; `git refs migrate --ref-format=files` changes it"
        )
    for _ in range(_MOST_LINKS):
        if not _NAME.fullmatch(ref):
            return None
        told = _loose(repository.directory, ref)
        if told is None:
            return _packed(repository.directory, ref)
        leads = _led_to(told)
        if leads is None:
            found = _ID.fullmatch(told.strip())
            if found is None:
                raise Unclear(f"the file of {quoted(ref)} holds no commit's id")
            return found[0].decode()
        ref = leads
    raise Unclear(f"{quoted(ref)} leads from one name to the next without end")


def _loose(directory: str, ref: str) -> bytes | None:
    try:
        return read_bytes(os.path.join(directory, ref), _MAX_REF)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise Unclear(f"{quoted(ref)} cannot be read: {(error.strerror or 'unknown').lower()}") from None


def _led_to(told: bytes) -> str | None:
    return told[4:].strip().decode(errors="replace") if told.startswith(b"ref:") else None


def _packed(directory: str, ref: str) -> str | None:
    try:
        lines = b"\n" + read_bytes(os.path.join(directory, "packed-refs"), _MAX_PACKED)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unclear(f"the packed refs cannot be read: {(error.strerror or 'unknown').lower()}") from None
    end = lines.find(b" " + ref.encode() + b"\n")
    if end < 0:
        return None
    found = _ID.fullmatch(lines, lines.rfind(b"\n", 0, end) + 1, end)
    if found is None:
        raise Unclear("the packed refs are not as git writes them")
    return found[0].decode()
