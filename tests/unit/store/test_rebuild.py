"""Lists made anew from the log are the lists that were kept with it, on disk and in memory."""

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtainwall.model import (
    AnyEvent,
    ApprovalQuery,
    Mode,
    ModeChanged,
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
    TurnStatus,
    decode_event,
)
from curtainwall.store import MemoryStore, SqliteStore
from tests.support.stores import (
    ANN,
    NOON,
    StillClock,
    Store,
    answered,
    asked,
    batch,
    denied,
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

STREAMS = st.sampled_from([StreamId("session:a"), StreamId("session:b"), StreamId("project:/p"), StreamId("house")])
CALLS = st.sampled_from(["c1", "c2"])
APPROVALS = st.sampled_from(["ap1", "ap2", "ap3"])
GRANTS = st.sampled_from(["g1", "g2"])
ROOMS = st.sampled_from([Route(channel="web", reference="one"), Route(channel="web", reference="two")])
SESSIONS = st.sampled_from([SessionId("a"), SessionId("b"), None])
TIMES = st.integers(NOON, NOON + 50)
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(opened, st.sampled_from(["a", "b"]), TIMES),
    st.builds(lambda at: SessionReady(at=at), TIMES),
    st.builds(lambda name: SessionRenamed(at=NOON, name=name, by=ANN), st.text(max_size=5)),
    st.builds(lambda mode: ModeChanged(at=NOON, mode=mode, by=ANN), st.sampled_from(Mode)),
    st.just(SessionClosed(at=NOON, reason="", by=ANN)),
    st.just(turn_started()),
    st.builds(turn_ended, st.sampled_from(TurnStatus)),
    st.builds(labelled, st.sampled_from(["sensitive", "untrusted-content", 'odd "label"'])),
    st.builds(requested, CALLS, st.sampled_from(["fetch.get", "shell.run"])),
    st.builds(denied, CALLS),
    st.builds(permitted, CALLS, st.sampled_from(["sensitive", "x"])),
    st.builds(finished, CALLS),
    st.builds(asked, APPROVALS, CALLS, TIMES),
    st.builds(answered, APPROVALS, st.booleans()),
    st.builds(expired, APPROVALS),
    st.builds(withdrawn, APPROVALS),
    st.builds(granted, GRANTS, TIMES),
    st.builds(revoked, GRANTS, TIMES),
    st.builds(used, GRANTS, TIMES),
    st.builds(lambda room, session: RouteSet(at=NOON, route=room, session=session, by=ANN), ROOMS, SESSIONS),
    st.builds(lambda session: SessionDeleted(at=NOON, session=session, name="", entries=1, head="", by=ANN), st.just(SessionId("a"))),
    st.builds(lambda room: RouteAdded(at=NOON, route=room, by=ANN), ROOMS),
    st.builds(lambda room: RouteRemoved(at=NOON, route=room, by=ANN), ROOMS),
    st.builds(spoke, st.text(max_size=20), TIMES),
)
BATCHES = st.lists(st.tuples(STREAMS, st.lists(EVENTS, min_size=1, max_size=6)), max_size=12)


def shown(store: Store) -> object:
    """Return everything that the lists show."""
    approvals = store.index.approvals(ApprovalQuery(open_only=False))
    routes = [list(store.index.routes_to(SessionId(session))) for session in ("a", "b")]
    places = (ShownAt("web"), ShownAt("web", "one"), ShownAt("web", "two"))
    there = [list(store.index.approvals(ApprovalQuery(shown_at=place, open_only=False))) for place in places]
    return list(store.index.sessions(SessionQuery())), list(approvals), list(store.index.grants(all_of_them=True)), routes, there


@settings(max_examples=60, deadline=None)
@given(BATCHES)
@example([(StreamId("session:b"), [SessionReady(at=NOON), opened("b", NOON)])])
def test_rebuilt_lists_equal_the_live_ones_and_those_in_memory(batches: list[tuple[StreamId, list[AnyEvent]]]) -> None:
    async def write(store: Store) -> None:
        for stream, events in batches:
            await store.log.append(batch(stream, store.log.head(stream), *events))

    async def compare() -> None:
        memory = MemoryStore(StillClock())
        await write(memory)
        with tempfile.TemporaryDirectory() as home:
            async with SqliteStore.open(Path(home), StillClock()) as store:
                await write(store)
                live = shown(store)
                assert live == shown(memory)
                await store.rebuild(lambda entry: decode_event(entry.kind, entry.payload))
                assert shown(store) == live
                assert [entry.hash for entry in store.log.read(StreamId("session:a"))] == [
                    entry.hash for entry in memory.log.read(StreamId("session:a"))
                ]
                assert store.verify() is None

    run(compare())
