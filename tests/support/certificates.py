"""A certificate authority for one test run, and servers' contexts made by it."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# What newer versions of Python ask of an authority.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates that only `trust` believes."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's own authority")])
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(_SIGNS, critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self._certificate = made.sign(self._key, hashes.SHA256())

    @property
    def trust(self) -> ssl.SSLContext:
        """Return a client's context that believes this authority alone."""
        pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)

    def server(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        """Return a server's context with a certificate for these names or addresses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.written(*names, expired=expired))
        return context

    def written(self, *names: str, expired: bool = False) -> Path:
        """Return a file with a certificate for these names or addresses, and with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        told = [x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names]
        builder = self._builder(subject, key.public_key(), expired=expired).add_extension(x509.SubjectAlternativeName(told), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        path = self._scratch / f"{names[0]}.pem"
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool = False) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=2))
        return builder.not_valid_after(now + timedelta(days=-1 if expired else 1))
