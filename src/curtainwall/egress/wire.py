"""One end of a connection, to a client or to a provider: bytes as they come, with backpressure both ways, with TLS or without."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

_HIGH: Final = 128 * 1024
_BUFFER: Final = 32 * 1024


def _nobody(_: "Wire") -> None:
    """Tell nobody."""


class Wire(asyncio.BufferedProtocol):
    """One connection; `begun` is called when it is made, `gone` when it is lost."""

    def __init__(self, begun: Callable[["Wire"], None] = _nobody, gone: Callable[["Wire"], None] = _nobody) -> None:
        self._begun = begun
        self._gone = gone
        self._buffer = memoryview(bytearray(_BUFFER))
        self._pieces: list[bytes] = []
        self._size = 0
        self._reads: asyncio.Future[None] | None = None
        self._drains: asyncio.Future[None] | None = None
        self._full = False
        self._ended = False
        self._paused = False
        self._secure = False
        self._fault: Exception | None = None
        self._until = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._was_late = False
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._begun(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Lend the one buffer that everything is read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep what came, and read no further when it is a lot."""
        self._pieces.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size >= _HIGH and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        _wake(self._reads)

    def eof_received(self) -> bool:
        """Take note; without TLS our own side stays open, so that an answer still arrives."""
        self._ended = True
        _wake(self._reads)
        return not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake whoever waits, and tell."""
        self._fault = exc
        self.is_lost = self._ended = True
        self._unwatch()
        _wake(self._reads)
        _wake(self._drains)
        self._gone(self)

    def pause_writing(self) -> None:
        """Take note that the other side does not keep up."""
        self._full = True

    def resume_writing(self) -> None:
        """Take note that it does again."""
        self._full = False
        _wake(self._drains)

    async def read(self, seconds: float | None = None) -> bytes:
        """Return what has come, waiting for something; nothing at the end; raise OSError, TimeoutError where nothing comes for so long."""
        loop = asyncio.get_running_loop()
        while not self._pieces and not self._ended:
            if seconds is not None:
                self._until = loop.time() + seconds
                self._watch_until(self._until, loop)
            self._reads = loop.create_future()
            try:
                await self._reads
            finally:
                self._reads = None
                self._until = 0.0
            if self._was_late:
                self._was_late = False
                raise TimeoutError
        if self._fault is not None and not self._pieces:
            raise ConnectionResetError("the connection broke")
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._paused and not self.is_lost:
            self._paused = False
            self.transport.resume_reading()
        return data

    def _watch_until(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Have one timer that is never later than `when`; it looks again by itself, so that a request costs no timer of its own."""
        if self._watch is not None and self._watch.when() > when:
            self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._watch = loop.call_at(when, self._look)

    def _unwatch(self) -> None:
        """Let go of the timer, which would keep us; after a handshake that failed, nobody else tells us that it is over."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if not self._until:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            self._was_late = self._reads is not None and not self._reads.done()
            _wake(self._reads)
        else:
            self._watch_until(self._until, loop)

    def write(self, data: bytes) -> None:
        """Send; `drain` waits where the other side does not keep up."""
        if data and not self.is_lost:
            self.transport.write(data)

    async def drain(self, seconds: float | None = None) -> None:
        """Return when there is room again; raise TimeoutError where the other side does not read, ConnectionError where it is gone."""
        if self._full and not self.is_lost:
            async with asyncio.timeout(seconds):
                while self._full and not self.is_lost:
                    self._drains = asyncio.get_running_loop().create_future()
                    try:
                        await self._drains
                    finally:
                        self._drains = None
        if self.is_lost:
            raise ConnectionResetError("the other side is gone")

    async def secure(self, context: ssl.SSLContext, seconds: float) -> None:
        """Go on in TLS, as its server; raise OSError or TimeoutError."""
        loop, before = asyncio.get_running_loop(), self.transport
        self._secure = True
        made = await loop.start_tls(before, self, context, server_side=True, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds)
        if made is None or self.is_lost:
            raise ConnectionResetError("the client is gone")
        self.transport = made
        if self._paused:
            # A lot came together with the end of the handshake.
            before.resume_reading()
            made.pause_reading()

    @property
    def is_quiet(self) -> bool:
        """Tell whether it is open both ways and nothing came that was not read."""
        return not (self._ended or self._pieces or self.transport.is_closing())

    @property
    def holds_more(self) -> bool:
        """Tell whether something came that was not read."""
        return bool(self._pieces)

    def finish(self) -> None:
        """Close when everything is sent."""
        self._unwatch()
        if not self.is_lost:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._unwatch()
        if not self.is_lost:
            self.transport.abort()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
