"""Jobs and firings as lists show them."""

from curtainwall.channels.cron import Firing, FiringRow, Job, JobHistory, JobRow, Schedule, firing_rows, job_rows
from curtainwall.model import SessionId

NIGHTLY = Job("nightly", Schedule.parse("0 3 * * *", "UTC"))
HOUR = 3_600_000
ONE, TWO = SessionId("s1"), SessionId("s2")


def status_of(session: SessionId) -> str:
    return {"s1": "done", "s2": "waiting"}[session]


def test_a_job_tells_when_it_is_due_next_and_how_its_last_firing_stands() -> None:
    past = JobHistory(fired={Firing("nightly", 3 * HOUR): ONE, Firing("nightly", 27 * HOUR): TWO})
    assert job_rows([NIGHTLY], {"nightly": past}, status_of, 28 * HOUR) == [
        JobRow("nightly", "0 3 * * *", "UTC", 51 * HOUR, "waiting", 27 * HOUR, TWO)
    ]
    assert job_rows([NIGHTLY], {}, status_of, 0) == [JobRow("nightly", "0 3 * * *", "UTC", 3 * HOUR, "never fired")]


def test_firings_come_last_first_with_the_session_or_the_reason() -> None:
    fired = {Firing("nightly", 1): ONE, Firing("nightly", 3, by_hand=True): ONE, Firing("nightly", 3): TWO}
    past = JobHistory(fired=fired, skipped={2: "nobody was there", 3: "a reason that no longer counts"}, queued=[4])
    told = {"nightly": past, "other": JobHistory(fired={Firing("other", 5): ONE})}
    assert firing_rows(told, status_of, 10, "nightly") == [
        FiringRow(4, "nightly", "queued", why="the one before is not over"),
        FiringRow(3, "nightly", "done", ONE, "by hand"),
        FiringRow(3, "nightly", "waiting", TWO),
        FiringRow(2, "nightly", "skipped", why="nobody was there"),
        FiringRow(1, "nightly", "done", ONE),
    ]
    assert [it.due for it in firing_rows(told, status_of, 2)] == [5, 4]


def test_a_firing_that_was_skipped_for_another_names_its_session() -> None:
    told = {"nightly": JobHistory(skipped={1: "the one before is not over: session s2", 2: "it could not begin: no session s2"})}
    assert [it.before for it in firing_rows(told, status_of, 10)] == [None, TWO]
