"""Ways out by fetching: redirects, names that change, answers of two kinds, headers that lie, and what is asked before anyone may."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    CallDenied,
    CallDropped,
    CallFinished,
    CallPermitted,
    GrantScope,
)
from curtainwall.tools.fetch.tool import FetchLimits
from tests.support.covers import covers
from tests.support.fetching import Web, told, web
from tests.support.houses import ANN, events, run, until
from tests.support.ports import free_port
from tests.support.sites import PUBLIC, redirect, reply, site

QUICK = FetchLimits(patience=2)
PAGE = reply(200, "the page", content_type="text/plain")


def asks(w: Web) -> list[ApprovalAsked]:
    return [event for event in events(w.house, w.session) if isinstance(event, ApprovalAsked)]


@covers("fetch.no-name-is-resolved-before-the-permit")
def test_no_name_is_resolved_before_the_permit(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = PAGE
            async with web(tmp_path) as w:
                w.names.says("docs.python.org", [PUBLIC])
                asking = asyncio.create_task(w.get(f"http://docs.python.org:{server.port}/"))
                (ask,) = await until(lambda: asks(w))
                assert w.names.asked == [], "judging must not ask a name server"
                await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
                assert told(await asking)["content"] == "the page"
                assert w.names.asked == ["docs.python.org"]
                await w.get("http://metadata.google.internal/")
                assert w.names.asked == ["docs.python.org"], "a denied call asks no name server"

    run(story())


@covers("fetch.every-hop-is-a-subject")
@pytest.mark.parametrize(
    ("target", "rule"),
    [
        ("http://127.0.0.1:{other}/", "private-address"),
        ("http://[::1]:{other}/", "private-address"),
        ("http://2130706433:{other}/", "private-address"),
        ("http://localhost:{other}/", "private-address"),
        ("http://10.1.2.3/", "private-address"),
        ("http://[::ffff:192.168.1.1]/", "private-address"),
        ("http://evil.example.org:{other}/", "unlisted-host"),
        ("//evil.example.org:{other}/x", "unlisted-host"),
    ],
)
def test_a_redirect_to_loopback_a_private_address_or_an_unlisted_host_is_asked_about(tmp_path: Path, target: str, rule: str) -> None:
    async def story() -> None:
        with site(PUBLIC) as server, site("127.0.0.1") as other:
            server.pages["/"] = redirect(target.format(other=other.port))
            async with web(tmp_path, ["docs.python.org"], QUICK) as w:
                w.names.says("docs.python.org", [PUBLIC])
                w.names.says("evil.example.org", ["127.0.0.1"])
                answer = await w.get(f"http://docs.python.org:{server.port}/")
                assert answer.result is not None
                assert not answer.result.ok
                assert "a human is asked about that" in str(answer.result.value)
                (ask,) = asks(w)
                assert rule in [each for cover in ask.covers for each in cover.rules]
                assert other.seen == []
                assert w.names.asked == ["docs.python.org"]

    run(story())


@covers("fetch.every-hop-is-a-subject")
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://0.0.0.0:{port}/"]
)
def test_a_redirect_to_forbidden_ground_is_refused(tmp_path: Path, target: str) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = redirect(target.format(port=server.port))
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                answer = await w.get(f"http://docs.python.org:{server.port}/")
                assert "forbidden-address" in str(told(answer))
                assert [type(event) for event in events(w.house, w.session)].count(CallDenied) == 1
                assert server.paths == ["/"]

    run(story())


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://docs.python.org/", "http:\\\\127.0.0.1/", "http://a\tb/", "http://u:p@docs.python.org/", "gopher://x"],
)
def test_a_redirect_that_is_no_plain_web_address_is_not_followed(tmp_path: Path, target: str) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = redirect(target)
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                answer = await w.get(f"http://docs.python.org:{server.port}/")
                assert answer.result is not None
                assert not answer.result.ok
                assert server.paths == ["/"]

    run(story())


@covers("fetch.every-hop-is-a-subject")
def test_each_hop_stands_in_the_log_as_a_call_with_its_own_permit(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages |= {"/a": redirect("/b", 301), "/b": redirect("/c", 307), "/c": PAGE}
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                start = f"http://docs.python.org:{server.port}"
                value = told(await w.get(f"{start}/a"))
                assert (value["status"], value["url"], value["content"]) == (200, f"{start}/c", "the page")
                assert value["redirects"] == [f"{start}/a", f"{start}/b"]
                assert w.requested == [f"{start}/{page}" for page in "abc"]
                log = events(w.house, w.session)
                permits = [event.call for event in log if isinstance(event, CallPermitted)]
                assert permits[1:] == [f"{permits[0]}.1", f"{permits[0]}.2"]
                assert [event.call for event in log if isinstance(event, CallFinished)] == [*permits[1:], permits[0]]
                assert w.names.asked == ["docs.python.org"] * 3, "resolved once for each connection"

    run(story())


def test_a_human_who_answers_soon_lets_the_redirect_go_on_in_the_same_call(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages |= {"/": redirect(f"http://www.example.org:{server.port}/there"), "/there": PAGE}
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                w.names.says("www.example.org", [PUBLIC])
                asking = asyncio.create_task(w.get(f"http://docs.python.org:{server.port}/"))
                (ask,) = await until(lambda: asks(w))
                assert server.paths == ["/"]
                await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
                value = told(await asking)
                assert value["content"] == "the page"

    run(story())


def test_an_ask_about_a_redirect_outlives_the_call_and_the_agent_can_come_back_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            there = f"http://www.example.org:{server.port}/there"
            server.pages |= {"/": redirect(there), "/there": PAGE}
            async with web(tmp_path, ["docs.python.org"], QUICK) as w:
                w.names.says("docs.python.org", [PUBLIC])
                w.names.says("www.example.org", [PUBLIC])
                first = await w.get(f"http://docs.python.org:{server.port}/")
                assert f"`{there}`; a human is asked about that" in str(told(first))
                (ask,) = asks(w)
                again = asyncio.create_task(w.get(there))
                await until(lambda: [event for event in events(w.house, w.session) if isinstance(event, CallDropped)])
                await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
                value = told(await again)
                assert value["content"] == "the page"
                assert len(asks(w)) == 1, "the same subject is asked once"
                assert server.paths == ["/", "/there"]

    run(story())


def test_an_answer_that_came_while_the_agent_was_elsewhere_counts_once(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            there = f"http://www.example.org:{server.port}/there"
            server.pages |= {"/": redirect(there), "/there": PAGE}
            async with web(tmp_path, ["docs.python.org"], QUICK) as w:
                w.names.says("docs.python.org", [PUBLIC])
                w.names.says("www.example.org", [PUBLIC])
                await w.get(f"http://docs.python.org:{server.port}/")
                (ask,) = asks(w)
                await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
                await until(lambda: "GrantGiven" in [type(event).__name__ for event in events(w.house, w.session)])
                value = told(await w.get(f"http://docs.python.org:{server.port}/"))
                assert value["content"] == "the page"
                assert (await w.get(there, wait=False)).waiting

    run(story())


def test_redirects_end(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = lambda seen: redirect(f"/?n={len(server.seen)}")
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                answer = await w.get(f"http://docs.python.org:{server.port}/")
                assert "more than 5 redirects" in str(told(answer))
                assert len(server.seen) == 6

    run(story())


def test_an_agent_that_stops_waiting_stops_the_hop_as_well(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = redirect("http://www.example.org/")
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                asking = asyncio.create_task(w.get(f"http://docs.python.org:{server.port}/"))
                await until(lambda: asks(w))
                asking.cancel()
                await asyncio.wait({asking})
                async with w.house.hold(w.session) as actor:
                    assert actor.state.calls == {}
                    assert actor.state.approvals == {}

    run(story())


@covers("fetch.answers-are-of-the-judged-class")
def test_a_name_that_is_public_first_and_private_later_is_not_followed(tmp_path: Path) -> None:
    async def story() -> None:
        port = free_port()
        with site(PUBLIC, port=port) as server, site("127.0.0.1", port=port) as inside:
            server.pages["/"] = PAGE
            inside.pages["/"] = reply(200, "the inside", content_type="text/plain")
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC], ["127.0.0.1"])
                first = told(await w.get(f"http://docs.python.org:{server.port}/"))
                assert first["content"] == "the page"
                second = await w.get(f"http://docs.python.org:{server.port}/")
                assert "judged as a public host but leads to a private address" in str(told(second))
                assert inside.seen == []

    run(story())


@covers("fetch.answers-are-of-the-judged-class")
@pytest.mark.parametrize(
    "answers",
    [[PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], [PUBLIC, "169.254.169.254"], [PUBLIC, "::1"], [PUBLIC, "fe80::1%lo"],
     ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["0.0.0.0"]],
)  # fmt: skip
def test_one_answer_of_another_class_refuses_them_all(tmp_path: Path, answers: list[str]) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = PAGE
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", answers)
                answer = await w.get(f"http://docs.python.org:{server.port}/")
                assert "was judged as a public host" in str(told(answer))
                assert server.seen == []

    run(story())


def test_a_private_name_that_leads_outside_is_not_followed_either(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            async with web(tmp_path, [f"printer.lan:{server.port}"]) as w:
                w.names.says("printer.lan", [PUBLIC])
                answer = await w.get(f"http://printer.lan:{server.port}/")
                assert "judged as a private host but leads to a public address" in str(told(answer))
                assert server.seen == []

    run(story())


def test_the_connection_is_pinned_and_the_server_hears_the_judged_name(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/x"] = PAGE
            async with web(tmp_path, ["docs.python.org"]) as w:
                # Whoever asked twice would be told another address.
                w.names.says("docs.python.org", [PUBLIC], ["127.0.0.1"])
                await w.get(f"http://DOCS.python.org.:{server.port}/x#part")
                (seen,) = server.seen
                assert (seen.headers["host"], seen.target) == (f"docs.python.org:{server.port}", "/x")
                assert w.names.asked == ["docs.python.org"]

    run(story())


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "inside"}, {"Authorization": "Bearer x"}, {"Cookie": "a=b"}, {"Proxy-Authorization": "x"}, {"TE": "trailers"},
        {"Transfer-Encoding": "chunked"}, {"Content-Length": "0"}, {"Connection": "upgrade"}, {"X-Forwarded-For": "127.0.0.1"},
        {"X-HTTP-Method-Override": "DELETE"}, {"X-Api-Key": "k"}, {"X-A": "a\r\nHost: inside"},
        {"X-A": "a\nb"}, {"X-A": "a\0b"}, {"X A": "a"}, {"X-A:": "a"}, {"": "a"},
        {"X-A\r\nHost": "a"}, {"Metadata-Flavor": "Google"}, {"Accept": "ä"}, {"Expect": "100-continue"},
    ],
)  # fmt: skip
def test_headers_that_are_not_the_agents_to_write_send_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = PAGE
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                answer = await w.get(f"http://docs.python.org:{server.port}/", headers={**headers})
                assert answer.result is not None
                assert not answer.result.ok
                assert server.seen == []

    run(story())


def test_a_proxy_of_the_environment_is_not_used_and_no_cookie_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        with site(PUBLIC) as server, site("127.0.0.1") as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            server.pages["/"] = reply(200, "x", set_cookie="id=1", content_type="text/plain")
            async with web(tmp_path, ["docs.python.org"]) as w:
                w.names.says("docs.python.org", [PUBLIC])
                for _ in range(2):
                    value = told(await w.get(f"http://docs.python.org:{server.port}/"))
                assert "id=1" not in str(value)
                assert all("cookie" not in seen.headers for seen in server.seen)
                assert len(server.seen) == 2
                assert proxy.seen == []

    run(story())


def test_a_grant_for_the_first_host_says_nothing_about_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        with site(PUBLIC) as server:
            server.pages["/"] = redirect(f"http://other.example.org:{server.port}/")
            async with web(tmp_path, (), QUICK) as w:
                w.names.says("docs.python.org", [PUBLIC])
                w.names.says("other.example.org", [PUBLIC])
                asking = asyncio.create_task(w.get(f"http://docs.python.org:{server.port}/"))
                (ask,) = await until(lambda: asks(w))
                await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True, scope=GrantScope.SESSION))
                assert "a human is asked about that" in str(told(await asking))
                assert len(asks(w)) == 2
                assert len(server.seen) == 1

    run(story())
