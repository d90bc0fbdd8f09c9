"""Clients that send and never read: what is held for each of them is bounded, and so is how many of them there are."""

import asyncio
import gc
import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from curtainwall.egress import EgressBounds
from curtainwall.host import Wire
from tests.support.covers import covers
from tests.support.egress import Session, session
from tests.support.houses import run, until

REFUSED = b"GET /x HTTP/1.1\r\nhost: api.anthropic.com\r\n\r\n"
HELD = 256 * 1024
SENT = 4 * 1024 * 1024


class Deaf:
    """A client that speaks TLS by hand over a socket, so that it reads when it likes, which is never again after the handshake."""

    def __init__(self, there: Session, keys: Path | None = None) -> None:
        self._path = str(there.path)
        self._into, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        trust = there.trust()
        if keys is not None:
            trust.keylog_filename = str(keys)
        self._tls = trust.wrap_bio(self._into, self._out, server_hostname="api.anthropic.com")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.setblocking(False)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, self._path)
        await self.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: api.anthropic.com:443\r\n\r\n")
        assert b" 200 " in await loop.sock_recv(self.socket, 65536)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.send(self._out.read())
                self._into.write(await loop.sock_recv(self.socket, 65536))
        await self.send(self._out.read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def sealed(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()


class KeyUpdates:
    """Records that ask for new keys in TLS 1.3, each under the keys that the last one brought."""

    def __init__(self, keys: Path) -> None:
        told = [line.split() for line in keys.read_text().splitlines()]
        self._take(next(bytes.fromhex(words[-1]) for words in told if words[0] == "CLIENT_TRAFFIC_SECRET_0"))

    def next(self) -> bytes:
        inner = b"\x18\0\0\1\1" + b"\x16"
        head = b"\x17\x03\x03" + struct.pack("!H", len(inner) + 16)
        record = head + self._key.encrypt(self._nonce, inner, head)
        self._take(self._expanded(b"traffic upd", 48))
        return record

    def _take(self, secret: bytes) -> None:
        self._secret = secret
        self._key, self._nonce = AESGCM(self._expanded(b"key", 32)), self._expanded(b"iv", 12)

    def _expanded(self, label: bytes, length: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack("!H", length) + bytes([len(label)]) + label + b"\0\1"
        return hmac.new(self._secret, info, hashlib.sha384).digest()[:length]


def end_at_the_proxy() -> Wire:
    """Return the proxy's end of the one connection that there is."""
    gc.collect()
    (wire,) = [each for each in gc.get_objects() if isinstance(each, Wire) and not each.is_lost]
    return wire


async def flood(deaf: Deaf, pieces: Iterable[bytes]) -> bool:
    """Send until the proxy takes no more, see that it holds little, and say whether it came to that."""
    wire = end_at_the_proxy()
    for piece in pieces:
        try:
            async with asyncio.timeout(2):
                await deaf.send(piece)
        except OSError:
            return True
        assert wire.transport.get_write_buffer_size() < HELD
    return False


@covers("egress.bounded")
def test_refusals_that_nobody_reads_are_not_piled_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(stalled=5)) as there, Deaf(there) as deaf:
            many = REFUSED * 1000
            assert await flood(deaf, (deaf.sealed(many) for _ in range(SENT // len(many))))
            await until(lambda: there.proxy.connections == 0)

    run(story())


@covers("egress.bounded")
def test_new_keys_that_are_asked_for_without_end_are_not_piled_up(tmp_path: Path) -> None:
    async def story() -> None:
        keys = tmp_path / "keys"
        async with session(tmp_path) as there, Deaf(there, keys) as deaf:
            updates = KeyUpdates(keys)
            assert await flood(deaf, (b"".join(updates.next() for _ in range(1000)) for _ in range(60)))

    run(story())


@covers("egress.bounded")
def test_one_that_ends_its_side_and_never_reads_counts_until_it_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(connections=1)) as there, Deaf(there) as deaf:
            await deaf.send(deaf.sealed(REFUSED * 2000))
            wire = end_at_the_proxy()
            await until(lambda: wire.transport.get_write_buffer_size() > 0)
            deaf.socket.shutdown(socket.SHUT_WR)
            await until(wire.transport.is_closing)
            async with there.raw() as other:
                assert await other.rest() == b"", "there is room for one"
            assert (there.proxy.connections, there.proxy.counters.turned_away) == (1, 1)
            await there.proxy.close()
            await until(lambda: wire.is_lost and there.proxy.connections == 0)

    run(story())
