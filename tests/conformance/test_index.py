"""What every list promises: the rows that the log tells, newest first."""

from dataclasses import asdict, replace

import pytest

from curtainwall.model import (
    HOUSE,
    AnyEvent,
    ApprovalId,
    ApprovalQuery,
    Label,
    LabelSource,
    MessageId,
    Mode,
    ModeChanged,
    ModelChanged,
    PeerAnswer,
    PeerAnswerTaken,
    PeerStatus,
    Route,
    RouteAdded,
    RouteRemoved,
    RouteSet,
    SessionClosed,
    SessionDeleted,
    SessionId,
    SessionQuery,
    SessionReady,
    SessionRenamed,
    ShownAt,
    StreamId,
    TurnResumed,
    TurnStatus,
    project_stream,
)
from tests.support.stores import (
    ANN,
    COVER,
    NOON,
    TURN,
    A,
    B,
    Store,
    answered,
    asked,
    batch,
    expired,
    finished,
    granted,
    labelled,
    opened,
    permitted,
    requested,
    revoked,
    run,
    spoke,
    turn_ended,
    turn_started,
    used,
    withdrawn,
)

READY = SessionReady(at=NOON)
RESUMED = TurnResumed(at=NOON, turn=TURN)
CLOSED = SessionClosed(at=NOON, reason="done", by=ANN)


def write(store: Store, stream: StreamId, *events: AnyEvent) -> None:
    """Append to wherever the stream ends."""
    run(store.log.append(batch(stream, store.log.head(stream), *events)))


def ids(store: Store, query: SessionQuery) -> list[str]:
    """Return the listed sessions."""
    return [row.session for row in store.index.sessions(query)]


def test_a_session_is_listed_with_what_it_was_opened_with(store: Store) -> None:
    write(store, A, opened("a", parent=SessionId("z")))
    (row,) = store.index.sessions(SessionQuery())
    assert asdict(row) == {
        "session": "a",
        "name": "name of a",
        "agent": "builtin",
        "model": "demo",
        "channel": "terminal",
        "status": "opening",
        "mode": "default",
        "workspace": "/work/a",
        "own_workspace": True,
        "created": NOON,
        "changed": NOON,
        "turns": 0,
        "pending": 0,
        "labels": (),
        "parent": "z",
        "ending": "done",
    }


@pytest.mark.parametrize(
    ("events", "stands"),
    [
        ((), "opening"),
        ((READY,), "ready"),
        ((READY, turn_started()), "working"),
        ((READY, turn_started(), turn_ended(TurnStatus.WAITING)), "waiting"),
        ((READY, turn_started(), turn_ended(TurnStatus.WAITING), RESUMED), "working"),
        ((READY, turn_started(), turn_ended()), "ready"),
        ((READY, turn_started(), turn_ended(TurnStatus.FAILED)), "failed"),
        ((READY, turn_started(), turn_ended(TurnStatus.INTERRUPTED)), "interrupted"),
        ((READY, turn_started(), turn_ended(TurnStatus.FAILED), turn_started("t2")), "working"),
        ((READY, turn_started(), turn_ended(TurnStatus.FAILED), CLOSED), "closed"),
        ((READY, turn_started(), turn_ended(TurnStatus.FAILED), requested("c1"), asked("ap1", "c1")), "waiting"),
        ((READY, CLOSED), "closed"),
        ((READY, turn_started(), CLOSED, turn_ended()), "closed"),
    ],
)
def test_the_status_is_what_happened_last(store: Store, events: tuple[AnyEvent, ...], stands: str) -> None:
    write(store, A, opened("a"), *events)
    (row,) = store.index.sessions(SessionQuery())
    assert row.stands == stands
    assert row.status == ("ready" if stands in ("failed", "interrupted") else stands)
    assert ids(store, SessionQuery(status=row.status)) == ["a"]
    assert {how: count for how, count in store.tallies.tally().sessions.items() if count} == {row.status: 1}


def test_name_mode_model_turns_labels_and_last_change_follow_the_log(store: Store) -> None:
    write(store, A, opened("a"), turn_started("t1"), turn_ended(turn="t1"), turn_started("t2"), labelled("untrusted-content"))
    write(store, A, SessionRenamed(at=NOON, name="new", by=ANN), ModeChanged(at=NOON, mode=Mode.PLAN, by=ANN))
    write(store, A, ModelChanged(at=NOON, model="other", by=ANN), permitted("c1", "sensitive", "untrusted-content"), spoke(at=NOON + 77))
    (row,) = store.index.sessions(SessionQuery())
    assert (row.name, row.mode, row.model, row.turns, row.changed) == ("new", "plan", "other", 2, NOON + 77)
    assert row.labels == ("sensitive", "untrusted-content")


def test_labels_that_came_with_a_teams_answer_are_listed(store: Store) -> None:
    source = LabelSource(label=Label("sensitive"), origin="team backend")
    answer = PeerAnswer(message=MessageId("m1"), status=PeerStatus.DONE, text="hello", labels=(source,))
    write(store, A, opened("a"), PeerAnswerTaken(at=NOON, team="backend", answer=answer))
    (row,) = store.index.sessions(SessionQuery())
    assert row.labels == ("sensitive",)


def test_pending_counts_open_approvals_of_that_session(store: Store) -> None:
    write(store, A, opened("a"), requested("c1"), asked("ap1", "c1"), requested("c2"), asked("ap2", "c2"), answered("ap1"))
    write(store, B, opened("b", NOON - 1), requested("c3"), asked("ap3", "c3"), expired("ap3"))
    assert [(row.session, row.pending) for row in store.index.sessions(SessionQuery())] == [("a", 1), ("b", 0)]
    agent = store.index.sessions(SessionQuery())[0].agent
    assert ids(store, SessionQuery(without_agent=agent)) == ["a"], "what waits for a human is listed all the same"


def test_sessions_come_newest_first_and_are_cut_at_the_limit(store: Store) -> None:
    for n in (3, 1, 2):
        write(store, StreamId(f"session:s{n}"), opened(f"s{n}", NOON + n))
    assert ids(store, SessionQuery()) == ["s3", "s2", "s1"]
    assert ids(store, SessionQuery(limit=2)) == ["s3", "s2"]
    assert ids(store, SessionQuery(limit=0)) == []


def test_filters_narrow_the_list(store: Store) -> None:
    write(store, StreamId("session:a1"), opened("a1", NOON, agent="claude", channel="web", name="Fix the Roof"), READY)
    write(store, StreamId("session:a2"), opened("a2", NOON + 1, agent="claude"), spoke(at=NOON + 50))
    write(store, StreamId("session:b1"), opened("b1", NOON + 2, name="100% sure_"))
    assert ids(store, SessionQuery(status="ready")) == ["a1"]
    assert ids(store, SessionQuery(agent="claude")) == ["a2", "a1"]
    assert ids(store, SessionQuery(agent="claude", channel="web")) == ["a1"]
    assert ids(store, SessionQuery(since=NOON + 2)) == ["b1", "a2"]
    assert ids(store, SessionQuery(before=NOON + 2)) == ["a1"]
    assert ids(store, SessionQuery(prefix="a")) == ["a2", "a1"]
    assert ids(store, SessionQuery(without_agent="claude")) == ["b1"]
    assert ids(store, SessionQuery(text="ROOF")) == ["a1"]
    assert ids(store, SessionQuery(text="/work/B1")) == ["b1"]
    assert ids(store, SessionQuery(text="0% s")) == ["b1"]
    assert ids(store, SessionQuery(text="%")) == ["b1"]
    assert ids(store, SessionQuery(workspace="/work/b1")) == ["b1"]
    assert ids(store, SessionQuery(workspace="/work")) == []


def test_sessions_are_found_that_touched_more_than_is_known(store: Store) -> None:
    write(store, StreamId("session:a1"), opened("a1", NOON, agent="claude"), labelled("sensitive"))
    write(store, StreamId("session:a2"), opened("a2", NOON + 1), labelled("sensitive"), labelled("untrusted-content"))
    write(store, StreamId("session:a3"), opened("a3", NOON + 2))
    assert ids(store, SessionQuery(labels_beyond=frozenset())) == ["a2", "a1"]
    assert ids(store, SessionQuery(labels_beyond=frozenset(), agent="claude")) == ["a1"]
    assert ids(store, SessionQuery(labels_beyond=frozenset({"sensitive"}))) == ["a2"]
    assert ids(store, SessionQuery(labels_beyond=frozenset({"sensitive", "untrusted-content", "other"}))) == []


def test_sessions_and_approvals_are_counted_by_how_they_stand(store: Store) -> None:
    empty = store.tallies.tally()
    assert (sum(empty.sessions.values()), sum(empty.asks.values()), empty.oldest_ask) == (0, 0, None)
    write(store, A, opened("a"), READY, requested("c1"), *(asked(f"ap{n}", "c1", at=NOON + n) for n in range(4)))
    write(store, A, answered("ap0", granted=True), expired("ap1"))
    write(store, B, opened("b"), READY)
    write(store, StreamId("session:c"), opened("c"), READY, turn_started(), requested("c1"), asked("ap9", "c1", at=NOON + 9))
    write(store, StreamId("session:d"), opened("d"), READY, CLOSED)
    tally = store.tallies.tally()
    assert {how: count for how, count in tally.sessions.items() if count} == {"waiting": 1, "ready": 1, "working": 1, "closed": 1}
    assert {how: count for how, count in tally.asks.items() if count} == {"open": 3, "granted": 1, "expired": 1}
    assert tally.oldest_ask == NOON + 2


def test_an_open_approval_is_listed_with_its_tool_and_covers(store: Store) -> None:
    write(store, A, opened("a"), requested("c1", "fetch.get"), asked("ap1", "c1", deadline=NOON + 1000))
    (row,) = store.index.approvals(ApprovalQuery())
    assert (row.approval, row.session, row.tool, row.shown, row.digest) == ("ap1", "a", "fetch.get", "read `/etc/hosts`?", "digest of c1")
    assert (row.covers, row.asked, row.deadline, row.status) == ((COVER,), NOON, NOON + 1000, "open")
    assert (row.settled, row.settled_by, row.reason) == (None, "", "")


def test_an_approval_asked_anew_later_still_knows_its_tool(store: Store) -> None:
    write(store, A, opened("a"), requested("c1", "fetch.get"))
    write(store, A, asked("ap1", "c1"))
    write(store, A, withdrawn("ap1"), asked("ap2", "c1", at=NOON + 8))
    assert [(row.approval, row.tool) for row in store.index.approvals(ApprovalQuery())] == [("ap2", "fetch.get")]


def test_a_settled_approval_tells_how_by_whom_and_when(store: Store) -> None:
    write(store, A, opened("a"), requested("c1"))
    write(store, A, *(asked(f"ap{n}", "c1", at=NOON + n) for n in range(4)))
    write(store, A, answered("ap0", granted=True), answered("ap1", granted=False), expired("ap2"), withdrawn("ap3"))
    rows = store.index.approvals(ApprovalQuery(open_only=False))
    assert [(row.approval, row.status, row.settled, row.settled_by, row.reason) for row in rows] == [
        ("ap3", "withdrawn", NOON + 7, "", "changed meanwhile"),
        ("ap2", "expired", NOON + 6, "", ""),
        ("ap1", "denied", NOON + 5, "bob on matrix", "looked fine"),
        ("ap0", "granted", NOON + 5, "bob on matrix", "looked fine"),
    ]
    assert store.index.approvals(ApprovalQuery()) == []


def test_approvals_are_found_by_session_and_by_id(store: Store) -> None:
    write(store, A, opened("a"), requested("c1"), asked("ap1"), asked("ap2", at=NOON + 1))
    write(store, B, opened("b"), requested("c1"), asked("ap1", at=NOON + 2))
    assert [row.session for row in store.index.approvals(ApprovalQuery(approval=ApprovalId("ap1")))] == ["b", "a"]
    assert [row.approval for row in store.index.approvals(ApprovalQuery(session=SessionId("a")))] == ["ap2", "ap1"]
    assert len(store.index.approvals(ApprovalQuery(limit=1))) == 1


def test_open_approvals_with_a_deadline_are_found(store: Store) -> None:
    write(store, A, opened("a"), requested("c1"), asked("ap1"), asked("ap2", deadline=NOON), asked("ap3", deadline=NOON))
    write(store, A, expired("ap3"))
    assert [row.approval for row in store.index.approvals(ApprovalQuery(with_deadline=True))] == ["ap2"]
    assert store.index.approvals(ApprovalQuery(session=SessionId("b"), with_deadline=True)) == []


def test_all_approvals_are_listed_where_no_limit_is_set_and_briefly_where_that_is_enough(store: Store) -> None:
    many = 250
    asks = [asked(f"ap{number}", at=NOON + number) for number in range(many)]
    write(store, A, opened("a"), requested("c1"), *asks)
    assert len(store.index.approvals(ApprovalQuery())) < many
    whole, brief = store.index.approvals(ApprovalQuery(limit=None)), store.index.approvals(ApprovalQuery(limit=None, brief=True))
    assert [row.approval for row in whole] == [ask.approval for ask in reversed(asks)]
    assert brief == [replace(row, shown="", covers=()) for row in whole]


def test_grants_of_sessions_and_projects_stand_until_they_are_revoked_or_used(store: Store) -> None:
    project = project_stream("/p")
    write(store, A, opened("a"), granted("g1"), granted("g2", NOON + 1), granted("g3", NOON + 2))
    write(store, project, granted("g4", NOON + 3))
    write(store, A, revoked("g1"), used("g2", NOON + 9))
    assert [(row.grant.id, row.stream) for row in store.index.grants()] == [("g4", project), ("g3", A)]
    assert [row.grant.id for row in store.index.grants(of=A)] == ["g3"]
    assert [row.grant.id for row in store.index.grants(of=B)] == []
    every = store.index.grants(all_of_them=True)
    assert [(row.grant.id, row.revoked) for row in every] == [("g4", None), ("g3", None), ("g2", NOON + 9), ("g1", NOON + 3)]
    assert every[0].grant == granted("g4", NOON + 3).grant


def test_events_of_unknown_sessions_and_calls_change_nothing(store: Store) -> None:
    write(store, A, READY, turn_started(), labelled("x"), answered("nope"), finished("nope"), revoked("nope"))
    write(store, project_stream("/p"), opened("a"), requested())
    assert store.index.sessions(SessionQuery()) == []
    assert store.index.approvals(ApprovalQuery(open_only=False)) == []


def leads(reference: str, session: str | None) -> RouteSet:
    """Return that a room leads to a session from now on."""
    return RouteSet(at=NOON, route=room(reference), session=None if session is None else SessionId(session), by=ANN)


def room(reference: str) -> Route:
    """Return a room of a channel."""
    return Route(channel="matrix", reference=reference)


def test_a_place_leads_to_the_session_that_was_set_last_and_a_session_knows_its_places(store: Store) -> None:
    write(store, HOUSE, leads("!b", "a"), leads("!a", "a"), leads("!c", "a"), leads("!c", "b"))
    assert store.index.session_at(room("!c")) == "b"
    assert store.index.routes_to(SessionId("a")) == [room("!a"), room("!b")]
    write(store, HOUSE, leads("!b", None))
    assert store.index.session_at(room("!b")) is None
    assert store.index.routes_to(SessionId("a")) == [room("!a")]


def test_no_place_leads_to_a_deleted_session(store: Store) -> None:
    write(store, HOUSE, leads("!a", "a"), leads("!b", "b"))
    write(store, HOUSE, SessionDeleted(at=NOON, session=SessionId("a"), name="a", entries=1, head="", by=ANN))
    assert store.index.session_at(room("!a")) is None
    assert store.index.session_at(room("!b")) == "b"


def test_only_the_house_says_where_a_place_leads(store: Store) -> None:
    write(store, A, opened("a"), leads("!a", "a"))
    assert store.index.session_at(room("!a")) is None


def test_asks_are_found_by_the_places_where_their_session_shows_them(store: Store) -> None:
    here, there = (RouteAdded(at=NOON, route=room(reference), by=ANN) for reference in ("!a", "!b"))
    write(store, A, opened("a"), here, there, requested("c1"), asked("ap1", "c1"))
    write(store, B, opened("b"), there, requested("c1"), asked("ap2", "c1", at=NOON + 1))

    def at(channel: str, reference: str | None = None) -> list[str]:
        return [row.approval for row in store.index.approvals(ApprovalQuery(shown_at=ShownAt(channel, reference)))]

    assert (at("matrix"), at("matrix", "!a"), at("matrix", "!b")) == (["ap2", "ap1"], ["ap1"], ["ap2", "ap1"])
    assert (at("web"), at("matrix", "!c")) == ([], [])
    write(store, A, RouteRemoved(at=NOON, route=room("!b"), by=ANN))
    assert at("matrix", "!b") == ["ap2"]


def test_sessions_are_found_by_the_places_where_their_asks_are_shown(store: Store) -> None:
    here, there = (RouteAdded(at=NOON, route=room(reference), by=ANN) for reference in ("!a", "!b"))
    write(store, A, opened("a"), here, there)
    write(store, B, opened("b"), there)

    def at(channel: str, reference: str | None = None, agent: str | None = None) -> set[str]:
        return {row.session for row in store.index.sessions(SessionQuery(agent=agent, shown_at=ShownAt(channel, reference)))}

    assert (at("matrix"), at("matrix", "!a"), at("matrix", "!b")) == ({"a", "b"}, {"a"}, {"a", "b"})
    assert (at("web"), at("matrix", "!c"), at("matrix", "!a", "nobody's")) == (set(), set(), set())
    write(store, A, RouteRemoved(at=NOON, route=room("!b"), by=ANN))
    assert at("matrix", "!b") == {"b"}
