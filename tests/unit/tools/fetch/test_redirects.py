"""Redirects: what is asked for at the next place, and what stays behind."""

from typing import Any

import pytest

from curtainwall.tools.fetch.exchange import HttpReply, request_headers, shown_headers
from curtainwall.tools.fetch.tool import redirect_call
from curtainwall.tools.runners import CannotDo
from tests.support.covers import covers

HERE = "https://example.org/a/b"
THERE = "https://other.example.org/"
FULL: dict[str, Any] = {
    "url": HERE,
    "method": "POST",
    "body": "{}",
    "format": "raw",
    "credential": "key",
    "headers": {"Accept": "text/plain", "Content-Type": "application/json", "X-Trace": "1"},
}


def led(status: int, location: str) -> HttpReply:
    return HttpReply(status, (("Location", location),), b"")


@pytest.mark.parametrize(
    "reply", [HttpReply(200, (("location", THERE),), b""), HttpReply(302, (), b""), HttpReply(304, (("location", THERE),), b"")]
)
def test_other_answers_lead_nowhere(reply: HttpReply) -> None:
    assert redirect_call({"url": HERE}, reply) is None


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "https://example.org/x"),
        ("x?y=1#part", "https://example.org/a/x?y=1"),
        ("//other.example.org", THERE),
        ("HTTP://OTHER.example.org.:80", "http://other.example.org/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("/a b/é", "https://example.org/a%20b/%C3%A9"),
    ],
)
def test_a_location_is_read_from_where_it_was_given(location: str, url: str) -> None:
    assert redirect_call({"url": HERE}, led(302, location)) == {"url": url}


@pytest.mark.parametrize(
    "location", ["ftp://x/", "javascript:x", "http://", "\\\\x", "http://a:b@x/", "http://x:99999/", "/a\tb", "http://x:0/"]
)
def test_a_location_without_sense_is_refused(location: str) -> None:
    with pytest.raises(CannotDo, match="is not followed"):
        redirect_call({"url": HERE}, led(302, location))


@pytest.mark.parametrize(
    ("status", "method", "kept"),
    [
        (301, "POST", None), (302, "POST", None), (303, "POST", None), (303, "PUT", None), (303, "HEAD", "HEAD"), (301, "HEAD", "HEAD"),
        (301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (307, "POST", "POST"), (308, "PATCH", "PATCH"),
    ],
)  # fmt: skip
def test_method_and_body_change_as_in_browsers(status: int, method: str, kept: str | None) -> None:
    there = redirect_call({"url": HERE, "method": method, "body": "x", "headers": {"Content-Type": "a/b"}}, led(status, "/c"))
    rest = {} if kept is None else {"method": kept, "body": "x", "headers": {"Content-Type": "a/b"}}
    assert there == {"url": "https://example.org/c", **rest}


@covers("fetch.a-credential-stays-with-its-origin")
@pytest.mark.parametrize("location", [THERE, "http://example.org/a/b", "https://example.org:8443/", "https://sub.example.org/"])
def test_a_credential_never_goes_to_another_origin(location: str) -> None:
    there = redirect_call(FULL, led(307, location))
    assert there is not None
    assert there.keys() == {"url", "method", "body", "headers", "format"}
    assert there["headers"] == {"Accept": "text/plain", "Content-Type": "application/json"}


def test_at_the_same_origin_everything_goes_along() -> None:
    assert redirect_call(FULL, led(308, "/c")) == {**FULL, "url": "https://example.org/c"}


def test_an_agent_writes_the_headers_that_are_its_own() -> None:
    written = {"Accept": " text/html ", "x-trace": "1", "If-None-Match": '"a"', "anthropic-version": "2023-06-01", "Range": "bytes=0-9"}
    assert request_headers(written) == tuple((name, value.strip()) for name, value in written.items())
    with pytest.raises(CannotDo, match="stands there twice"):
        request_headers({"Accept": "a", "ACCEPT": "b"})
    with pytest.raises(CannotDo, match="name a `credential` instead"):
        request_headers({"Authorization": "Bearer x"})


def test_an_agent_sees_the_headers_that_tell_it_something() -> None:
    told = (("Content-Type", "a/b"), ("Set-Cookie", "x=y"), ("Link", "<a>"), ("link", "<b>"), ("Server", "x"), ("ETag", "e" * 9_000))
    shown = shown_headers(told)
    assert shown.keys() == {"content-type", "link", "etag"}
    assert shown["link"] == "<a>, <b>"
    assert len(shown["etag"]) < 2_100
