"""The breaker: loops and storms end, reading does not count, memory stays flat."""

from collections.abc import Mapping

import pytest

from curtainwall.model import (
    SYSTEM,
    ApprovalAsked,
    ApprovalJoined,
    CallDenied,
    CallId,
    CallPermitted,
    CallRequested,
    Digest,
    DropCall,
    LoopDetected,
    MessageId,
    SendMessage,
    Subject,
)
from curtainwall.session import ASKS_KEPT, DIGESTS_KEPT, BreakerLimits, newest, remember_ask, remember_repeat
from tests.support.covers import covers
from tests.support.given import ANN, NOW, Situation, asked, finished, given, like, push, read, ready, requested, wish, write


def made(here: Situation, what: Subject, times: int) -> Situation:
    for number in range(times):
        each = wish(f"c{here.at}.{number}", what)
        here = here.happened(requested(each), finished(each, at=here.at))
    return here


LAST = wish("last", write("/srv/own/a"))
_DAY = 86_400_000


@covers("session.a-loop-is-broken")
def test_the_21st_time_within_a_minute_is_denied() -> None:
    here = made(given(ready()), LAST.subject, 19)
    here.when(requested(LAST)).then(CallRequested, CallPermitted)
    here = made(here.later(59_999), LAST.subject, 1)
    here.when(requested(LAST)).then(
        CallRequested,
        LoopDetected(at=NOW + 59_999, call=LAST.call, what="repeat", count=20),
        like(CallDenied, verdict__because=("repeated-call",)),
    )


def test_a_minute_later_the_same_call_is_fine_again() -> None:
    made(given(ready()), LAST.subject, 20).later(60_000).when(requested(LAST)).then(CallRequested, CallPermitted)


def test_whoever_goes_on_looping_stays_broken() -> None:
    here = made(given(ready()), LAST.subject, 20).later(50_000)
    here = here.happened(*(requested(LAST.again(f"d{number}")) for number in range(20)))
    here.later(30_000).when(requested(LAST)).then(CallRequested, LoopDetected, CallDenied)


def test_another_call_is_not_the_same() -> None:
    made(given(ready()), LAST.subject, 20).when(requested(wish("last", write("/srv/own/a", "y")))).then(CallRequested, CallPermitted)


@covers("session.a-loop-is-broken")
def test_plain_reads_do_not_count() -> None:
    made(given(ready()), read("/srv/own/a"), 30).when(requested(wish("last", read("/srv/own/a")))).then(CallRequested, CallPermitted)


@covers("session.a-loop-is-broken")
def test_reads_that_are_asked_for_count() -> None:
    here = given(ready()).under(breaker=BreakerLimits(asks=1_000))
    for number in range(20):
        each = wish(f"c{number}", read("/etc/a"))
        here = here.happened(asked(each), DropCall(by=SYSTEM, call=each.call, why="gone"))
    here.when(asked(wish("last", read("/etc/a")))).then(CallRequested, LoopDetected, CallDenied)


def test_reads_that_join_an_open_ask_count() -> None:
    here = given(ready(), *(asked(wish(f"c{number}", read("/etc/a"))) for number in range(19)))
    here = here.when(asked(wish("c19", read("/etc/a")))).then(CallRequested, ApprovalJoined)
    here.when(asked(wish("last", read("/etc/a")))).then(CallRequested, LoopDetected, CallDenied)


def test_a_denied_call_is_denied_for_its_own_reason() -> None:
    ssh = wish("last", write("/home/ann/.ssh/config"))
    here = given(ready(), *(requested(ssh.again(f"c{number}")) for number in range(20)))
    here.when(requested(ssh)).then(CallRequested, like(CallDenied, verdict__because=("protected-path",)))


def test_a_human_who_speaks_starts_the_count_anew() -> None:
    here = made(given(ready()), LAST.subject, 20).happened(SendMessage(by=ANN, message=MessageId("m"), text="again please"))
    here.when(requested(LAST)).then(CallRequested, CallPermitted)


def test_context_without_a_human_does_not() -> None:
    context = SendMessage(by=SYSTEM, message=MessageId("m"), text="by the way", role="context")
    made(given(ready()), LAST.subject, 20).happened(context).when(requested(LAST)).then(CallRequested, LoopDetected, CallDenied)


@covers("session.a-loop-is-broken")
def test_repeats_from_before_the_clock_was_set_back_do_not_count() -> None:
    here = made(given(ready()), LAST.subject, 20)
    here.later(-_DAY).when(requested(LAST)).then(CallRequested, CallPermitted)
    # What a small correction of the clock leaves ahead of it counts as before.
    here.later(-1_000).when(requested(LAST)).then(CallRequested, LoopDetected, CallDenied)


@covers("session.an-ask-storm-is-broken")
def test_a_storm_of_asks_is_denied() -> None:
    here = given(ready(), *(asked(wish(f"c{number}", push(f"github.com/me/{number}"))) for number in range(29)))
    here = here.when(asked(wish("c29", push("github.com/me/29")))).then(CallRequested, ApprovalAsked)
    last = wish("last", push("github.com/me/r"))
    here.when(asked(last)).then(
        CallRequested, LoopDetected(at=NOW, call=last.call, what="ask-storm", count=30), like(CallDenied, verdict__because=("ask-storm",))
    )
    for later in (60_000, -_DAY):
        here.later(later).when(asked(last)).then(CallRequested, ApprovalAsked)


def test_a_storm_does_not_keep_the_same_subject_from_joining() -> None:
    here = given(ready(), *(asked(wish(f"c{number}", push(f"github.com/me/{number}"))) for number in range(30)))
    here.when(asked(wish("last", push("github.com/me/3")))).then(CallRequested, ApprovalJoined)


# Memory


def test_only_the_newest_digests_and_times_are_remembered() -> None:
    repeats: Mapping[Digest, tuple[int, ...]] = {}
    for number in range(10 * DIGESTS_KEPT):
        repeats = remember_repeat(repeats, Digest(f"d{number}"), number)
        assert len(repeats) < 2 * DIGESTS_KEPT
    assert list(repeats)[-DIGESTS_KEPT:] == [f"d{number}" for number in range(9 * DIGESTS_KEPT, 10 * DIGESTS_KEPT)]
    for number in range(1_000):
        repeats = remember_repeat(repeats, Digest("same"), number)
    assert repeats[Digest("same")][-1] == 999
    assert len(repeats[Digest("same")]) < 100
    assert list(repeats)[-1] == "same"


def test_only_the_newest_asks_are_remembered() -> None:
    asks: tuple[int, ...] = ()
    for number in range(1_000):
        asks = remember_ask(asks, number)
    assert list(asks) == list(range(1_000 - ASKS_KEPT, 1_000))


@pytest.mark.parametrize("size", range(9))
def test_the_oldest_are_forgotten_once_there_are_twice_as_many(size: int) -> None:
    held = newest({number: str(number) for number in range(size)}, 4)
    assert list(held) == (list(range(size)) if size < 8 else [4, 5, 6, 7])


def test_the_breaker_names_the_call_it_stops() -> None:
    here = made(given(ready()), LAST.subject, 20).when(requested(LAST))
    assert {event.call for event in here.events if isinstance(event, (LoopDetected, CallDenied))} == {CallId("last")}
