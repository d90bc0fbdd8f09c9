"""What people do on the pages: each form is one decision of the session, and whoever is late hears the truth."""

import re
import time
from pathlib import Path

import pytest

from curtainwall.model import (
    SYSTEM,
    ApprovalId,
    Batch,
    Cover,
    Grant,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantScope,
    Mode,
    Role,
    Route,
    RouteAdded,
    RuleId,
    SessionId,
    SessionOpened,
    TurnStatus,
    Write,
    project_stream,
    session_stream,
)
from curtainwall.session import lift
from tests.support.covers import covers
from tests.support.webs import Visit, Web


@covers("web.answers")
@pytest.mark.parametrize("scope", ["once", "session", "project"])
def test_a_yes_reaches_as_far_as_the_button_said(web: Web, ann: Visit, scope: str) -> None:
    session = web.session()
    approval = web.an_ask(session)
    assert ann.post(f"/asks/{session}/{approval}", answer=scope).status_code == 303
    view = web.served.work.desk.view(session)
    assert view.pending == ()
    assert [grant.scope for grant in view.grants if grant.digest is None] == ([] if scope == "once" else [GrantScope(scope)])
    page = ann.get(f"/sessions/{session}").text
    assert f"approved {'once' if scope == 'once' else f'for the {scope}'} by ann on web" in page


@covers("web.answers")
def test_a_no_carries_its_reason_to_the_agent_and_the_audit(web: Web, ann: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    ann.post(f"/asks/{session}/{approval}", answer="deny", reason="not on a Friday")
    assert "not on a Friday" in ann.get(f"/sessions/{session}").text
    web.until(lambda: "not on a Friday" in ann.get(f"/audit?session={session}").text)


@covers("web.late-answers-hear-the-truth")
def test_whoever_is_late_hears_who_was_first(web: Web, ann: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    olga = web.visit("olga")
    assert olga.post(f"/asks/{session}/{approval}", answer="deny", reason="no").status_code == 303
    late = ann.post(f"/asks/{session}/{approval}", answer="once")
    assert (late.status_code, "already answered by" in late.text, "olga on web" in late.text) == (409, True, True)


def firings(web: Web, job: str, count: int) -> list[tuple[SessionId, ApprovalId]]:
    """Return the same ask in several firings of one job, oldest first."""
    found: list[tuple[SessionId, ApprovalId]] = []
    for _ in range(count):
        session = web.session()
        web.do(web.served.wired.registry.bind(Route(channel="cron", reference=f"{job}@{session}"), session, SYSTEM))
        found.append((session, web.an_ask(session)))
        # Two of one millisecond have no order.
        asked = time.time_ns() // 1_000_000
        web.until(lambda asked=asked: time.time_ns() // 1_000_000 > asked)
    return found


def open_of(web: Web, asks: list[tuple[SessionId, ApprovalId]]) -> list[bool]:
    return [bool(web.asks(session)) for session, _ in asks]


@covers("web.answers")
def test_a_yes_in_a_session_is_for_that_session_alone(web: Web, ann: Visit) -> None:
    asks = firings(web, "nightly", 3)
    session, approval = asks[1]
    assert "upto" not in ann.get(f"/sessions/{session}").text
    assert ann.post(f"/asks/{session}/{approval}", answer="once").status_code == 303
    assert open_of(web, asks) == [True, False, True]


@covers("web.answers")
def test_a_yes_to_a_card_is_for_the_asks_that_were_on_it_and_none_that_came_since(web: Web, ann: Visit) -> None:
    asks = firings(web, "weekly", 2)
    (session, approval), last = asks[0], " ".join(asks[1])
    web.until(lambda: "asked 2 times" in ann.get("/").text)
    assert f'name="upto" value="{last}"' in ann.get("/").text
    asks += firings(web, "weekly", 1)
    assert ann.post(f"/asks/{session}/{approval}", answer="once", upto=last).status_code == 303
    assert open_of(web, asks) == [False, False, True]


def test_a_card_whose_asks_are_not_those_that_were_shown_is_looked_at_again(web: Web, ann: Visit) -> None:
    asks = firings(web, "hourly", 2)
    (session, approval), (other, settled) = asks
    ann.post(f"/asks/{other}/{settled}", answer="deny")
    again = ann.post(f"/asks/{session}/{approval}", answer="once", upto=f"{other} {settled}")
    assert (again.status_code, "look again" in again.text) == (400, True)
    assert open_of(web, asks) == [True, False]


@pytest.mark.parametrize("answer", ["", "yes", "ONCE", "always"])
def test_an_answer_that_is_none_settles_nothing(web: Web, ann: Visit, answer: str) -> None:
    session = web.session()
    approval = web.an_ask(session)
    assert ann.post(f"/asks/{session}/{approval}", answer=answer).status_code == 400
    assert web.asks(session) == [approval]


def test_an_ask_of_another_session_is_not_found_under_this_one(web: Web, ann: Visit) -> None:
    session, other = web.session(), web.session()
    approval = web.an_ask(session)
    assert ann.post(f"/asks/{other}/{approval}", answer="once").status_code == 404
    assert web.asks(session) == [approval]


@covers("approvals.old-tool-grants-lapse")
def test_a_grant_for_a_whole_tool_says_that_it_no_longer_answers_and_can_be_removed(web: Web, ann: Visit) -> None:
    session = web.session()
    house = web.served.wired.registry
    stream = project_stream(web.served.work.desk.view(session).workspace.path)
    covers_ = (Cover(role=Role.USE_TOOL, value="pay.send", rules=(RuleId("unjudged-tool"),)),)
    grant = Grant(id=GrantId("gold"), scope=GrantScope.PROJECT, covers=covers_, by=SYSTEM, at=0)
    web.do(house.stores.log.append(Batch((Write(stream, house.stores.log.head(stream), (GrantGiven(at=0, grant=grant),)),))))
    for page in ("/grants", f"/sessions/{session}"):
        assert "no longer answers: it was given for a tool without its arguments" in ann.get(page).text
    assert ann.post("/grants/gold/revoke").status_code == 303
    assert "no longer answers" not in ann.get("/grants").text


def test_a_grant_is_taken_back_from_its_session_and_from_the_list(web: Web, ann: Visit) -> None:
    session = web.session()
    for place, path in (("session", "/etc/hostname"), ("project", "/etc/hosts")):
        ann.post(f"/asks/{session}/{web.an_ask(session, path)}", answer=place)
    grants = [grant.id for grant in web.served.work.desk.view(session).grants]
    assert len(grants) == 2
    assert all(grant in ann.get("/grants").text for grant in grants)
    for grant in grants:
        assert ann.post(f"/grants/{grant}/revoke").status_code == 303
    assert web.served.work.desk.view(session).grants == ()
    assert ann.post(f"/grants/{grants[0]}/revoke").status_code == 404
    assert web.wish(session, "filesystem.read_file", path="/etc/hosts").waiting


def test_a_grant_of_a_project_in_which_no_session_works_any_more_is_taken_back(web: Web, ann: Visit) -> None:
    house, stream = web.served.wired.registry, project_stream("/srv/gone")
    covers_ = (Cover(role=Role.READ_PATH, value="/etc/hosts", rules=(RuleId("read-outside"),)),)
    grant = Grant(id=GrantId("galone"), scope=GrantScope.PROJECT, covers=covers_, by=SYSTEM, at=0)
    web.do(house.stores.log.append(Batch((Write(stream, 0, (GrantGiven(at=0, grant=grant),)),))))
    assert "galone" in ann.get("/grants").text
    assert ann.post("/grants/galone/revoke").status_code == 303
    assert house.stores.index.grants(of=stream) == []
    assert isinstance(lift(house.stores.log.read(stream)[-1]), GrantRevoked)


def test_a_session_begins_with_what_the_form_says(web: Web, ann: Visit, tmp_path: Path) -> None:
    done = ann.post("/sessions/new", name="  two\nwords ", model="demo", workspace=str(tmp_path), mode="plan", task="hello")
    assert done.status_code == 303
    session = done.headers["location"].removeprefix("/sessions/")
    view = web.served.work.desk.view(session)
    assert (view.name, view.model, view.workspace.path, view.mode) == ("two words", "demo", str(tmp_path.resolve()), Mode.PLAN)
    assert "hello" in ann.get(f"/sessions/{session}").text


@covers("web.begins-with-any-agent")
def test_the_form_offers_every_agent_and_begins_with_the_usual_one(web: Web, ann: Visit) -> None:
    form = ann.get("/sessions/new").text
    offered = re.findall(r"<option>([a-z-]+)</option>", form)
    assert offered[0] == "builtin"
    assert {"claude-code", "codex", "opencode", "gemini", "claude-local"} <= set(offered)
    session = ann.post("/sessions/new", agent="builtin").headers["location"].removeprefix("/sessions/")
    view = web.served.work.desk.view(session)
    assert (view.agent, view.model, view.mode) == ("builtin", web.served.work.desk.usual.model, Mode.DEFAULT)


@covers("web.begins-with-any-agent")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "nonsense"}, "nonsense"),
        ({"agent": "nonsense"}, "here; there are: builtin"),
        ({"agent": "codex", "model": "demo"}, "cannot use the model"),
        ({"workspace": "relative"}, "whole path"),
        ({"workspace": "/nowhere/at/all"}, "no directory"),
        ({"workspace": "~/.ssh"}, ""),
        ({"workspace": "/"}, "protected"),
        ({"workspace": "/\0"}, "whole path"),
        ({"mode": "free"}, "no such mode"),
        ({"name": "x" * 300}, "characters at most"),
    ],
)
def test_a_session_that_cannot_be_is_refused_in_words_and_nothing_is_left(web: Web, ann: Visit, fields: dict[str, str], words: str) -> None:
    before = ann.get("/sessions").text.count('class="row"')
    refused = ann.post("/sessions/new", **fields)
    assert refused.status_code in (400, 404)
    assert words in refused.text
    assert ann.get("/sessions").text.count('class="row"') == before


def test_the_forms_of_a_session_change_it(web: Web, ann: Visit) -> None:
    session = web.session(agent="builtin")
    for act, fields in (
        ("rename", {"name": "another"}),
        ("mode", {"mode": "accept-edits"}),
        ("model", {"model": "demo"}),
        ("budget", {"kind": "tokens", "limit": "3,000,000"}),
        ("rules", {"rule": "read-outside", "wish": "disable"}),
        ("compact", {"instructions": "keep names"}),
    ):
        assert ann.post(f"/sessions/{session}/{act}", **fields).status_code == 303, act
    view = web.served.work.desk.view(session)
    assert (view.name, view.mode, view.disabled) == ("another", Mode.ACCEPT_EDITS, ("read-outside",))
    assert next(it.limit for it in view.budget if it.kind == "tokens") == 3_000_000
    page = ann.get(f"/rules?session={session}").text
    assert "by ann on web" in page
    assert ann.post(f"/sessions/{session}/rules", rule="read-outside", wish="enable").status_code == 303
    forked = ann.post(f"/sessions/{session}/fork").headers["location"]
    assert ann.get(forked).status_code == 200
    assert ann.get(ann.post(f"/sessions/{session}/reset").headers["location"]).status_code == 200
    assert ann.post(f"/sessions/{session}/close", reason="done").status_code == 303
    assert web.served.work.desk.view(session).status == "closed"
    assert ann.post(f"/sessions/{session}/message", text="hello?").status_code == 303, "a message opens it again"


@covers("web.forks-belong-to-who-forks")
def test_a_fork_belongs_to_whoever_forked_and_its_asks_come_back_to_the_web(web: Web, ann: Visit) -> None:
    session = SessionId(ann.post("/sessions/new", name="to be forked").headers["location"].rpartition("/")[2])
    olga = web.visit("olga")
    forked = SessionId(olga.post(f"/sessions/{session}/fork").headers["location"].rpartition("/")[2])
    events = [it.event for it in web.served.wired.registry.feed.read(session_stream(forked))]
    (opened,) = [event for event in events if isinstance(event, SessionOpened)]
    assert (str(opened.by), opened.channel, opened.parent) == ("olga on web", "web", session)
    assert [event.route.channel for event in events if isinstance(event, RouteAdded)] == ["web"]


@pytest.mark.parametrize("limit", ["", "nan", "inf", "-1", "1e400", "many"])
def test_a_budget_that_is_no_number_is_refused(web: Web, ann: Visit, limit: str) -> None:
    session = web.session()
    assert ann.post(f"/sessions/{session}/budget", kind="dollars", limit=limit).status_code == 400


def test_a_message_is_answered_by_the_agent_of_this_process(web: Web, ann: Visit) -> None:
    session = ann.post("/sessions/new", model="demo").headers["location"].removeprefix("/sessions/")
    ann.post(f"/sessions/{session}/message", text="good morning")

    async def ended() -> TurnStatus:
        async for recorded in web.served.wired.registry.feed.follow(f"session:{session}"):  # type: ignore[arg-type] - an id of ours
            if type(recorded.event).__name__ == "TurnEnded":
                return recorded.event.status  # type: ignore[union-attr] - only a turn's end has this name
        raise AssertionError

    assert web.do(ended()) is TurnStatus.DONE
    assert "agent" in ann.get(f"/sessions/{session}").text


@pytest.mark.parametrize("text", ["/approve abc123", "/Help", "/aprove abc123", "/hlep"])
def test_a_slash_word_is_refused_also_where_it_is_misspelt(web: Web, ann: Visit, text: str) -> None:
    session = web.session()
    told = ann.post(f"/sessions/{session}/message", text=text)
    assert (told.status_code, "is for the terminal and for chats" in told.text) == (400, True)
    assert web.served.work.desk.view(session).queue == ()


@pytest.mark.parametrize("text", ["/etc/hosts is odd", " /approve abc123", "//help", "/srv"])
def test_a_path_and_what_stands_behind_a_space_are_messages(web: Web, ann: Visit, text: str) -> None:
    session = web.session()
    assert ann.post(f"/sessions/{session}/message", text=text).status_code == 303


@covers("session.closed-can-be-reopened")
def test_a_message_opens_a_closed_session_again(web: Web, ann: Visit) -> None:
    session = web.session()
    assert ann.post(f"/sessions/{session}/close", reason="enough").status_code == 303
    assert "a message opens it again" in ann.get(f"/sessions/{session}").text
    assert ann.post(f"/sessions/{session}/message", text="one more thing").status_code == 303
    assert web.served.work.desk.view(session).status != "closed"


@covers("grants.revoked-all-at-once")
def test_all_grants_of_a_session_are_revoked_by_one_button(web: Web, ann: Visit) -> None:
    session = web.session()
    ann.post(f"/asks/{session}/{web.an_ask(session)}", answer="session")
    assert web.served.work.desk.view(session).grants
    assert ann.post(f"/sessions/{session}/revoke-all").status_code == 303
    assert web.served.work.desk.view(session).grants == ()


@pytest.mark.parametrize(("word", "where"), [("/mode plan", "the side of this page does that"), ("/approve", "the inbox does that")])
def test_a_slash_word_is_answered_with_the_control_that_does_it(web: Web, ann: Visit, word: str, where: str) -> None:
    refused = ann.post(f"/sessions/{web.session()}/message", text=word)
    assert (refused.status_code, where in refused.text) == (400, True)


def test_a_slash_word_without_a_control_is_not_said_to_have_one(web: Web, ann: Visit) -> None:
    refused = ann.post(f"/sessions/{web.session()}/message", text="/skills")
    assert (refused.status_code, "does that here" in refused.text) == (400, False)


def test_the_inbox_has_the_address_that_notifications_name(ann: Visit) -> None:
    assert ann.get("/inbox").status_code == 200
