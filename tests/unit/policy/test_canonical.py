"""One spelling for each thing, and the difference between names and addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.facts.refusal import Unclear
from curtainwall.facts.urls import canonical_url
from curtainwall.policy.canonical import (
    guessed_scope,
    host_parents,
    is_host,
    is_path,
    remote_host,
    split_remote,
)
from tests.support.remotes import one_remote


@pytest.mark.parametrize("text", ["/", "/a", "/a b/ü", "/a/...", "/a/.b", "/a\nb"])
def test_canonical_paths(text: str) -> None:
    assert is_path(text)


@pytest.mark.parametrize("text", ["", "a", "~", "~/a", "//", "//a", "/a/", "/a//b", "/./a", "/a/..", "/a\0", "/\ud800"])
def test_other_paths(text: str) -> None:
    assert not is_path(text)


@pytest.mark.parametrize(
    "text", ["a", "a.b", "xn--bcher-kva.de", "a_b.c", "1.2.3.4", "::", "::1", "2001:db8::1", "a" * 63 + ".b", "3com.com"]
)
def test_canonical_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "a.", ".a", "a..b", "A.b", "bücher.de", "a b", "a/b", "a:80", "*.a", "127.1", "0x7f.1", "1.2.3.256",
        "01.2.3.4", "1.2.3.4.5",
        "a.0x1",
        "[::1]", "::1%eth0", "0:0:0:0:0:0:0:1", "2001:DB8::1", "::ffff:1.2.3.4", "::ffff:102:304", "64:ff9b::1.2.3.4", "2002:102:304::",
        "::5",
        "x" * 64, ".".join(["x" * 60] * 5), "１２７.0.0.1", "a\n",
    ],
)  # fmt: skip
def test_other_hosts(text: str) -> None:
    assert not is_host(text)


def test_parent_domains() -> None:
    assert host_parents("a.b.c") == ("b.c", "c")
    assert host_parents("1.2.3.4") == ()
    assert host_parents("::1") == ()
    assert host_parents("localhost") == ()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("github.com/me/r", ("github.com", ("me", "r"))),
        ("h:22/r", ("h", ("r",))),
        ("[::1]:22/r", ("::1", ("r",))),
        ("github.com", None),
        ("github.com/", None),
        ("github.com/me/", None),
        ("github.com/../r", None),
        ("git@github.com/me/r", None),
        ("https://github.com/me/r", None),
        ("GitHub.com/me/r", None),
        ("h:0/r", None),
        ("h/ r", None),
        ("h/\0", None),
        ("", None),
    ],
)
def test_remotes(text: str, meant: tuple[str, tuple[str, ...]] | None) -> None:
    assert split_remote(text) == meant


def test_the_host_of_a_remote() -> None:
    assert remote_host("[fd00::1]") == "fd00::1"
    assert remote_host("a:") is None


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("github.com", "public"),
        ("git", "private"),
        ("git.local", "private"),
        ("10.1.2.3", "private"),
        ("8.8.8.8", "private"),
        ("2606:4700::1", "private"),
        ("169.254.169.254", "forbidden"),
        ("fe80::1", "forbidden"),
        ("239.1.1.1", "forbidden"),
        ("metadata.google.internal", "forbidden"),
        ("metadata", "forbidden"),
    ],
)
def test_a_host_without_facts_is_public_only_if_it_is_a_public_name(host: str, scope: str) -> None:
    assert guessed_scope(host) == scope


@given(
    st.text(max_size=20) | st.from_regex(r"[0-9a-fxA-F.:]{1,20}", fullmatch=True) | st.from_regex(r"\[[0-9a-f:.]{2,25}\]", fullmatch=True)
)
def test_what_facts_call_a_host_is_one_here(text: str) -> None:
    try:
        url = canonical_url(f"https://{text}/")
    except Unclear:
        return
    assert is_host(url.facts.host)


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:Me/r.git",
        "https://GitHub.com/me/r",
        "ssh://git@git.lan:2222/a/b",
        "https://[fd00::1]/a/b",
        "ann@git.lan:a/b",
        "git://git.lan/~x/y",
    ],
)
def test_what_facts_call_a_remote_is_one_here(text: str) -> None:
    found = one_remote(text)
    meant = split_remote(found.value)
    assert meant is not None
    assert meant[0] == found.host.host
