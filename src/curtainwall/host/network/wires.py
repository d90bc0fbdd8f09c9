"""One end of a connection: a byte stream with backpressure both ways, with or without TLS, built to cost little per request."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final

# The longest plaintext of one TLS record, so that one read takes a whole record.
_RECORD_SIZE: Final = 16 * 1024


class Tls:
    """The TLS state of one side of a connection: the server, or a client that names the server."""

    def __init__(self, context: ssl.SSLContext, server: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(self._incoming, self._outgoing, server_side=server is None, server_hostname=server)
        self.is_agreed = False
        """Whether the handshake is done: nothing can be sent before that."""
        self.has_ended = False
        """Whether the other side has sent its close alert."""

    def receive(self, data: bytes | memoryview) -> list[bytes]:
        """Decrypt received bytes and return the plaintext; raise `ssl.SSLError`. Afterwards there may be an `answer` to send."""
        self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            if not self.is_agreed:
                self._inner.do_handshake()
                self.is_agreed = True
            while self._incoming.pending and not self.has_ended:
                if piece := self._inner.read(_RECORD_SIZE):
                    pieces.append(piece)
                else:
                    self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return pieces

    def answer(self) -> bytes:
        """Return the bytes that TLS itself has to send: its part of the handshake, new keys, an alert."""
        return self._outgoing.read()

    def seal(self, data: bytes) -> bytes:
        """Encrypt data and return the bytes to send; raise `ssl.SSLError`."""
        sealed = self._inner.write(data)
        while sealed < len(data):
            sealed += self._inner.write(data[sealed:])
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the bytes of our close alert."""
        with suppress(ssl.SSLError):
            self._inner.unwrap()
        return self._outgoing.read()


class Wait(asyncio.Future[None]):
    """A future for one waiting task, which can resume the task at once: an extra round of the loop often costs more than its work."""

    __slots__ = ("_then", "_within")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._then: Callable[[asyncio.Future[None]], object] | None = None
        self._within: Context | None = None

    def add_done_callback(self, fn: Callable[[asyncio.Future[None]], object], /, *, context: Context | None = None) -> None:
        """Keep the callback; only one task waits, and it adds one."""
        self._then, self._within = fn, context or copy_context()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the wait in the loop's next round."""
        if not super().cancel(msg):
            return False
        self._call_later()
        return True

    def end(self) -> None:
        """End the wait in the loop's next round, like other futures."""
        if not self.done():
            self.set_result(None)
            self._call_later()

    def end_now(self) -> None:
        """End the wait and resume the task before this returns; if another task is running, resume it in the loop's next round."""
        callback, context = self._then, self._within
        if callback is None or context is None or asyncio.current_task(self.get_loop()) is not None:
            self.end()
        elif not self.done():
            self.set_result(None)
            self._then = None
            context.run(callback, self)

    def _call_later(self) -> None:
        callback, self._then = self._then, None
        if callback is not None:
            self.get_loop().call_soon(callback, self, context=self._within)


_HIGH_WATER: Final = 128 * 1024
_BUFFER_SIZE: Final = 256 * 1024
# How long the other side has to read what we sent before we abort.
_CLOSING_SECONDS: Final = 10.0

_THREAD = threading.local()


def _buffer() -> memoryview:
    """Return this thread's only read buffer: data is copied out of it before anything else is read into it."""
    if not hasattr(_THREAD, "buffer"):
        _THREAD.buffer = memoryview(bytearray(_BUFFER_SIZE))
    return _THREAD.buffer


def _do_nothing(_: "Wire") -> None:
    """Do nothing."""


class Wire(asyncio.BufferedProtocol):
    """One connection; `on_made` is called when it is made, `on_lost` when it is lost."""

    def __init__(self, on_made: Callable[["Wire"], None] = _do_nothing, on_lost: Callable[["Wire"], None] = _do_nothing) -> None:
        self._on_made = on_made
        self._on_lost = on_lost
        self._buffer = _buffer()
        self._pieces: list[bytes] = []
        self._unread = 0
        self._tls: Tls | None = None
        self._loop = asyncio.get_running_loop()
        self._reading: Wait | None = None
        self._draining: asyncio.Future[None] | None = None
        self._full = False
        self._ended = False
        self._error: Exception | None = None
        self._paused = False
        self._is_answering = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and report the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Return the buffer to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Queue what was received, and pause reading if that is a lot."""
        received = self._buffer[:nbytes]
        if self._tls is None:
            self._queue([bytes(received)])
        else:
            self._decrypt(self._tls, received)
        if self._reading is not None:
            self._reading.end_now()

    def eof_received(self) -> bool:
        """Note the end; without TLS our side stays open, so that a reply can still be sent, and with TLS we close it ourselves."""
        self._ended = True
        self._wake_reader()
        if self._tls is not None:
            self.finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the tasks that wait, and report the loss."""
        self.is_lost = self._ended = True
        self._error = self._error or exc
        self._cancel_timer()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        self._wake_reader()
        self._wake_writer()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that the other side does not keep up."""
        self._full = True

    def resume_writing(self) -> None:
        """Note that the other side keeps up again."""
        self._full = self._is_answering = False
        self._wake_writer()
        self._pace()

    def _decrypt(self, tls: Tls, received: bytes | memoryview) -> None:
        """Decrypt what was received and send what TLS answers, no faster than the other side reads it; abort on a TLS error."""
        try:
            pieces = tls.receive(received)
        except ssl.SSLError as fault:
            pieces, self._error = [], fault
        self._ended = self._ended or tls.has_ended or self._error is not None
        self._queue(pieces)
        if answer := tls.answer():
            self.transport.write(answer)
            self._is_answering = self._full
            self._pace()
        if self._error is not None:
            self.abort()
        elif tls.has_ended:
            self.finish()

    def _queue(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._unread += sum(map(len, pieces))
        self._pace()

    def _wake_reader(self) -> None:
        if self._reading is not None:
            self._reading.end()

    def _wake_writer(self) -> None:
        if self._draining is not None and not self._draining.done():
            self._draining.set_result(None)

    def _pace(self) -> None:
        """Pause reading while a lot is unread, or while the other side does not read what TLS answers."""
        stop = self._is_answering or self._unread >= _HIGH_WATER
        if stop != self._paused and not self.is_lost:
            self._paused = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    async def read(self, seconds: float | None = None) -> bytes:
        """Wait for data and return it, empty at the end; raise OSError, or TimeoutError if nothing arrives for this long."""
        deadline = 0.0
        while not self._pieces and not self._ended:
            if seconds is not None:
                deadline = deadline or self._loop.time() + seconds
                self._arm_timer(deadline)
            await self._next_event(deadline)
            if self._timed_out:
                raise TimeoutError
        if self._error is not None and not self._pieces:
            raise ConnectionResetError("the connection broke") from self._error
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        self._pace()
        return data

    def _next_event(self, deadline: float = 0.0) -> Wait:
        """Return a wait that ends when data arrives, at the end of the stream, or at the deadline."""
        self._deadline, self._timed_out = deadline, False
        self._reading = Wait(self._loop)
        return self._reading

    def _arm_timer(self, when: float) -> None:
        """Keep one timer that fires no later than `when`. It rearms when it fires, so that a request does not need a new timer."""
        if self._timer is not None and self._timer.when() > when:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(when, self._check_deadline)

    def _cancel_timer(self) -> None:
        """Cancel the timer, which holds a reference to us."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._deadline or self._reading is None or self._reading.done():
            return
        if self._loop.time() >= self._deadline:
            self._timed_out = True
            self._reading.end()
        else:
            self._arm_timer(self._deadline)

    def write(self, data: bytes) -> None:
        """Send data; `drain` waits while the other side does not keep up."""
        if data and not self.transport.is_closing():
            self.transport.write(data if self._tls is None else self._tls.seal(data))

    async def drain(self, seconds: float | None = None) -> None:
        """Wait until there is room again; raise TimeoutError if the other side does not read, ConnectionError if it is gone."""
        if self._full and not self.is_lost:
            async with asyncio.timeout(seconds):
                while self._full and not self.is_lost:
                    self._draining = self._loop.create_future()
                    try:
                        await self._draining
                    finally:
                        self._draining = None
        if self.is_lost:
            raise ConnectionResetError("the other side is gone")

    async def secure(self, context: ssl.SSLContext, seconds: float, *, server: str | None = None) -> None:
        """Switch to TLS, as the server or as a client that names the server; raise OSError or TimeoutError."""
        self._tls = tls = Tls(context, server)
        early, self._unread = b"".join(self._pieces), 0
        self._pieces.clear()
        self._decrypt(tls, early)
        async with asyncio.timeout(seconds):
            while not tls.is_agreed and not self._ended:
                await self._next_event()
        if self._error is not None:
            raise self._error
        if self._ended and not self._pieces:
            raise ConnectionResetError("the other side is gone")

    @property
    def keeps_up(self) -> bool:
        """Tell whether `drain` would return at once: the other side is connected and reads what we send."""
        return not (self._full or self.is_lost)

    @property
    def is_quiet(self) -> bool:
        """Tell whether the connection is open both ways and nothing received is unread."""
        return not (self._ended or self._pieces or self.transport.is_closing())

    @property
    def is_cut(self) -> bool:
        """Tell whether this is TLS and the other side has not sent its close alert."""
        return self._tls is not None and not self._tls.has_ended

    @property
    def unsent(self) -> int:
        """Return how many bytes wait to be sent."""
        return self.transport.get_write_buffer_size()

    @property
    def holds_more(self) -> bool:
        """Tell whether received data is unread."""
        return bool(self._pieces)

    def finish(self, seconds: float = _CLOSING_SECONDS) -> None:
        """Close once everything is sent, or after this many seconds at the latest."""
        if self.is_lost or self._abort_timer is not None:
            return
        self._cancel_timer()
        if self._tls is not None and not self.transport.is_closing():
            self.transport.write(self._tls.end())
        self.transport.close()
        self._abort_timer = self._loop.call_later(seconds, self.transport.abort)

    def abort(self) -> None:
        """Close at once."""
        self._cancel_timer()
        if not self.is_lost:
            self.transport.abort()
