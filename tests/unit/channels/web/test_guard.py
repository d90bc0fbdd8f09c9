"""The door: without the right host, origin, cookie and token nothing is reached and nothing changes."""

import httpx2
import pytest

from curtainwall.channels.web.guard import HEADERS
from tests.support.covers import covers
from tests.support.webs import Visit, Web

PAGES = (
    "/",
    "/sessions",
    "/sessions/new",
    "/audit",
    "/audit.jsonl",
    "/audit.csv",
    "/rules",
    "/rules/try",
    "/usage",
    "/health",
    "/grants",
    "/events",
)


@covers("web.no-entry-without-sign-in")
@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_sees_the_sign_in_page_and_nothing_else(web: Web, path: str) -> None:
    stranger = web.visit(None)
    answer = stranger.get(path)
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")
    assert stranger.get(path, **{"Sec-Fetch-Dest": "empty"}).status_code == 401


@covers("web.no-entry-without-sign-in")
def test_a_forged_cookie_is_no_cookie(web: Web) -> None:
    stranger = web.visit(None)
    for forged in ("x", "a" * 43, "", '"', "a" * 10_000):
        answer = stranger.get("/", Cookie=f"curtainwall={forged}")
        assert answer.status_code == 303


@covers("web.host-is-checked")
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]"])
def test_another_host_is_refused_even_with_a_cookie(web: Web, ann: Visit, host: str) -> None:
    assert ann.get("/", Host=host).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:1234", "[::1]:9"])
def test_this_machine_by_any_of_its_names_and_through_any_tunnel_is_us(ann: Visit, host: str) -> None:
    assert ann.get("/", Host=host).status_code == 200


@covers("web.forms-are-ours")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_form_from_elsewhere_answers_nothing(web: Web, ann: Visit, headers: dict[str, str]) -> None:
    session = web.session()
    approval = web.an_ask(session)
    assert ann.post(f"/asks/{session}/{approval}", headers, answer="once").status_code == 403
    assert web.asks(session) == [approval]


@covers("web.forms-are-ours")
def test_a_page_of_ours_that_was_framed_or_embedded_elsewhere_answers_nothing(web: Web, ann: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    headers = {"Origin": web.base, "Sec-Fetch-Site": "cross-site"}
    assert ann.post(f"/asks/{session}/{approval}", headers, answer="once").status_code == 403
    assert web.asks(session) == [approval]


@covers("web.forms-are-ours")
@pytest.mark.parametrize("csrf", ["", "x", "0" * 64, "é"])
def test_a_form_without_the_sign_ins_own_token_answers_nothing(web: Web, ann: Visit, csrf: str) -> None:
    session = web.session()
    approval = web.an_ask(session)
    assert ann.post(f"/asks/{session}/{approval}", answer="once", csrf=csrf).status_code == 403
    assert web.asks(session) == [approval]


@covers("web.forms-are-ours")
def test_the_token_of_another_sign_in_does_not_fit(web: Web, ann: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    other = web.visit("ann")
    assert other.csrf != ann.csrf
    assert ann.post(f"/asks/{session}/{approval}", answer="once", csrf=other.csrf).status_code == 403
    assert web.asks(session) == [approval]


@covers("web.only-operators-answer")
def test_who_is_no_operator_talks_and_decides_nothing(web: Web, uma: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    refused = uma.post(f"/asks/{session}/{approval}", answer="once")
    assert (refused.status_code, "not an operator" in refused.text) == (403, True)
    for act in ("interrupt", "mode", "model", "rename", "close", "budget", "compact", "withdraw", "rules", "fork", "reset"):
        assert uma.post(f"/sessions/{session}/{act}").status_code == 403, act
    assert uma.post("/sessions/new", task="x").status_code == 403
    assert uma.post("/grants/gabc/revoke").status_code == 403
    assert web.asks(session) == [approval]
    assert uma.post(f"/sessions/{session}/message", text="good morning").status_code == 303
    assert "good morning" in uma.get(f"/sessions/{session}").text


@covers("web.strict-headers")
@pytest.mark.parametrize("path", ["/", "/nowhere", "/sign-in", "/static/web.css", "/audit.csv", "/static/nothing"])
def test_every_answer_carries_the_strict_headers(ann: Visit, path: str) -> None:
    answer = ann.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == dict(HEADERS)
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_what_is_no_form_of_ours_is_not_read(web: Web, ann: Visit) -> None:
    headers = {"Origin": web.base}
    many = "&".join(f"f{number}=1" for number in range(100))
    form = "application/x-www-form-urlencoded"
    for body, kind, status in (
        (b"x" * 3_000_000, form, 413),
        (b"\xff=\xfe", form, 400),
        (many.encode(), form, 400),
        (b"csrf=a&csrf=b", form, 400),
        (b"{}", "application/json", 400),
        (b"", "multipart/form-data; boundary=x", 400),
    ):
        answer = ann.client.post("/theme", content=body, headers={**headers, "Content-Type": kind})
        assert answer.status_code == status, (body[:20], answer.text)


def test_a_link_from_elsewhere_is_asked_for_again_from_here_so_that_the_strict_cookie_comes_along(web: Web) -> None:
    answer = web.visit(None).get("/", **{"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "refresh" in answer.text, "Inbox" in answer.text) == (200, True, False)


def test_methods_that_no_page_has_are_refused(web: Web, ann: Visit) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = ann.client.request(method, "/", headers={"Origin": web.base}, data={"csrf": ann.csrf})
        assert answer.status_code in (400, 405), method
    assert isinstance(ann.client.request("HEAD", "/"), httpx2.Response)
