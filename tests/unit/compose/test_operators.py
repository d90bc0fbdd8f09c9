"""Who may answer an open ask, where the command line tells it: from the configuration as it is now, and where the ask is shown now."""

from collections.abc import Callable

from curtainwall.host.user import local_user
from curtainwall.model import Route
from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, Said, session_in

Run = Callable[..., Said]

OUTSIDE = read("/etc/hostname")
ME = local_user().name
ROOM = Route(channel="matrix", reference="!ops:example.org")
MATRIX = """
[matrix]
homeserver = "https://matrix.example.org"
user = "@wall:example.org"
password-env = "MATRIX_PASSWORD"
[channels.matrix]
operators = ["@olga:example.org"]
"""


def configured(places: Places, text: str) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text(text)


@covers("approvals.who-may-answer")
def test_where_only_you_may_answer_nothing_is_said_of_it(run: Run, places: Places) -> None:
    session_in(places.workspace, OUTSIDE)
    (row,) = run("approvals", "list", "--output", "json").json
    assert row["may_answer"] == {"local": [ME], "web": [ME]}
    assert "may be answered" not in run("approvals", "list").out
    assert "may be answered" not in run("approvals", "show", row["id"]).out
    run("deny", row["id"])
    (settled,) = run("approvals", "list", "--all", "--output", "json").json
    assert settled["may_answer"] == {}, "nobody answers what is settled"


@covers("approvals.who-may-answer")
def test_operators_are_named_on_the_channels_where_the_ask_is_seen(run: Run, places: Places) -> None:
    configured(places, f'{MATRIX}[channels.desk]\noperators = ["carl"]\n[web]\noperators = ["bob", "ann"]\nusers = ["uma"]\n')
    here, _ = session_in(places.workspace, OUTSIDE)
    there, _ = session_in(places.workspace, OUTSIDE, routes=(ROOM,))
    rows = {row["session"]: row for row in run("approvals", "list", "--output", "json").json}
    assert rows[here]["may_answer"] == {"local": [ME], "web": ["ann", "bob"]}, "who may only look is not named, nor who does not see it"
    assert rows[there]["may_answer"] == {"local": [ME], "matrix": ["@olga:example.org"], "web": ["ann", "bob"]}
    listed = run("approvals", "list").out
    assert "may be answered on web by ann or bob, and at its machine" in listed
    words = "may be answered on matrix by @olga:example.org, on web by ann or bob, and at its machine"
    assert words in listed
    assert words in run("approvals", "show", rows[there]["id"]).out
    run("approve", rows[there]["id"])
    assert "may be answered" not in run("approvals", "show", rows[there]["id"]).out


@covers("approvals.who-may-answer")
def test_nobody_is_named_on_a_channel_that_is_not_served(run: Run, places: Places) -> None:
    configured(places, '[channels.matrix]\noperators = ["@olga:example.org"]\n[web]\nenabled = false\noperators = ["ann"]\n')
    session_in(places.workspace, OUTSIDE, routes=(ROOM,))
    (row,) = run("approvals", "list", "--output", "json").json
    assert row["may_answer"] == {"local": [ME]}


def test_what_waits_is_listed_also_where_the_configuration_cannot_be_read(run: Run, places: Places) -> None:
    session_in(places.workspace, OUTSIDE)
    configured(places, "[wbe]\n")
    said = run("approvals", "list", "--output", "json")
    assert [row["may_answer"] for row in said.json] == [None]
    assert "who may answer is not known: " in said.err
