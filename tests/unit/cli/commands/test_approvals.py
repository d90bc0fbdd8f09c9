"""Approvals, grants and the audit, as commands of the program."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from curtainwall.cli.main import PIPE_CLOSED
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.files.tail import last_lines, lines_as_they_come
from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, Said, session_in
from tests.support.many_asks import ask_often

Run = Callable[..., Said]
OUTSIDE = read("/etc/hostname")


def test_the_card_is_listed_inert_and_whole(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, read("/etc/\x1b[2Jx"))
    (row,) = run("approvals", "list", "--output", "json").json
    assert (row["session"], row["status"], row["tool"]) == (session, "open", "filesystem.read_file")
    assert row["covers"] == [{"role": "read-path", "value": "/etc/\x1b[2Jx", "rules": ["read-outside"]}]
    told = run("approvals", "list", "--session", session).out
    assert row["id"] in told
    assert "\x1b" not in told


@covers("asks.all-are-reachable")
def test_every_open_ask_is_listed_however_many_there_are_and_a_list_that_is_cut_says_so(run: Run, places: Places) -> None:
    session_in(places.workspace)

    async def ask() -> list[str]:
        async with open_gate(load_setup()) as wired:
            return [approval for _, approval in await ask_often(wired.store.log, 1_100)]

    asks = asyncio.run(ask())
    listed = run("approvals", "list", "--output", "json")
    assert [row["id"] for row in listed.json] == asks[::-1]
    assert listed.err == ""
    some = run("approvals", "list", "--limit", "20", "--output", "json")
    assert [row["id"] for row in some.json] == asks[:-21:-1]
    assert "1080 older ones are not listed; `--limit 1100` lists them all" in some.err
    everything = run("approvals", "list", "--all")
    assert "100 older ones are not listed; `--limit 1100` lists them all" in everything.err
    assert run("deny", asks[0]).code == 0


def test_a_session_grant_is_told_listed_and_revoked(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE)
    approval = run("approvals", "list", "--output", "json").json[0]["id"]
    granted = run("approve", approval, "--for", "session", "--output", "json").json
    assert (granted["status"], granted["scope"], granted["session"]) == ("granted", "session", session)
    (row,) = run("grants", "list", "--output", "json").json
    assert (row["id"], row["stream"]) == (granted["grant"], f"session:{session}")
    assert granted["grant"] in run("grants", "list").out
    assert run("grants", "revoke", granted["grant"]).code == 0
    assert run("grants", "list", "--output", "json").json == []
    (ended,) = run("grants", "list", "--all", "--output", "json").json
    told = run("grants", "list", "--all").out
    assert (ended["revoked"] is not None, "until" in told, "stands" in told) == (True, True, False)
    again = run("grants", "revoke", granted["grant"])
    assert again.code == 1
    assert "does not stand any more" in again.err


def test_the_beginning_of_an_id_is_enough_to_take_an_answer_back(run: Run, places: Places) -> None:
    session_in(places.workspace, OUTSIDE, read("/etc/passwd"))
    for row in run("approvals", "list", "--output", "json").json:
        run("approve", row["id"], "--for", "session")
    first, second = sorted(row["id"] for row in run("grants", "list", "--output", "json").json)
    common = next(place for place in range(len(first)) if first[place] != second[place])
    for text, complaint in (
        (first[:common], "more than one grant begins with"),
        ("zz", f"no grant `zz` in `{places.home}`"),
        ("", "no grant ``"),
    ):
        said = run("grants", "revoke", text)
        assert (said.code, complaint in said.err) == (1, True), said.err
    assert run("grants", "revoke", first[: common + 1], "--output", "json").json == {"grant": first, "revoked": True}
    assert run("grants", "revoke", second[:1]).out == f"revoked {second}\n", "only what stands is meant"
    assert "does not stand any more" in run("grants", "revoke", first).err


def test_an_answer_to_what_is_not_here_says_which_home_was_searched(run: Run, places: Places) -> None:
    for words in (("approve", "abcdef"), ("deny", "abcdef"), ("sessions", "show", "abcdef")):
        said = run(*words)
        assert (said.code, f"`abcdef` in `{places.home}`" in said.err) == (1, True), said.err
        assert "CURTAINWALL_HOME chooses another home" in said.err


def test_an_approval_of_another_session_is_told_with_its_own(run: Run, places: Places) -> None:
    asking, _ = session_in(places.workspace, OUTSIDE)
    other, _ = session_in(places.workspace)
    approval = run("approvals", "list", "--output", "json").json[0]["id"]
    said = run("approve", approval, "--session", other)
    assert (said.code, f"is not of session `{other}`; leave --session out, or name one of `{asking}`" in said.err) == (1, True)
    assert "there is no session `zz`" in run("approve", approval, "--session", "zz").err
    assert run("approve", approval, "--session", asking).code == 0


def test_a_project_grant_stands_for_the_next_session_there(run: Run, places: Places) -> None:
    session_in(places.workspace, OUTSIDE, own=False)
    approval = run("approvals", "list", "--output", "json").json[0]["id"]
    assert "for the project" in run("approve", approval, "--for", "project").out
    (row,) = run("grants", "list", "--output", "json").json
    assert row["stream"] == f"project:{places.workspace}"
    _, (answer,) = session_in(places.workspace, OUTSIDE, own=False)
    assert answer.result is not None
    run("grants", "revoke", row["id"])
    _, (answer,) = session_in(places.workspace, OUTSIDE, own=False)
    assert answer.waiting


def test_verify_passes_and_names_what_was_changed(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE, read("a"))
    assert run("audit", "verify").code == 0
    told = run("audit", "verify", "--session", session, "--output", "json").json
    assert (told["ok"], told["fault"]) == (True, None)
    audit = places.home / "sessions" / session / "audit.jsonl"
    lines = audit.read_text().splitlines(keepends=True)
    audit.write_text("".join([lines[0].replace("/etc/hostname", "/etc/hostnam3"), *lines[1:]]))
    said = run("audit", "verify")
    assert said.code == 1
    assert "audit line 1" in said.out
    assert "edited" in said.out


def test_heads_that_were_kept_show_an_older_copy(run: Run, places: Places, tmp_path: Path) -> None:
    session_in(places.workspace)
    kept = tmp_path / "heads"
    kept.write_text(run("audit", "head").out)
    assert run("audit", "verify", "--against", kept).code == 0
    digest, seq, stream = kept.read_text().split(" ", 2)
    kept.write_text(f"{digest} {int(seq) + 1} {stream}")
    said = run("audit", "verify", "--against", kept)
    assert said.code == 1
    assert "older copy" in said.out
    kept.write_text("nonsense\n")
    assert run("audit", "verify", "--against", kept).code == 2


@covers("audit.files-are-told-anew")
def test_an_audit_file_that_is_wrong_is_told_anew_from_the_log_and_kept_beside_it(run: Run, places: Places) -> None:
    one, other = (session_in(places.workspace, OUTSIDE, read("a"))[0] for _ in range(2))
    audit, gone = (places.home / "sessions" / session / "audit.jsonl" for session in (one, other))
    written, untouched = audit.read_text(), gone.read_text()
    audit.write_text(written.replace("hostname", "shadow"))
    gone.unlink()
    said = run("audit", "verify")
    assert (said.code, "curtainwall audit rebuild" in said.err) == (1, True)
    told = run("audit", "rebuild", "--output", "json").json
    assert set(told["rebuilt"]) == {one, other}
    [kept] = told["kept"]
    assert Path(kept).read_text() == written.replace("hostname", "shadow"), "evidence stays"
    assert (audit.read_text(), gone.read_text()) == (written, untouched)
    assert run("audit", "verify").code == 0
    assert "0 audit files" in run("audit", "rebuild").out


@covers("audit.files-are-told-anew")
def test_nothing_is_told_anew_from_a_log_that_is_not_what_was_written(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE)
    with closing(sqlite3.connect(places.home / "curtainwall.db")) as db:
        db.execute("UPDATE entry SET payload = CAST(replace(CAST(payload AS TEXT), 'hostname', 'shadow') AS BLOB)")
        db.commit()
    audit = places.home / "sessions" / session / "audit.jsonl"
    audit.write_text("")
    said = run("audit", "rebuild")
    assert (said.code, "nothing is told from it" in said.err) == (1, True)
    assert audit.read_text() == ""


def test_the_tail_of_the_audit_is_whole_lines(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE, read("a"))
    everything = run("audit", "tail", session, "-n", "100").out
    assert everything == (places.home / "sessions" / session / "audit.jsonl").read_text()
    assert [json.loads(line)["type"] for line in run("audit", "tail", "-n", "2").out.splitlines()] == ["CallPermitted", "CallFinished"]
    assert run("audit", "tail", "-n", "0") == Said(0, "", "")
    assert run("audit", "tail", "nothing").code == 1


def test_a_follower_ends_when_its_reader_has_gone(places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE, read("a"))
    words = [sys.executable, "-m", "curtainwall", "audit", "tail", session, "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["type"] == "CallRequested"
        tail.stdout.close()
        try:
            assert tail.wait(60) == PIPE_CLOSED, "nothing was written, and nothing will be"
        finally:
            tail.kill()
        assert tail.stderr.read() == ""


def test_a_follower_gets_whole_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("one\ntwo\nthr")
    lines, end = last_lines(path, 1)
    assert lines == ["two"]
    coming = lines_as_they_come(path, end)
    with path.open("a") as file:
        file.write("ee\nfour\nfi")
    assert [next(coming), next(coming)] == ["three", "four"]
    coming.close()
