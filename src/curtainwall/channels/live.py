"""Live text across processes: each process serves the live text of its sessions on a socket, for our own processes only.

The socket is in `run/watch/`, which is never mounted into a sandbox. Live text is neither stored nor used for decisions; a reader that
misses something finds it in the log.
"""

import asyncio
import contextlib
import json
import os
import secrets
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from curtainwall.model import Feed, Leases, Live, LiveFeed, SessionId, TurnId, session_stream

_LONGEST_REQUEST = 256
_LONGEST_LINE = 256 * 1024
_LONGEST_PIECE = 8 * 1024
_LARGEST_BACKLOG = 1024 * 1024
_MOST_READERS = 512
_MOST_QUEUED = 10_000
_TIMEOUT = 5.0
_LONGEST_ADDRESS = 107
_SUFFIX = ".live"
_CREDENTIALS = struct.Struct("3i")


class LiveEndpoint:
    """The socket on which one process serves the live text of its sessions. Readers that fall behind are dropped."""

    def __init__(self, listening: LiveFeed, directory: Path) -> None:
        self._listening = listening
        # The suffix distinguishes it from the datagram sockets in the same directory.
        self._path = directory / f"{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
        self._readers: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Serve readers while the context is open."""
        _clean(self._path.parent)
        server_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with _address(self._path) as address:
                server_socket.bind(address)
            self._path.chmod(0o600)
            # `start_unix_server` would look for the file at its address, which may lead through a descriptor that is no longer ours.
            server = await asyncio.start_server(self._serve, sock=server_socket, limit=_LONGEST_REQUEST)
        except BaseException:
            server_socket.close()
            raise
        try:
            yield
        finally:
            server.close()
            self._path.unlink(missing_ok=True)
            for task in tuple(self._readers):
                task.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            if len(self._readers) <= _MOST_READERS and _is_ours(writer):
                await self._stream(reader, writer)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # an invalid request, or the reader has gone
        finally:
            self._readers.discard(task)
            writer.close()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_TIMEOUT):
            session = (await reader.readline()).decode("ascii").strip()
        if not session.isalnum():
            return
        async with self._listening.listen(SessionId(session)) as live:
            gone = asyncio.create_task(reader.read(1))
            gone.add_done_callback(lambda _: writer.close())
            try:
                writer.write(b"\n")
                async for piece in live:
                    for start in range(0, max(len(piece.text), 1), _LONGEST_PIECE):
                        writer.write(_line(piece, piece.text[start : start + _LONGEST_PIECE]))
                    if writer.transport.get_write_buffer_size() > _LARGEST_BACKLOG:
                        writer.transport.abort()
                    if writer.is_closing():
                        return
            finally:
                gone.cancel()


class RemoteListening:
    """A live feed that also covers sessions of other processes, as soon as their owner works on them."""

    def __init__(self, here: LiveFeed, feed: Feed, leases: Leases, directory: Path) -> None:
        self._here = here
        self._feed = feed
        self._leases = leases
        self._directory = directory

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        """Yield all live text of a session while the context is open, from any process."""
        queue: asyncio.Queue[Live] = asyncio.Queue()
        async with self._here.listen(session) as live:
            tasks = (
                asyncio.create_task(_pass_on(live, queue)),
                asyncio.create_task(self._read_remote(session, queue), name=f"live text of {session}"),
            )
            try:
                # Let the tasks start, so that text sent right away is not missed.
                await asyncio.sleep(0)
                yield _each(queue)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_remote(self, session: SessionId, queue: "asyncio.Queue[Live]") -> None:
        """Read from the process that works on the session; check again whenever something happens in it."""
        stream = session_stream(session)
        async for names in self._feed.changes():
            if names and stream not in names:
                continue
            owner = self._leases.owner(stream)
            if owner is None or owner.pid == os.getpid():
                continue
            paths = list(self._directory.glob(f"{owner.pid}-*{_SUFFIX}"))
            await asyncio.gather(*(_receive(path, session, queue) for path in paths))


async def _receive(path: Path, session: SessionId, queue: "asyncio.Queue[Live]") -> None:
    """Read what one process sends about a session until it ends."""
    try:
        with _address(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_LONGEST_LINE)
    except ConnectionRefusedError:
        # Its process died without removing the socket.
        _remove(path)
        return
    except OSError:
        return
    try:
        writer.write(f"{session}\n".encode())
        while line := await reader.readline():
            if (piece := _parse_line(line)) is not None and queue.qsize() < _MOST_QUEUED:
                queue.put_nowait(piece)
    except (OSError, ValueError):
        return
    finally:
        writer.close()


@contextlib.contextmanager
def _address(path: Path) -> Generator[str]:
    """Yield a socket's address: its path, or a shorter path through a descriptor if it exceeds the limit for addresses."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _clean(directory: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in directory.glob(f"*{_SUFFIX}"):
        pid = path.name.partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Tell whether the peer belongs to the same user, or to root."""
    peer = cast("socket.socket", writer.get_extra_info("socket"))
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return uid in (os.geteuid(), 0)


def _line(live: Live, text: str) -> bytes:
    return json.dumps([live.kind, text, live.turn]).encode() + b"\n"


def _parse_line(line: bytes) -> Live | None:
    """Return the live text in a line; None unless it is exactly a kind, a text and a turn."""
    try:
        match json.loads(line):
            case ["text" | "doing" | "again" as kind, str(text), str() | None as turn]:
                return Live(kind=kind, text=text, turn=None if turn is None else TurnId(turn))
            case _:
                return None
    except (ValueError, RecursionError):
        return None


async def _pass_on(live: AsyncIterator[Live], queue: "asyncio.Queue[Live]") -> None:
    async for piece in live:
        if queue.qsize() < _MOST_QUEUED:
            queue.put_nowait(piece)


async def _each(queue: "asyncio.Queue[Live]") -> AsyncIterator[Live]:
    while True:
        yield await queue.get()
