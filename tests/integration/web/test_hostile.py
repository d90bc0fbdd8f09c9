"""Hostile text in every field, and hostile requests to every route: nothing is executed, nothing is misread, nothing breaks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urljoin, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from curtainwall.channels.web.pages.site import Site
from curtainwall.channels.web.server import pages
from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnswerApproval,
    CallRequest,
    EndTurn,
    GrantScope,
    MessageId,
    Mode,
    RecordProgress,
    SendMessage,
    SessionId,
    StartTurn,
    TextStreamed,
    TurnId,
    TurnStatus,
    Who,
)
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.teams.callers import OutsideCaller
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import CONFIG, Visit, Web, web_at

ANN = Who(name="ann", channel="web")
MARKUP = (
    '\'"></textarea></title></script><img src=x onerror="window.pwned=1">'
    "<script>window.pwned=2</script>{{7*7}}{%x%}<svg/onload=window.pwned=3>"
)
TRICKS = "\x1b[2J\x1b]0;gone\x07\u202egpj.exe\u2066\u200b\x00\x85\u2028\r\x9b31m" + "e" + "\u0301" * 50
ENORMOUS = "A" * 300_000


PLANNED = """
[cron.hostile]
schedule = "0 0 29 2 *"
instructions = {words}

[teams.hostile]
project = {project}
description = {words}
"""


def _in_cedar(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else f"\\u{{{ord(letter):x}}}" for letter in text)


def _in_toml(text: str) -> str:
    return json.dumps(text.replace("\0", ""), ensure_ascii=True).replace("\x7f", "")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    scratch = tmp_path_factory.mktemp("hostile").resolve()
    policy = scratch / "cw" / "policy"
    policy.mkdir(parents=True, mode=0o700)
    project = scratch / "<img src=x onerror=alert(2)>"
    project.mkdir()
    (policy / "own.cedar").write_text(
        f'@id("hostile-rule") @title("{_in_cedar(MARKUP + TRICKS)}") @reason("{_in_cedar(MARKUP + TRICKS)}")\n'
        'forbid (principal, action == Action::"read-path", resource) unless { context.approved };\n'
    )
    planned = PLANNED.replace("{words}", _in_toml(MARKUP + TRICKS)).replace("{project}", _in_toml(str(project)))
    with web_at(scratch, CONFIG + planned.replace("{", "{{").replace("}", "}}")) as made:
        yield made


def hostile_session(web: Web) -> SessionId:
    """Return a session in which every text that somebody can choose is hostile."""
    send = web.served.wired.registry.send
    project = web.scratch / f"<b>{'x' * 20}"
    project.mkdir(exist_ok=True)
    name = MARKUP + TRICKS.replace("\0", "")
    model = f"script:{web.scratch}/{MARKUP.replace('/', '')}"
    wanted = SessionSpec(model, project, name, "nobody", Mode.DEFAULT)
    session = web.do(open_new(web.served.wired.sessions, wanted, Who(name="ann", channel="local")))
    file = project / "<img src=x onerror=alert(1)>.txt"
    file.write_text(MARKUP + TRICKS + ENORMOUS)
    turn = TurnId("t1")
    for number, text in enumerate((MARKUP, TRICKS, ENORMOUS, MARKUP)):
        web.do(send(session, SendMessage(by=ANN, message=MessageId(f"m{number}"), text=text)))
    web.do(send(session, StartTurn(by=SYSTEM, turn=turn)))
    for text in (MARKUP, TRICKS, f"[{MARKUP}](javascript:alert(1)) ![x](http://127.0.0.1:1/x)", ENORMOUS):
        spoke = (TextStreamed(at=1, turn=turn, text=text), AgentSpoke(at=1, turn=turn, text=text))
        web.do(send(session, RecordProgress(by=SYSTEM, events=spoke)))
    answered = web.wish(session, "filesystem.read_file", path=file.name)
    assert answered.waiting
    web.do(send(session, AnswerApproval(by=ANN, approval=web.asks(session)[0], granted=False, reason=MARKUP + TRICKS)))
    web.wish(session, "filesystem.write_file", path=f"{MARKUP[:40].replace('/', '')}", content=MARKUP + TRICKS)
    web.wish(session, "filesystem.list_directory", path=".")
    web.wish(session, f"{MARKUP}.{MARKUP}", nothing=MARKUP)
    # A grant and an open ask, both about a file with such a name.
    for number in range(2):
        assert web.wish(session, "filesystem.read_file", path=f"/etc/{number}{MARKUP.replace('/', '')}").waiting
        if not number:
            granted = AnswerApproval(by=ANN, approval=web.asks(session)[-1], granted=True, scope=GrantScope.SESSION)
            web.do(send(session, granted))
    web.do(send(session, EndTurn(by=SYSTEM, turn=turn, status=TurnStatus.FAILED, failure=MARKUP + TRICKS)))
    web.do(send(session, SendMessage(by=ANN, message=MessageId("m9"), text=MARKUP + ENORMOUS)))
    return session


def hostile_conversation(web: Web) -> None:
    """Let somebody talk to the team with the hostile words, in a thread of such a name, and let the job fire once."""
    caller = OutsideCaller(web.served.wired.teams, web.served.wired.gate, Who(name="ann"), "", Mode.BYPASS)
    told: dict[str, JsonValue] = {"team": "hostile", "question": MARKUP + TRICKS, "thread": MARKUP[:64]}
    answer = web.do(caller.request(caller.session, CallRequest(tool="teams.ask", arguments=told), wait=False))
    assert answer.waiting or answer.result is not None, answer.verdict
    ann = web.visit("ann")
    assert ann.post("/cron/hostile/run").status_code == 303


_SEEN = Path(__file__).with_name("seen.js").read_text()
_FINE = {"pwned": None, "foreign": [], "odd": [], "seven": False}


@covers("web.nothing-of-others-is-markup")
def test_a_crawler_finds_hostile_text_everywhere_and_nothing_of_it_lives(screens: Screens, web: Web) -> None:
    session = hostile_session(web)
    hostile_conversation(web)
    page = screens.window("ann", viewport={"width": 375, "height": 740})
    waiting = [
        "/",
        f"/sessions/{session}",
        f"/sessions/{session}?items=5000",
        "/sessions",
        f"/audit?days=30&session={session}",
        "/rules",
        f"/rules?session={session}",
    ]
    waiting += [
        f"/sessions/{session}/why?about=",
        "/grants?all",
        "/grants",
        "/teams",
        "/cron",
        "/usage",
        "/health",
        "/sessions/new",
        "/nowhere",
        f"/sessions?q={'%3Cscript%3E'}",
    ]
    waiting += [f"/rules/try?tool={'%3Cimg%20src%3Dx%3E'}&arguments=%7B%22path%22%3A%22%3Cscript%3E%22%7D&labels=%3Cb%3E"]
    seen: set[str] = set()
    while waiting and len(seen) < 60:
        path = waiting.pop(0)
        if path in seen or path.startswith(("/audit.", "/static")):
            continue
        seen.add(path)
        answer = page.goto(urljoin(web.base, path))
        assert answer is not None
        assert answer.status < 500, path
        found = page.evaluate(_SEEN)
        wide = found.pop("wide")
        assert found == _FINE, path
        assert wide <= 0, path
        for link in page.eval_on_selector_all("a[href]", "all => all.map((it) => it.href)"):
            told = urlsplit(link)
            if f"{told.scheme}://{told.netloc}" == web.base:
                waiting.append(f"{told.path}{f'?{told.query}' if told.query else ''}")
    assert len(seen) > 15
    for name in ("audit.jsonl", "audit.csv"):
        assert page.request.get(f"{web.base}/{name}?session={session}").status == 200


@covers("web.nothing-of-others-is-markup")
def test_what_comes_live_is_as_inert_as_what_was_loaded(screens: Screens, web: Web) -> None:
    page = screens.window()
    inbox = screens.window()
    session = web.session("quiet", channel="local")
    page.goto(f"{web.base}/sessions/{session}")
    page.wait_for_selector(".live.on")
    inbox.wait_for_selector(".live.on")
    send = web.served.wired.registry.send
    web.do(send(session, SendMessage(by=ANN, message=MessageId("m1"), text=MARKUP + TRICKS)))
    web.do(send(session, StartTurn(by=SYSTEM, turn=TurnId("t1"))))
    for text in (MARKUP + TRICKS, "the end"):
        web.do(send(session, RecordProgress(by=SYSTEM, events=(TextStreamed(at=1, turn=TurnId("t1"), text=text),))))
        web.do(send(session, RecordProgress(by=SYSTEM, events=(AgentSpoke(at=1, turn=TurnId("t1"), text=text),))))
    web.wish(session, "filesystem.read_file", path=f"/etc/{MARKUP[:60].replace('/', '')}")
    page.get_by_text("the end").wait_for()
    page.wait_for_selector(".call.asked")
    inbox.wait_for_selector(".card")
    for each in (page, inbox):
        found = each.evaluate(_SEEN)
        found.pop("wide")
        assert found == _FINE


# Requests to every route


ROUTES = sorted(
    (str(route.path), method)
    for route in pages(Site(*cast("tuple[Any, Any, Any, Any]", (None,) * 4)), dict)
    for method in route.methods or ()
    if method != "HEAD"
)
FIELDS = (
    "csrf back next code theme keys everywhere answer reason session name model workspace mode "
    "task text kind limit instructions message rule wish"
).split()
QUERIES = "q status channel items about all session kind days tool arguments project mode labels on after code next".split()
PIECES = (
    "",
    "0",
    "-1",
    "once",
    "deny",
    "default",
    "bypass",
    "tokens",
    "demo",
    "/",
    "~",
    "~/x",
    "//evil",
    "\\",
    "../..",
    "%00",
    MARKUP,
    TRICKS,
    "9" * 400,
    "{}",
    '{"a":',
    "[" * 500,
)
TEXT = st.one_of(st.sampled_from(PIECES), st.text(max_size=40))
NAMES = st.text(alphabet=st.characters(blacklist_characters="/?#", blacklist_categories=("Cs",)), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def ann(web: Web) -> Visit:
    return web.visit("ann")


@pytest.fixture(scope="module")
def a_session(web: Web) -> str:
    return web.session("to be fuzzed")


@covers("web.no-request-breaks-it")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_request_to_any_route_with_any_method_makes_it_fall_over(web: Web, ann: Visit, a_session: str, data: st.DataObject) -> None:
    path, method = data.draw(st.sampled_from(ROUTES))
    if path == "/sign-out":
        return
    filled = re.sub(r"\{\w+\}", lambda _: data.draw(NAMES), path) if data.draw(st.booleans()) else path.replace("{session}", a_session)
    filled = re.sub(r"\{\w+\}", "x", filled)
    query = data.draw(st.dictionaries(st.sampled_from(QUERIES), TEXT, max_size=4))
    form = data.draw(st.dictionaries(st.sampled_from(FIELDS), TEXT, max_size=6)) | (
        {"csrf": ann.csrf} if data.draw(st.integers(0, 4)) else {}
    )
    headers = {"Origin": web.base} | ({"HX-Request": "true"} if data.draw(st.booleans()) else {})
    method = data.draw(st.sampled_from([method] * 6 + ["GET", "POST", "PUT", "OPTIONS"]))
    if path == "/events" and method == "GET":
        with ann.client.stream("GET", "/events", params=query, headers=headers) as answer:
            assert answer.status_code < 500
        return
    if {"workspace", "model"} & set(form):
        form = {name: value for name, value in form.items() if name != "task"}
    body = {"data": form} if method not in ("GET", "OPTIONS") else {}
    answer = ann.client.request(method, _quoted(filled), params=query, headers=headers, **cast("Any", body))
    assert answer.status_code < 500, (method, filled, query, form, answer.text[:300])


def _quoted(path: str) -> str:
    return quote(path, safe="/")


def test_the_files_of_the_pages_are_all_that_is_served_as_files(ann: Visit) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd", "/static/"):
        assert ann.client.get(path).status_code in (404, 405), path
    assert ann.client.get("/static/web.css").status_code == 200
