"""Our own certificate authority: created once, it signs short-lived certificates for the hosts whose TLS ends here.

The key never leaves this module; only `certificate`, the public half, does.
"""

import asyncio
import contextlib
import os
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from curtainwall.facts import quoted
from curtainwall.model import Broken

_LIFE: Final = timedelta(days=3650)
_LEAF_LIFE: Final = timedelta(days=7)
_RENEW_BEFORE: Final = timedelta(days=1)
_EARLIER: Final = timedelta(hours=1)  # for clocks of clients that are a little behind
_KEPT: Final = 64
_NAME: Final = "Curtainwall, on this machine alone"


class Authority:
    """Signs certificates for hosts. A separate thread makes them; the `kept` most recently used stay in memory."""

    def __init__(self, directory: Path, *, kept: int = _KEPT, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._kept = kept
        self._key, self._certificate = _read_or_make(directory, now())
        self._leaves: OrderedDict[str, tuple[ssl.SSLContext, datetime]] = OrderedDict()
        self._making: dict[str, asyncio.Future[ssl.SSLContext]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="authority")

    def __repr__(self) -> str:
        return f"Authority({len(self._leaves)} certificates)"

    @property
    def certificate(self) -> bytes:
        """Return the public certificate as PEM, for clients that must trust it."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def size(self) -> int:
        """Return how many hosts' certificates are kept."""
        return len(self._leaves)

    async def context(self, host: str) -> ssl.SSLContext:
        """Return the server's TLS context for exactly this host: a client that asks for another name, or none, is rejected."""
        leaf = self._leaves.get(host)
        if leaf is not None and self._now() < leaf[1] - _RENEW_BEFORE:
            self._leaves.move_to_end(host)
            return leaf[0]
        pending = self._making.get(host)
        if pending is None:
            pending = self._making[host] = asyncio.ensure_future(self._make(host))
        return await asyncio.shield(pending)

    def close(self) -> None:
        """Stop the thread; calling it twice is harmless."""
        self._thread.shutdown(wait=False)

    async def _make(self, host: str) -> ssl.SSLContext:
        try:
            expires = self._now() + _LEAF_LIFE
            context = await asyncio.get_running_loop().run_in_executor(self._thread, self._sign, host, expires)
        finally:
            del self._making[host]
        self._leaves[host] = context, expires
        while len(self._leaves) > self._kept:
            self._leaves.popitem(last=False)
        return context

    def _sign(self, host: str, expires: datetime) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        # Some clients still read the common name, which holds at most 64 characters; the name that counts is the alternative one.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        leaf = (
            _builder(subject, self._certificate.subject, key.public_key(), self._now(), expires)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        _load(context, _private(key) + leaf.public_bytes(serialization.Encoding.PEM))

        def named(_connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> int | None:
            return None if name is not None and name.lower() == host else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = named
        return context


def _read_or_make(directory: Path, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / "authority.pem"
        if not path.exists():
            _write_new(path, _new_authority(now))
        content = path.read_bytes()
        if path.stat().st_mode & 0o077:
            raise Broken(f"the authority {quoted(str(path))} can be read by others; remove it, and a new one is made")
    except OSError as fault:
        raise Broken(f"the authority in {quoted(str(directory))} cannot be read or made: {fault.strerror or fault}") from None
    try:
        key = serialization.load_pem_private_key(content, None)
        certificate = x509.load_pem_x509_certificate(content)
    except ValueError:
        raise Broken(f"the authority {quoted(str(path))} is damaged; remove it, and a new one is made") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise Broken(f"the authority {quoted(str(path))} has a key that is not its own; remove it, and a new one is made")
    return key, certificate


def _new_authority(now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        _builder(name, name, key.public_key(), now, now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _private(key) + certificate.public_bytes(serialization.Encoding.PEM)


def _write_new(path: Path, content: bytes) -> None:
    """Write the file completely or not at all; the first of two processes wins."""
    temporary = path.with_name(f".{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.close(descriptor)
        temporary.unlink()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _EARLIER).not_valid_after(expires)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key without writing it to disk: the library only reads files, so it gets one in memory."""
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
