"""Notifies watchers of changes: directly within this store, and by datagram in other processes."""

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.model import Concerns, StreamId, TryLater
from curtainwall.store.faults import explain_file

if TYPE_CHECKING:
    # Start-up time: a process that only looks something up has no loop. A function that runs on one imports it.
    import asyncio

NET_SECONDS = 1.0
"""How often watchers look for changes whose datagram was lost."""

# Small, so that a watcher that does not read cannot use up the sender's buffer. What does not fit becomes "look at everything".
_DATAGRAM = 1024
# The kernel queues about ten datagrams per socket, so a watcher that finds this many may have missed some.
_MANY = 8
_ADDRESS = 107


class Watcher:
    """An iterator over changes, which coalesce until they are taken. It is used only on its own loop."""

    def __init__(self, concerns: Concerns | None = None) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self._concerns = concerns
        self._names: set[StreamId] = set()
        self._any = False
        self._awake = asyncio.Event()

    def tell(self, names: Collection[StreamId]) -> None:
        """Note the changes that concern this watcher. No names means that anything may have changed."""
        if names and self._concerns is not None:
            names = [name for name in names if self._concerns(name)]
            if not names:
                return
        self._any = self._any or not names
        self._names.update(names)
        self._awake.set()

    def __aiter__(self) -> AsyncIterator[frozenset[StreamId]]:
        return self

    async def __anext__(self) -> frozenset[StreamId]:
        await self._awake.wait()
        self._awake.clear()
        changed = frozenset[StreamId]() if self._any else frozenset(self._names)
        self._any = False
        self._names.clear()
        return changed


class Watchers:
    """The watchers of one store, and the means to reach those of other processes."""

    def __init__(self, directory: Path, look_again: Callable[[], None]) -> None:
        self._directory = directory
        self._look_again = look_again
        self._lock = threading.Lock()
        # A thread and a loop may send at the same time; this lock serializes them.
        self._sending = threading.Lock()
        self._watchers: dict[Watcher, str] = {}
        self._others: list[str] = []
        self._listed: tuple[int, float] = (-1, 0.0)
        self._sender: socket.socket | None = None
        self._directory_fd: int | None = None

    @contextlib.asynccontextmanager
    async def watch(self, concerns: Concerns | None = None) -> AsyncGenerator[AsyncIterator[frozenset[StreamId]]]:
        """Yield the streams that change from here on, among those that concern the watcher."""
        import asyncio

        watcher = Watcher(concerns)
        name = secrets.token_hex(4)
        receiver = self._bind(name)
        with self._lock:
            self._watchers[watcher] = name
        watcher.loop.add_reader(receiver.fileno(), _receive, receiver, watcher)
        self._look_again()
        poll = asyncio.create_task(self._poll())
        try:
            yield watcher
        finally:
            poll.cancel()
            watcher.loop.remove_reader(receiver.fileno())
            with self._lock:
                del self._watchers[watcher]
            receiver.close()
            (self._directory / name).unlink(missing_ok=True)

    def loops(self) -> "set[asyncio.AbstractEventLoop]":
        """Return the loops that have watchers."""
        with self._lock:
            return {watcher.loop for watcher in self._watchers}

    def tell(self, loop: "asyncio.AbstractEventLoop", names: frozenset[StreamId]) -> None:
        """Notify the watchers of a loop; called on that loop."""
        with self._lock:
            watchers = [watcher for watcher in self._watchers if watcher.loop is loop]
        for watcher in watchers:
            watcher.tell(names)

    def tell_others(self, names: frozenset[StreamId]) -> None:
        """Send a datagram to every watcher in other processes, without waiting for any."""
        with self._sending, contextlib.suppress(OSError):
            others = self._find_others()
            if others:
                self._send(others, names)

    def close(self) -> None:
        """Close what is needed for sending."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._directory_fd is not None:
            os.close(self._directory_fd)
            self._directory_fd = None

    async def _poll(self) -> None:
        import asyncio

        while True:
            await asyncio.sleep(NET_SECONDS)
            self._look_again()

    def _send(self, others: list[str], names: frozenset[StreamId]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        message = json.dumps(sorted(names)).encode()
        if len(message) > _DATAGRAM:
            message = b"[]"
        for name in others:
            try:
                self._sender.sendto(message, self._address(name))
            except ConnectionRefusedError:
                # Its process has died.
                (self._directory / name).unlink(missing_ok=True)
            except OSError as error:
                # A full queue is enough to wake its owner, who then looks at everything.
                if error.errno not in (errno.EAGAIN, errno.ENOENT, errno.ENOBUFS):
                    raise

    def _find_others(self) -> list[str]:
        changed = os.stat(self._directory).st_mtime_ns
        before, at = self._listed
        # A directory that changed just before it was listed may have changed again within the same tick of its clock.
        if changed != before or at - changed / 1e9 < 0.1:
            # A name with a dot is not a datagram socket.
            self._others = [name for name in os.listdir(self._directory) if "." not in name]
            self._listed = changed, time.time()
        with self._lock:
            ours = set(self._watchers.values())
        return [name for name in self._others if name not in ours]

    def _bind(self, name: str) -> socket.socket:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            receiver.bind(self._address(name))
            (self._directory / name).chmod(0o600)
        except OSError as error:
            receiver.close()
            raise explain_file(error, self._directory) from error
        return receiver

    def _address(self, name: str) -> str:
        """Return a socket's address: its path, or a shorter path to it if that is too long for an address."""
        path = str(self._directory / name)
        if len(os.fsencode(path)) <= _ADDRESS:
            return path
        with self._lock:
            if self._directory_fd is None:
                self._directory_fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory_fd}/{name}"


def _receive(receiver: socket.socket, watcher: Watcher) -> None:
    """Read all waiting datagrams. They are hints: anything but a list of names means "look at everything"."""
    count = 0
    while count < 1000:
        try:
            message = receiver.recv(4 * _DATAGRAM)
        except BlockingIOError:
            break
        except OSError as error:
            raise TryLater(f"a watcher's socket cannot be read: {error.strerror}") from error
        count += 1
        watcher.tell(_names_in(message))
    if count >= _MANY:
        watcher.tell(())


def _names_in(message: bytes) -> list[StreamId]:
    try:
        names: object = json.loads(message)
    except (ValueError, RecursionError):
        return []
    return [StreamId(name) for name in names if isinstance(name, str)] if isinstance(names, list) else []  # pyright: ignore[reportUnknownVariableType] - whatever is in it is looked at
