"""Answers that arrive as files: whether one is complete, and what it says. What is not exactly a yes is no yes."""

import errno
import fcntl
import json
import os
import signal
import stat
import time
from enum import StrEnum
from pathlib import Path

LARGEST = 4096

# On file systems without leases nobody can say whether a file is still being written; then it must have rested for so long.
_REST_SECONDS = 0.5


class Response(StrEnum):
    """What a response file says so far."""

    APPROVED = "approved"
    DENIED = "denied"
    BEING_WRITTEN = "being written"
    HALF = "half-written"
    MISSING = "missing"


def read_response(path: Path) -> Response:
    """Return what a file says; one that is half-written says nothing yet, anything else that is not exactly an answer denies."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Response.MISSING
    except OSError:
        # A link, a socket, or something that we may not read: no answer of ours.
        return Response.DENIED
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Response:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0) or found.st_size > LARGEST:
        return Response.DENIED
    try:
        # The kernel gives a lease for reading only while nobody has the file open for writing, and holds writers off until it ends.
        # Whoever comes meanwhile makes it send a signal; that must be one which does no harm.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN or abs(time.time() - found.st_mtime) < _REST_SECONDS:
            return Response.BEING_WRITTEN
        return _meaning(os.read(descriptor, LARGEST + 1))
    try:
        return _meaning(os.read(descriptor, LARGEST + 1))
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _meaning(content: bytes) -> Response:
    if len(content) > LARGEST:
        return Response.DENIED
    if is_half_written(content.decode(errors="replace")):
        return Response.HALF
    try:
        told: object = json.loads(content.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return Response.DENIED
    return Response.APPROVED if told == (("decision", "approved"),) else Response.DENIED


def is_half_written(text: str) -> bool:
    """Say whether a text is the beginning of a JSON object whose end is still missing; an empty one is, too."""
    stripped = text.lstrip(" \t\r\n")
    if not stripped:
        return True
    if stripped[0] != "{":
        return False
    depth, inside, escaped = 0, False, False
    for letter in stripped:
        if inside:
            inside = escaped or letter != '"'
            escaped = not escaped and letter == "\\"
        elif letter == '"':
            inside = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return False
    return True
