"""TLS without a socket: what came goes in and what it says comes out, and the other way round. Who sends and waits is for others."""

import ssl
from contextlib import suppress
from typing import Final

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
        said: list[bytes] = []
        try:
            if not self.is_agreed:
                self._inner.do_handshake()
                self.is_agreed = True
            while self._incoming.pending and not self.has_ended:
                if piece := self._inner.read(_PIECE):
                    said.append(piece)
                else:
                    self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return said

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
