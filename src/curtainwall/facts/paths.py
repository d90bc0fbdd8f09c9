"""Resolves a path that an agent wrote to the one real path that it means on this machine.

While a call works on a view of a project, everything beneath the project is looked up in the view, also where a link from outside leads
there; a link that leaves the project leads to what is outside. The resolved path stays that of the project.

We resolve a path as the kernel would, component by component, except that a missing component keeps its name, so that a file to be created
has a path too. A path that the kernel would refuse, or that means something else to the agent than to us, is `Unclear`.

A refusal must not reveal what is outside the workspace, so there the contents of the disk never cause one: where the kernel could not
continue, the remaining names are kept, as if nothing were there. The tool that runs with such a path, once it is approved, gets the error.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from contextlib import suppress
from posixpath import normpath
from typing import Final

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import inside_view, is_beneath, on_disk, record, view_use

_URL: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|file:[/\\])", re.IGNORECASE)
_MAX_PATH = 4095
_MAX_NAME = 255
_MAX_LINKS = 40
_MAX_STEPS = 1_000
_ATTEMPTS = 20

DEEPEST: Final = 128
"""How many directories deep a path may be: at each one the kernel walks the whole path again, and everyone waits."""

# Their meaning depends on the process that looks: we would find our own, not the agent's.
_OWN_PROCESS = ("self", "thread-self")
_OWN_DEVICES = ("fd", "stdin", "stdout", "stderr", "tty")

_OPENAT2 = 437  # the same number on every architecture
_AT_FDCWD = -100
_NO_SYMLINKS = 0x04
_libc_syscall = ctypes.CDLL(None, use_errno=True).syscall
_libc_syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long]
_libc_syscall.restype = ctypes.c_long
# struct open_how: flags, mode, resolve.
_OPEN_HOW = b"".join(word.to_bytes(8, sys.byteorder) for word in (getattr(os, "O_PATH", 0) | os.O_CLOEXEC, 0, _NO_SYMLINKS))


@record
class PathRoots:
    """The directories that an agent's paths are relative to. Every path in it is real and absolute, without a trailing slash.

    `mounts` are pairs of a path in a container and its path on this machine. Such a pair shadows what this machine has at the same path.
    """

    workspace: str
    home: str
    cwd: str = ""
    mounts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.cwd:
            object.__setattr__(self, "cwd", self.workspace)

    def shows(self, path: str) -> bool:
        """Tell whether the agent may know what is at a real path without approval."""
        return is_beneath(path, self.workspace) or any(is_beneath(path, outside) for _, outside in self.mounts)


def canonical_path(text: object, roots: PathRoots) -> str:
    """Return the real, absolute path that the kernel would reach or create for a path that an agent wrote."""
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


def require_no_url(text: str) -> None:
    """Raise if an agent wrote a URL where a path belongs: as a path it would be relative, and a tool may read it as another place."""
    if _URL.match(text):
        raise Unclear(f"{quoted(text)} is a URL, not a path; write the path itself, as `/tmp/x`, or `./` before a name that looks like one")


def links_to(path: str) -> tuple[str, ...]:
    """Return the entries that decide where an absolute path leads: every link in it, and every directory that a link enters and leaves.

    Each is named by the real directory that holds it. Replacing one of them makes the path lead elsewhere.
    """
    links: list[str] = []
    with suppress(Unclear):
        _walk(path, PathRoots(workspace="/", home="/"), links)
    return tuple(links)


def real_path(path: str) -> str:
    """Return where an absolute path leads, through the view that is worked on, if any; what is missing keeps its name."""
    return os.path.realpath(path) if view_use() is None else _walk(path, PathRoots(workspace="/", home="/"))


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
    """Tell with one system call whether a path contains no link; False if we have to walk it to find out.

    A missing path (ENOENT) is an answer too: the kernel met no link before the first missing name, and the names after it are kept.
    """
    if sys.platform != "linux" or normpath(full) != full or full.startswith(("//", "/proc", "/dev")):
        return False
    inside = inside_view(full)
    start, relative = (_AT_FDCWD, encoded) if inside is None else (inside[0], inside[1].encode() or b".")
    opened = _libc_syscall(_OPENAT2, start, relative, _OPEN_HOW, len(_OPEN_HOW))
    if opened >= 0:
        os.close(opened)
        return True
    return ctypes.get_errno() == errno.ENOENT and len(encoded) <= _MAX_NAME


def _walk(full: str, path_roots: PathRoots, recorded: list[str] | None = None) -> str:
    """Resolve a path as the kernel does, and record the links: `..` after a link is the parent of the link's target."""
    mounts = dict(path_roots.mounts)
    mount_roots = {outside for inside, outside in path_roots.mounts if inside != outside}
    pending = full.split("/")[::-1]
    here = ""  # INVARIANT: real, and either a directory, missing, or something the kernel cannot continue from; "" is the root
    links = steps = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if here in mount_roots:
                raise Unclear(f"`..` leaves the mounted directory in {quoted(full)}, which means one thing inside and another outside")
            # A directory that holds a recorded link cannot be replaced without replacing the link.
            if recorded is not None and links and here and not any(is_beneath(link, here) for link in recorded):
                recorded.append(here)
            here = here.rpartition("/")[0]
            continue
        candidate = f"{here}/{name}"
        if candidate in mounts:
            here = mounts[candidate]
            continue
        steps += 1
        if steps > _MAX_STEPS:
            raise Unclear(f"the path {quoted(full)} takes too many steps through links")
        if candidate.count("/") > DEEPEST:
            raise Unclear(f"the path {quoted(full)} lies more than {DEEPEST} directories deep")
        if (here == "/proc" and (name in _OWN_PROCESS or name.isdigit())) or (here == "/dev" and name in _OWN_DEVICES):
            raise Unclear(f"{quoted(full)} leads through {quoted(candidate)}, which is another thing for every process that looks")
        try:
            mode = os.lstat(on_disk(candidate)).st_mode
            target = os.readlink(on_disk(candidate)) if stat.S_ISLNK(mode) else None
        except FileNotFoundError:
            here = candidate
            continue
        except OSError as fault:
            if path_roots.shows(candidate):
                reason = str(fault.strerror).lower()
                raise Unclear(f"the path {quoted(full)} cannot be followed: {reason}") from None
            here = candidate
            continue
        if target is not None:
            links += 1
            if recorded is not None:
                recorded.append(candidate)
            reached, is_shown = None if inside_view(candidate) else _identity(candidate), path_roots.shows(candidate)
            if is_shown and links > _MAX_LINKS:
                raise Unclear(f"the path {quoted(full)} leads through a loop of links, or through more than {_MAX_LINKS}")
            # A link in the workspace may lead to a loop outside it, which we only notice outside.
            if not is_shown and (links > _MAX_LINKS or reached == errno.ELOOP):
                here = candidate
                continue
            if not _leads_as_written(candidate, target if target[0] == "/" else f"{here}/{target}", reached):
                raise Unclear(f"the link {quoted(candidate)} does not lead where it says")
            if target[0] == "/":
                here = ""
            pending.extend(reversed(target.split("/")))
            continue
        if pending and not stat.S_ISDIR(mode) and path_roots.shows(candidate):
            raise Unclear(f"the path {quoted(full)} goes on behind {quoted(candidate)}, which is not a directory")
        here = candidate
    try:
        here.encode()
    except UnicodeEncodeError:
        raise Unclear(f"the path {quoted(full)} leads to a name that is not UTF-8") from None
    return here or "/"


def _leads_as_written(link: str, target: str, reached: tuple[int, int] | int | None) -> bool:
    # In a view nothing else is mounted, so it has no magic links; and the kernel would follow its links from this machine's root.
    return inside_view(link) is not None or reached == errno.ELOOP or reached == _identity(target)


def _identity(path: str) -> tuple[int, int] | int | None:
    """Return which file the kernel reaches, or the error number.

    An ordinary link and its text lead to the same file; the kernel's magic links (`PID/root` in a `/proc`, wherever that is mounted) need
    not. A kernel that restarts a walk, because something was mounted meanwhile, counts the links of both walks: so we believe in a loop
    only if it is reported every time.
    """
    for _ in range(_ATTEMPTS):
        try:
            status = os.stat(path)
        except OSError as fault:
            if fault.errno != errno.ELOOP:
                return fault.errno
        else:
            return status.st_dev, status.st_ino
    return errno.ELOOP
