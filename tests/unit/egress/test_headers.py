"""Which headers pass, and which are for one hop alone."""

import pytest

from curtainwall.egress.upstream.http1 import passable, sendable

SAID = [(b"connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"x-yours", b"2"), (b"connection", b"x-hers"), (b"x-hers", b"3")]


def test_what_a_connection_header_names_ends_here_whichever_of_them_names_it() -> None:
    assert sendable(SAID) == [(b"x-yours", b"2")]
    assert passable(SAID, dict(SAID)) == [(b"x-yours", b"2")]


@pytest.mark.parametrize(
    "name", [b"host", b"content-length", b"transfer-encoding", b"accept-encoding", b"cookie", b"x-forwarded-for", b"te"]
)
def test_a_provider_learns_nothing_of_the_hop_and_the_framing(name: bytes) -> None:
    assert sendable([(name, b"x"), (b"a", b"b")]) == [(b"a", b"b")]


@pytest.mark.parametrize("name", [b"content-length", b"transfer-encoding", b"set-cookie", b"alt-svc", b"keep-alive", b"upgrade"])
def test_a_client_learns_nothing_of_the_hop_and_is_not_led_elsewhere(name: bytes) -> None:
    said = [(name, b"x"), (b"a", b"b"), (b"a", b"c")]
    assert passable(said, dict(said)) == [(b"a", b"b"), (b"a", b"c")]
