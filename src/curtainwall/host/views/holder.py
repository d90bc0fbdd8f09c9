"""Starts the small process that holds the mount of a view, and asks it to mount and unmount."""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host.files.beneath import FileOwner
from curtainwall.host.views import holder_entry
from curtainwall.model import Entrance, ViewFailed

_ANSWER_SECONDS: Final = 30.0
_LONGEST: Final = 65_536
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Layers:
    """What is mounted over the project: a directory of changes with a work directory for an overlay, or a copy alone."""

    top: str
    work: str | None = None


class Holder:
    """The process that holds a mount; it ends with us, and its mount with it."""

    def __init__(self, project: str, owner: FileOwner, lock: Path) -> None:
        """Start it, in namespaces in which the owner of the project has the same ids as outside; raise `ViewFailed`."""
        self._project = project
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(_ANSWER_SECONDS)
        try:
            with theirs:
                words = (
                    sys.executable,
                    "-I",
                    "-S",
                    holder_entry.__file__,
                    str(theirs.fileno()),
                    str(owner.user),
                    str(owner.group),
                    str(lock),
                )
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, cwd="/",
                    pass_fds=(theirs.fileno(),),
                )  # fmt: skip
        except OSError as fault:
            self._requests.close()
            raise ViewFailed(f"the process that holds the view cannot be started: {fault}") from fault
        self.namespaces: tuple[int, ...] = ()
        try:
            self.namespaces = self._receive()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether it still runs."""
        return self._process.poll() is None

    def mount(self, layers: Layers) -> int:
        """Mount these over the project and return a descriptor of the view's directory; raise `ViewFailed`."""
        named = [self._project, *_named(self._project), *_named(layers.top)]
        if layers.work is not None:
            named += _named(layers.work)
        (root,) = self._ask("mount", *named)
        return root

    def unmount(self) -> None:
        """Unmount the view; raise `ViewFailed`, for example because a descriptor of it is still open."""
        self._ask("unmount", self._project)

    def close(self) -> None:
        """End it and wait for its end; calling it twice is harmless."""
        self._requests.close()
        for namespace in self.namespaces:
            os.close(namespace)
        self.namespaces = ()
        try:
            self._process.wait(_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def entrance(self, root: int, owner: FileOwner) -> Entrance:
        """Return the way into what is mounted, with the words that start a program there as us and as the owner of the project."""
        user, mounts = self.namespaces
        as_us = (_required("nsenter"), "--preserve-credentials", f"--user=/proc/self/fd/{user}", f"--mount=/proc/self/fd/{mounts}", "--")
        setpriv = (_required("setpriv"), f"--reuid={owner.user}", f"--regid={owner.group}", "--clear-groups", "--")
        is_us = (owner.user, owner.group) == (os.geteuid(), os.getegid())
        return Entrance(self._project, root, as_us if is_us else (*as_us, *setpriv), self.namespaces, as_us)

    def _ask(self, *request: str) -> tuple[int, ...]:
        try:
            self._requests.send(b"\0".join(map(os.fsencode, request)))
        except OSError as fault:
            raise ViewFailed("the process that holds the view has ended") from fault
        return self._receive()

    def _receive(self) -> tuple[int, ...]:
        try:
            answer, received, *_ = socket.recv_fds(self._requests, _LONGEST, 2, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError as fault:
            raise ViewFailed(f"the process that holds the view did not answer within {_ANSWER_SECONDS:g} seconds") from fault
        except OSError as fault:
            raise ViewFailed("the process that holds the view has ended") from fault
        if not answer:
            raise ViewFailed("the process that holds the view has ended")
        outcome, *words = answer.decode(errors="backslashreplace").split("\0")
        if outcome == "fault":
            fault, at = words
            raise ViewFailed(f"the view cannot be mounted: {fault.lower()}{f' at `{at}`' if at else ''}")
        return tuple(received)


def _named(path: str) -> list[str]:
    """Return a directory's path and identity, so that no other one is mounted in its place."""
    try:
        opened = os.open(path, _DIRECTORY)
    except OSError as fault:
        raise ViewFailed(f"`{path}` cannot be opened: {(fault.strerror or 'unknown').lower()}") from fault
    status = os.fstat(opened)
    os.close(opened)
    return [path, str(status.st_dev), str(status.st_ino)]


def _required(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ViewFailed(f"`{program}` is not on the path; install util-linux")
    return path
