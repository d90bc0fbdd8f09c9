"""Paths as an agent writes them, and the one real path that each of them means on this machine.

A path is read the way the kernel would walk it, component by component, except that what does not exist yet keeps its name, so
that a file to be created has a path as well. Whatever the kernel would refuse, and whatever means something else to the agent than to
us, is `Unclear`.

A refusal must not tell what lies outside the workspace, so there nothing is refused for what the disk holds: where the kernel could not go
on, the names mean themselves, as they do where nothing is. The tool that is run with such a path, once that was approved, meets the fault.
"""

import ctypes
import errno
import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from posixpath import normpath
from typing import Final

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import is_beneath

_MAX_PATH = 4095
_MAX_NAME = 255
_MAX_LINKS = 40
_MAX_STEPS = 1_000
_LOOKS = 20

DEEPEST: Final = 128
"""How many directories deep a path may lie: at each of them the kernel walks all the way, and everybody waits."""

# Their meaning depends on who looks; we would find our own process there, not the agent's.
_OWN_PROCESS = ("self", "thread-self")
_OWN_DEVICES = ("fd", "stdin", "stdout", "stderr", "tty")

_OPENAT2 = 437  # the same number on every architecture
_AT_FDCWD = -100
_NO_SYMLINKS = 0x04
_libc_syscall = ctypes.CDLL(None, use_errno=True).syscall
_libc_syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long]
_libc_syscall.restype = ctypes.c_long
# struct open_how: flags, mode, resolve.
_HOW = b"".join(word.to_bytes(8, sys.byteorder) for word in (getattr(os, "O_PATH", 0) | os.O_CLOEXEC, 0, _NO_SYMLINKS))


@dataclass(frozen=True, slots=True)
class PathRoots:
    """Where an agent's words are read. Every path in it is real and absolute, without a trailing slash.

    `mounts` are pairs of a path that a container sees and the path on this machine that it is. Such a pair shadows what this machine
    has under the same name.
    """

    workspace: str
    home: str
    cwd: str = ""
    mounts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.cwd:
            object.__setattr__(self, "cwd", self.workspace)

    def shows(self, path: str) -> bool:
        """Tell whether the agent may know what is at a real path before anybody has approved that."""
        return is_beneath(path, self.workspace) or any(is_beneath(path, outside) for _, outside in self.mounts)


def canonical_path(text: object, roots: PathRoots) -> str:
    """Return the real, absolute path that the kernel would reach, or would create, for what an agent wrote."""
    full = _absolute(text, roots)
    try:
        encoded = full.encode()
    except UnicodeEncodeError:
        raise Unclear(f"the path {quoted(text)} holds half a character") from None
    if len(encoded) > _MAX_PATH:
        raise Unclear(f"the path {quoted(text)} is longer than {_MAX_PATH} bytes")
    if len(encoded) > _MAX_NAME and any(len(name) > _MAX_NAME for name in encoded.split(b"/")):
        raise Unclear(f"a name in {quoted(full)} is longer than {_MAX_NAME} bytes")
    if not roots.mounts and full.count("/") <= DEEPEST and _is_real(full, encoded):
        return full
    return _walk(full, roots)


def links_to(path: str) -> tuple[str, ...]:
    """Return the names that decide where an absolute path leads: every link on the way, and every directory that a link enters to leave.

    Each stands in the real directory that holds it. Whoever can replace one of them can lead the path elsewhere.
    """
    met: list[str] = []
    with suppress(Unclear):
        _walk(path, PathRoots(workspace="/", home="/"), met)
    return tuple(met)


def _absolute(text: object, roots: PathRoots) -> str:
    if not isinstance(text, str):
        raise Unclear(f"a path must be a string, not {quoted(text)}")
    if not text or text.isspace():
        raise Unclear("a path must not be empty")
    if "\0" in text:
        raise Unclear(f"the path {quoted(text)} holds a NUL")
    if text[0] == "/":
        return text
    if text[0] != "~":
        return f"{roots.cwd}/{text}"
    if text == "~" or text[1] == "/":
        return roots.home + text[1:]
    raise Unclear(f"{quoted(text)} would be another user's home; write the whole path, or `./` before a name that starts with `~`")


def _is_real(full: str, encoded: bytes) -> bool:
    """Say in one step whether the kernel meets no link at all on the way; False where the walk has to find out.

    That nothing is there (ENOENT) is an answer too: the kernel met no link before the first name that is missing, and the names
    behind it mean themselves.
    """
    if sys.platform != "linux" or normpath(full) != full or full.startswith(("//", "/proc", "/dev")):
        return False
    opened = _libc_syscall(_OPENAT2, _AT_FDCWD, encoded, _HOW, len(_HOW))
    if opened >= 0:
        os.close(opened)
        return True
    return ctypes.get_errno() == errno.ENOENT and len(encoded) <= _MAX_NAME


def _walk(full: str, scene: PathRoots, met: list[str] | None = None) -> str:
    """Resolve a path as the kernel does, and note what turns the way: `..` after a link is the parent of where the link led."""
    entries = dict(scene.mounts)
    roots = {outside for inside, outside in scene.mounts if inside != outside}
    ahead = full.split("/")[::-1]
    here = ""  # INVARIANT: real, and a directory, missing, or nothing that the kernel goes on behind; "" is the root
    links = steps = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if here in roots:
                raise Unclear(f"`..` leaves the mounted directory in {quoted(full)}, which means one thing inside and another outside")
            # What holds a link cannot be replaced without it.
            if met is not None and links and here and not any(is_beneath(link, here) for link in met):
                met.append(here)
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{name}"
        if there in entries:
            here = entries[there]
            continue
        steps += 1
        if steps > _MAX_STEPS:
            raise Unclear(f"the path {quoted(full)} takes too many steps through links")
        if there.count("/") > DEEPEST:
            raise Unclear(f"the path {quoted(full)} lies more than {DEEPEST} directories deep")
        if (here == "/proc" and (name in _OWN_PROCESS or name.isdigit())) or (here == "/dev" and name in _OWN_DEVICES):
            raise Unclear(f"{quoted(full)} leads through {quoted(there)}, which is another thing for every process that looks")
        try:
            mode = os.lstat(there).st_mode
            target = os.readlink(there) if stat.S_ISLNK(mode) else None
        except FileNotFoundError:
            here = there
            continue
        except OSError as fault:
            if scene.shows(there):
                reason = str(fault.strerror).lower()
                raise Unclear(f"the path {quoted(full)} cannot be followed: {reason}") from None
            here = there
            continue
        if target is not None:
            links += 1
            if met is not None:
                met.append(there)
            reached, is_shown = _identity(there), scene.shows(there)
            if is_shown and links > _MAX_LINKS:
                raise Unclear(f"the path {quoted(full)} leads through a loop of links, or through more than {_MAX_LINKS}")
            # A link in the workspace may lead to a loop outside of it, and that is only known there.
            if not is_shown and (links > _MAX_LINKS or reached == errno.ELOOP):
                here = there
                continue
            if reached != errno.ELOOP and reached != _identity(target if target[0] == "/" else f"{here}/{target}"):
                raise Unclear(f"the link {quoted(there)} does not lead where it says")
            if target[0] == "/":
                here = ""
            ahead.extend(reversed(target.split("/")))
            continue
        if ahead and not stat.S_ISDIR(mode) and scene.shows(there):
            raise Unclear(f"the path {quoted(full)} goes on behind {quoted(there)}, which is not a directory")
        here = there
    try:
        here.encode()
    except UnicodeEncodeError:
        raise Unclear(f"the path {quoted(full)} leads to a name that is not UTF-8") from None
    return here or "/"


def _identity(path: str) -> tuple[int, int] | int | None:
    """Return which file the kernel reaches, or why none.

    An ordinary link and its text lead to the same; the links that the kernel makes up (`PID/root` in a `/proc`, wherever that is
    mounted) need not. A kernel that begins a walk anew, since something was mounted meanwhile, counts the links of both walks: a loop
    is believed when it is there each time.
    """
    for _ in range(_LOOKS):
        try:
            found = os.stat(path)
        except OSError as fault:
            if fault.errno != errno.ELOOP:
                return fault.errno
        else:
            return found.st_dev, found.st_ino
    return errno.ELOOP
