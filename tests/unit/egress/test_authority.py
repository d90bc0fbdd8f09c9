"""The authority: made once, ours alone, and certificates for exactly one host each, never more kept than a few."""

import asyncio
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from curtainwall.egress import Authority
from curtainwall.model import Broken
from tests.support.covers import covers


@covers("egress.authority-once")
def test_the_authority_is_made_once_and_is_ours_alone(tmp_path: Path) -> None:
    first = Authority(tmp_path / "ca")
    again = Authority(tmp_path / "ca")
    assert first.certificate == again.certificate
    assert [path.name for path in (tmp_path / "ca").iterdir()] == ["authority.pem"]
    assert stat.S_IMODE((tmp_path / "ca" / "authority.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700
    first.close()
    again.close()


def test_what_others_trust_holds_no_key_and_may_sign_hosts_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert b"PRIVATE" not in authority.certificate
    certificate = x509.load_pem_x509_certificate(authority.certificate)
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    authority.close()


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_authority_is_said_to_be_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "authority.pem").write_bytes(content)
    (tmp_path / "authority.pem").chmod(0o600)
    with pytest.raises(Broken, match="damaged"):
        Authority(tmp_path)


def test_an_authority_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    Authority(tmp_path).close()
    (tmp_path / "authority.pem").chmod(0o640)
    with pytest.raises(Broken, match="can be read by others"):
        Authority(tmp_path)


def test_a_host_has_one_certificate_however_many_ask_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        made = await asyncio.gather(*(authority.context("api.anthropic.com") for _ in range(20)))
        assert len({id(context) for context in made}) == 1
        assert authority.size == 1
        authority.close()

    asyncio.run(story())


@covers("egress.certificates-bounded")
def test_the_least_recently_used_certificates_go_first(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path, kept=3)
        kept = await authority.context("a.test")
        for name in "bcdefghij":
            await authority.context(f"{name}.test")
            assert await authority.context("a.test") is kept
            assert authority.size <= 3
        authority.close()

    asyncio.run(story())


def test_a_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    now = [datetime.now(UTC)]

    async def story() -> None:
        authority = Authority(tmp_path, now=lambda: now[0])
        first = await authority.context("a.test")
        now[0] += timedelta(days=5)
        assert await authority.context("a.test") is first
        now[0] += timedelta(days=1, hours=1)
        assert await authority.context("a.test") is not first
        authority.close()

    asyncio.run(story())
