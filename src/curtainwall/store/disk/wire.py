"""A process of ours and the wire to it: frames go out and reports come in, until one of both ends is gone."""

import asyncio
import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from curtainwall.store.disk.frames import CHUNK, CODE, Frames, Report

_ENTRY: Final = "curtainwall.store.disk.scribe_entry"
_DYING: Final = 5.0


class Wire:
    """It belongs to the loop that made it, and tells there what comes and that it is over; `wait_until_gone` may be called elsewhere."""

    def __init__(self, hears: Callable[[Report], None], ended: Callable[[], None]) -> None:
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._hears, self._ended = hears, ended
        self._frames = Frames()
        self._unsent = bytearray()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(theirs.fileno())
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    def send(self, frame: bytes) -> None:
        """Send a frame, now or as soon as there is room."""
        self._unsent += frame
        self._push()

    def say_goodbye(self) -> None:
        """Tell it that nothing more comes: it finishes what it has, and ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, seconds: float) -> bool:
        """Hold up everything else until something was heard or sent; tell whether anything was."""
        ready = select.poll()
        # Both at once: it stops reading while nobody takes its reports.
        ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if not ready.poll(seconds * 1000):
            return False
        if self._unsent:
            self._push()
        self._read()
        return True

    def cut(self) -> None:
        """Kill it, and let go of everything."""
        if self.is_over:
            return
        self.is_over = True
        # A loop that was closed has let go of it.
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._process.kill()
        self._ended()

    def wait_until_gone(self) -> None:
        """Wait until it has died of that. One that the disk holds may take longer than anybody waits; it does nothing more by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)

    def _push(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Its end is read as well, and told there.
            self._unsent.clear()
            sent = 0
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._push)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for report in self._frames.take(data):
            self._hears(report)
        if not data:
            self.cut()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        # So it is where Python is a part of another program.
        raise FileNotFoundError(errno.ENOENT, "it is not known which program runs Python")
    # Not from the directory where we happen to be, nor from where an environment says that we do not heed: that is not ours.
    alone = "-I" if sys.flags.ignore_environment else "-P"
    return subprocess.Popen(
        [sys.executable, alone, "-m", _ENTRY, str(descriptor), str(os.getpid()), CODE],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
