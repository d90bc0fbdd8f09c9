"""What happens right now in sessions of other processes: each tells it at a socket of its own, for our own processes alone.

The socket lies in `run/watch/`, which is never mounted anywhere. Nothing here is kept or decided by: whoever misses something finds it
in the log.
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
_BEHIND = 1024 * 1024
_MOST_READERS = 512
_MOST_QUEUED = 10_000
_TIMEOUT = 5.0
_ADDRESS = 107
_END = ".live"
_CREDENTIALS = struct.Struct("3i")


class LiveEndpoint:
    """The socket where one process tells what happens in the sessions that it works on. Who reads too slowly is dropped."""

    def __init__(self, listening: LiveFeed, directory: Path) -> None:
        self._listening = listening
        # The dot keeps it apart from the ears for datagrams that lie beside it.
        self._place = directory / f"{os.getpid()}-{secrets.token_hex(4)}{_END}"
        self._readers: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Tell whoever asks while the context is open."""
        _clean(self._place.parent)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with _address(self._place) as address:
                ear.bind(address)
            self._place.chmod(0o600)
            # `start_unix_server` would look for the file at its address, which may lead through a descriptor that is no longer ours.
            server = await asyncio.start_server(self._serve, sock=ear, limit=_LONGEST_REQUEST)
        except BaseException:
            ear.close()
            raise
        try:
            yield
        finally:
            server.close()
            self._place.unlink(missing_ok=True)
            for task in tuple(self._readers):
                task.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            if len(self._readers) <= _MOST_READERS and _is_ours(writer):
                await self._tell(reader, writer)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # it asked for nothing that we know, or it has gone
        finally:
            self._readers.discard(task)
            writer.close()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_TIMEOUT):
            wanted = (await reader.readline()).decode("ascii").strip()
        if not wanted.isalnum():
            return
        async with self._listening.listen(SessionId(wanted)) as live:
            gone = asyncio.create_task(reader.read(1))
            gone.add_done_callback(lambda _: writer.close())
            try:
                writer.write(b"\n")
                async for said in live:
                    for start in range(0, max(len(said.text), 1), _LONGEST_PIECE):
                        writer.write(_line(said, said.text[start : start + _LONGEST_PIECE]))
                    if writer.transport.get_write_buffer_size() > _BEHIND:
                        writer.transport.abort()
                    if writer.is_closing():
                        return
            finally:
                gone.cancel()


class RemoteListening:
    """Listening that also hears sessions which another process works on, as soon as that one does."""

    def __init__(self, here: LiveFeed, feed: Feed, leases: Leases, directory: Path) -> None:
        self._here = here
        self._feed = feed
        self._leases = leases
        self._directory = directory

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        """Tell everything that is said while the context is open, wherever it is said."""
        heard: asyncio.Queue[Live] = asyncio.Queue()
        async with self._here.listen(session) as live:
            tasks = (
                asyncio.create_task(_pass_on(live, heard)),
                asyncio.create_task(self._hear(session, heard), name=f"live text of {session}"),
            )
            try:
                # Whoever speaks at once is heard.
                await asyncio.sleep(0)
                yield _each(heard)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, session: SessionId, heard: "asyncio.Queue[Live]") -> None:
        """Listen at whichever process works on the session; look again whenever something happens in it."""
        stream = session_stream(session)
        async for names in self._feed.changes():
            if names and stream not in names:
                continue
            owner = self._leases.owner(stream)
            if owner is None or owner.pid == os.getpid():
                continue
            places = list(self._directory.glob(f"{owner.pid}-*{_END}"))
            await asyncio.gather(*(_receive(place, session, heard) for place in places))


async def _receive(place: Path, session: SessionId, heard: "asyncio.Queue[Live]") -> None:
    """Hear what one process tells of a session until it has no more to tell."""
    try:
        with _address(place) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_LONGEST_LINE)
    except ConnectionRefusedError:
        # Its process is gone without a word.
        _remove(place)
        return
    except OSError:
        return
    try:
        writer.write(f"{session}\n".encode())
        while line := await reader.readline():
            if (said := _parse_line(line)) is not None and heard.qsize() < _MOST_QUEUED:
                heard.put_nowait(said)
    except (OSError, ValueError):
        return
    finally:
        writer.close()


@contextlib.contextmanager
def _address(place: Path) -> Generator[str]:
    """Lend a socket's address: its path, or a short way to it where the path is longer than addresses may be."""
    if len(os.fsencode(place)) <= _ADDRESS:
        yield str(place)
        return
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{place.name}"
    finally:
        os.close(directory)


def _clean(directory: Path) -> None:
    """Remove what processes left that were killed."""
    for place in directory.glob(f"*{_END}"):
        pid = place.name.partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            _remove(place)


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.unlink()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Tell whether a process of the same user, or of root, is at the other end."""
    peer = cast("socket.socket", writer.get_extra_info("socket"))
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return uid in (os.geteuid(), 0)


def _line(said: Live, piece: str) -> bytes:
    return json.dumps([said.kind, piece, said.turn]).encode() + b"\n"


def _parse_line(line: bytes) -> Live | None:
    """Return what a line says; anything but a kind, a text and a turn says nothing."""
    try:
        match json.loads(line):
            case ["text" | "doing" | "again" as kind, str(text), str() | None as turn]:
                return Live(kind=kind, text=text, turn=None if turn is None else TurnId(turn))
            case _:
                return None
    except (ValueError, RecursionError):
        return None


async def _pass_on(live: AsyncIterator[Live], heard: "asyncio.Queue[Live]") -> None:
    async for said in live:
        if heard.qsize() < _MOST_QUEUED:
            heard.put_nowait(said)


async def _each(heard: "asyncio.Queue[Live]") -> AsyncIterator[Live]:
    while True:
        yield await heard.get()
