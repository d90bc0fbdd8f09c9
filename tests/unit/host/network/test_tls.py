"""TLS as bytes in and bytes out: both sides in one test, with nothing between them but what the test passes on."""

import ssl
from pathlib import Path

import pytest

from curtainwall.host.network.wires import Tls
from tests.support.certificates import Authority

LONG = b"0123456789" * 20_000


def both(tmp_path: Path, name: str = "box.lan") -> tuple[Tls, Tls]:
    authority = Authority(tmp_path)
    return Tls(authority.server("box.lan")), Tls(authority.trust, name)


def agreed(tmp_path: Path) -> tuple[Tls, Tls]:
    server, client = both(tmp_path)
    client.receive(b"")
    for _ in range(3):
        server.receive(client.answer())
        client.receive(server.answer())
    assert server.is_agreed
    assert client.is_agreed
    return server, client


def test_what_one_side_says_the_other_hears(tmp_path: Path) -> None:
    server, client = agreed(tmp_path)
    assert server.receive(client.seal(b"hello")) == [b"hello"]
    assert b"".join(client.receive(server.seal(LONG))) == LONG
    assert b"0123456789" not in server.seal(LONG)


def test_what_comes_in_pieces_is_heard_when_it_is_whole(tmp_path: Path) -> None:
    server, client = agreed(tmp_path)
    sealed = client.seal(b"hello") + client.seal(b"you")
    heard = [server.receive(sealed[at : at + 1]) for at in range(len(sealed))]
    assert [said for said in heard if said] == [[b"hello"], [b"you"]]


def test_nothing_can_be_said_before_both_agree(tmp_path: Path) -> None:
    _, client = both(tmp_path)
    client.receive(b"")
    with pytest.raises(ssl.SSLError):
        client.seal(b"hello")


def test_an_end_is_told_and_what_came_before_it_is_heard(tmp_path: Path) -> None:
    server, client = agreed(tmp_path)
    assert server.receive(client.seal(b"bye") + client.end()) == [b"bye"]
    assert server.has_ended
    assert not client.has_ended


@pytest.mark.parametrize("at", [0, 2, 30])
def test_what_was_changed_on_the_way_is_refused(tmp_path: Path, at: int) -> None:
    server, client = agreed(tmp_path)
    sealed = bytearray(client.seal(b"a" * 100))
    sealed[at] ^= 0x40
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(sealed))
    assert server.answer(), "the other side is told with an alert"


def test_another_name_is_not_agreed_with(tmp_path: Path) -> None:
    server, client = both(tmp_path, "other.lan")
    client.receive(b"")
    server.receive(client.answer())
    with pytest.raises(ssl.SSLCertVerificationError):
        client.receive(server.answer())
    assert not client.is_agreed
