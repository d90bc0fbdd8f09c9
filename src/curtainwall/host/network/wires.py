"""One end of a connection: bytes as they come, with backpressure both ways, with TLS or without. It costs little for each request."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final

# The longest that one record can say, so that nothing of it is left over.
_PIECE: Final = 16 * 1024


class Tls:
    """One side of a connection: the server's, or that of a client that names the server."""

    def __init__(self, context: ssl.SSLContext, server: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(self._incoming, self._outgoing, server_side=server is None, server_hostname=server)
        self.is_agreed = False
        """Whether the handshake is done: before that nothing can be said."""
        self.has_ended = False
        """Whether the other side said that nothing more comes."""

    def receive(self, data: bytes | memoryview) -> list[bytes]:
        """Take what came and return what it says; raise `ssl.SSLError`. Afterwards there may be an answer to send."""
        self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            if not self.is_agreed:
                self._inner.do_handshake()
                self.is_agreed = True
            while self._incoming.pending and not self.has_ended:
                if piece := self._inner.read(_PIECE):
                    pieces.append(piece)
                else:
                    self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return pieces

    def answer(self) -> bytes:
        """Return what TLS itself has to send: its part of the handshake, new keys, an alert."""
        return self._outgoing.read()

    def seal(self, data: bytes) -> bytes:
        """Return what says this; raise `ssl.SSLError`."""
        sealed = self._inner.write(data)
        while sealed < len(data):
            sealed += self._inner.write(data[sealed:])
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return what says that nothing more comes."""
        with suppress(ssl.SSLError):
            self._inner.unwrap()
        return self._outgoing.read()


class Wait(asyncio.Future[None]):
    """One wait of one task. A loop's round costs more than most of what is done with what came."""

    __slots__ = ("_then", "_within")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._then: Callable[[asyncio.Future[None]], object] | None = None
        self._within: Context | None = None

    def add_done_callback(self, fn: Callable[[asyncio.Future[None]], object], /, *, context: Context | None = None) -> None:
        """Keep the one that waits; it is a task, which does so once."""
        self._then, self._within = fn, context or copy_context()

    def cancel(self, msg: Any | None = None) -> bool:
        """End the wait without what it was for, in the loop's next round."""
        if not super().cancel(msg):
            return False
        self._later()
        return True

    def end(self) -> None:
        """End the wait in the loop's next round, as other futures do."""
        if not self.done():
            self.set_result(None)
            self._later()

    def end_now(self) -> None:
        """End the wait and let the task go on before this returns; while another task runs, in the loop's next round."""
        then, within = self._then, self._within
        if then is None or within is None or asyncio.current_task(self.get_loop()) is not None:
            self.end()
        elif not self.done():
            self.set_result(None)
            self._then = None
            within.run(then, self)

    def _later(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            self.get_loop().call_soon(then, self, context=self._within)


_HIGH: Final = 128 * 1024
_BUFFER: Final = 256 * 1024
# For the other side to take what was sent to it before we close.
_CLOSING_SECONDS: Final = 10.0

_LENT = threading.local()


def _buffer() -> memoryview:
    """Return the one buffer of this thread: what came is taken out of it before anything else can be read into it."""
    if not hasattr(_LENT, "buffer"):
        _LENT.buffer = memoryview(bytearray(_BUFFER))
    return _LENT.buffer


def _nobody(_: "Wire") -> None:
    """Tell nobody."""


class Wire(asyncio.BufferedProtocol):
    """One connection; `begun` is called when it is made, `gone` when it is lost."""

    def __init__(self, begun: Callable[["Wire"], None] = _nobody, gone: Callable[["Wire"], None] = _nobody) -> None:
        self._begun = begun
        self._gone = gone
        self._buffer = _buffer()
        self._pieces: list[bytes] = []
        self._size = 0
        self._tls: Tls | None = None
        self._loop = asyncio.get_running_loop()
        self._reads: Wait | None = None
        self._drains: asyncio.Future[None] | None = None
        self._full = False
        self._ended = False
        self._fault: Exception | None = None
        self._paused = False
        self._is_answering = False
        self._until = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._was_late = False
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._begun(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Lend the buffer that everything is read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep what came, and read no further when it is a lot."""
        came = self._buffer[:nbytes]
        if self._tls is None:
            self._keep([bytes(came)])
        else:
            self._open(self._tls, came)
        if self._reads is not None:
            self._reads.end_now()

    def eof_received(self) -> bool:
        """Take note; without TLS our own side stays open, so that an answer still arrives, and with TLS we close it in our own time."""
        self._ended = True
        self._wake()
        if self._tls is not None:
            self.finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake whoever waits, and tell."""
        self.is_lost = self._ended = True
        self._fault = self._fault or exc
        self._unwatch()
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._wake()
        self._make_room()
        self._gone(self)

    def pause_writing(self) -> None:
        """Take note that the other side does not keep up."""
        self._full = True

    def resume_writing(self) -> None:
        """Take note that it does again."""
        self._full = self._is_answering = False
        self._make_room()
        self._pace()

    def _open(self, tls: Tls, came: bytes | memoryview) -> None:
        """Keep what came in TLS, and answer what TLS itself asks, no faster than that is taken; whoever breaks it is hung up on."""
        try:
            pieces = tls.receive(came)
        except ssl.SSLError as fault:
            pieces, self._fault = [], fault
        self._ended = self._ended or tls.has_ended or self._fault is not None
        self._keep(pieces)
        if answer := tls.answer():
            self.transport.write(answer)
            self._is_answering = self._full
            self._pace()
        if self._fault is not None:
            self.abort()
        elif tls.has_ended:
            self.finish()

    def _keep(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        self._pace()

    def _wake(self) -> None:
        if self._reads is not None:
            self._reads.end()

    def _make_room(self) -> None:
        if self._drains is not None and not self._drains.done():
            self._drains.set_result(None)

    def _pace(self) -> None:
        """Read no further while a lot is unread, or while the other side does not take what TLS itself answers."""
        stop = self._is_answering or self._size >= _HIGH
        if stop != self._paused and not self.is_lost:
            self._paused = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    async def read(self, seconds: float | None = None) -> bytes:
        """Return what has come, waiting for something; nothing at the end; raise OSError, TimeoutError where nothing comes for so long."""
        until = 0.0
        while not self._pieces and not self._ended:
            if seconds is not None:
                until = until or self._loop.time() + seconds
                self._watch_until(until)
            await self._next(until)
            if self._was_late:
                raise TimeoutError
        if self._fault is not None and not self._pieces:
            raise ConnectionResetError("the connection broke") from self._fault
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._pace()
        return data

    def _next(self, until: float = 0.0) -> Wait:
        """Return what ends when something came, when nothing will, or when it is late."""
        self._until, self._was_late = until, False
        self._reads = Wait(self._loop)
        return self._reads

    def _watch_until(self, when: float) -> None:
        """Have one timer that is never later than `when`; it looks again by itself, so that a request costs no timer of its own."""
        if self._watch is not None and self._watch.when() > when:
            self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._watch = self._loop.call_at(when, self._look)

    def _unwatch(self) -> None:
        """Let go of the timer, which would keep us."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if not self._until or self._reads is None or self._reads.done():
            return
        if self._loop.time() >= self._until:
            self._was_late = True
            self._reads.end()
        else:
            self._watch_until(self._until)

    def write(self, data: bytes) -> None:
        """Send; `drain` waits where the other side does not keep up."""
        if data and not self.transport.is_closing():
            self.transport.write(data if self._tls is None else self._tls.seal(data))

    async def drain(self, seconds: float | None = None) -> None:
        """Return when there is room again; raise TimeoutError where the other side does not read, ConnectionError where it is gone."""
        if self._full and not self.is_lost:
            async with asyncio.timeout(seconds):
                while self._full and not self.is_lost:
                    self._drains = self._loop.create_future()
                    try:
                        await self._drains
                    finally:
                        self._drains = None
        if self.is_lost:
            raise ConnectionResetError("the other side is gone")

    async def secure(self, context: ssl.SSLContext, seconds: float, *, server: str | None = None) -> None:
        """Go on in TLS, as its server or as a client that names the server; raise OSError or TimeoutError."""
        self._tls = tls = Tls(context, server)
        early, self._size = b"".join(self._pieces), 0
        self._pieces.clear()
        self._open(tls, early)
        async with asyncio.timeout(seconds):
            while not tls.is_agreed and not self._ended:
                await self._next()
        if self._fault is not None:
            raise self._fault
        if self._ended and not self._pieces:
            raise ConnectionResetError("the other side is gone")

    @property
    def keeps_up(self) -> bool:
        """Tell whether `drain` would return at once: the other side is there and takes what is sent."""
        return not (self._full or self.is_lost)

    @property
    def is_quiet(self) -> bool:
        """Tell whether it is open both ways and nothing came that was not read."""
        return not (self._ended or self._pieces or self.transport.is_closing())

    @property
    def is_cut(self) -> bool:
        """Tell whether TLS is spoken and the other side has not said in it that nothing more comes."""
        return self._tls is not None and not self._tls.has_ended

    @property
    def unsent(self) -> int:
        """Return how much waits to be sent."""
        return self.transport.get_write_buffer_size()

    @property
    def holds_more(self) -> bool:
        """Tell whether something came that was not read."""
        return bool(self._pieces)

    def finish(self, seconds: float = _CLOSING_SECONDS) -> None:
        """Close when everything is sent, or when that has taken so long."""
        if self.is_lost or self._closing is not None:
            return
        self._unwatch()
        if self._tls is not None and not self.transport.is_closing():
            self.transport.write(self._tls.end())
        self.transport.close()
        self._closing = self._loop.call_later(seconds, self.transport.abort)

    def abort(self) -> None:
        """Close at once."""
        self._unwatch()
        if not self.is_lost:
            self.transport.abort()
