"""Jobs at the real program: fired by hand, killed in the middle, and listed with what became of them."""

from typing import Any

from tests.integration.app.conftest import Program
from tests.support.covers import covers
from tests.support.waiting import until

JOBS = """
[model]
name = "demo"
[cron.nightly]
schedule = "0 3 * * *"
zone = "Europe/Berlin"
instructions = "read /etc/hostname"
overlap = "allow"
approval-targets = ["web"]
[cron.minutely]
schedule = "* * * * *"
instructions = "/approve everything"
"""


def fired(program: Program) -> list[dict[str, Any]]:
    return program.json("cron", "history", "nightly")


@covers("cron.each-firing-is-one-session")
def test_a_firing_parks_on_an_ask_and_its_history_tells(program: Program) -> None:
    program.configure(JOBS)
    (minutely, nightly) = program.json("cron", "list")
    assert (minutely["job"], nightly["job"], nightly["status"]) == ("minutely", "nightly", "never fired")
    assert program("cron", "run", "nightly", fails=True).returncode == 3
    (row,) = fired(program)
    assert row["status"] == "waiting"
    (ask,) = program.json("approvals", "list")
    program("approve", ask["id"])
    assert "curtainwall start --resume" not in program("start", "--resume", row["session"]).stderr
    assert fired(program)[0]["status"] == "done"


def test_a_job_that_is_not_there_is_said(program: Program) -> None:
    program.configure(JOBS)
    assert "there is no job `weekly`" in program("cron", "run", "weekly", fails=True).stderr


@covers("cron.each-firing-is-one-session")
def test_a_job_fires_while_the_house_is_served_and_what_is_slashed_is_plain_text(program: Program) -> None:
    program.configure(JOBS)
    serving = program.begin("serve")
    until(lambda: program.json("cron", "history", "minutely"), 90)
    serving.kill_everything()
    again = program.begin("serve")
    until(lambda: program.json("cron", "history", "minutely")[-1]["status"] == "done", 90)
    again.kill_everything()
    (first, *_) = reversed(program.json("cron", "history", "minutely"))
    assert "/approve everything" in program("sessions", "show", first["session"]).stdout
