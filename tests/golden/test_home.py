"""A home of an earlier version is opened by this one: what was approved then answers as far as it still may, and the rest says why."""

import asyncio
import fcntl
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.cli.main import main
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Answer, CallRequest, SessionId, SessionQuery
from tests.golden.write_home import FOR_PROJECT, FOR_SESSION, OUTSIDE, PROJECT, ROOT, environment
from tests.support.covers import covers

pytestmark = pytest.mark.usefixtures("bubblewrap")

HOMES = sorted(Path(__file__).parent.glob("*-home.tar.gz"))
LAPSED = "no longer answers: it was given for a tool without its arguments; approve the call again"

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=HOMES, ids=lambda place: place.name.removesuffix("-home.tar.gz"))
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a home back where it was written; its log names that place, so only one test at a time has it."""
    with ROOT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir(mode=0o700)
        with tarfile.open(request.param) as archive:
            archive.extractall(ROOT, filter="data")
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(PROJECT)
        try:
            yield ROOT / "home"
        finally:
            shutil.rmtree(ROOT, ignore_errors=True)


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["curtainwall", *words])
        code = main()
        return code, *capsys.readouterr()

    return run


def asked(name: str, *calls: dict[str, object]) -> list[Answer]:
    """Make calls in the session of a name, for whose answers nobody waits."""

    async def work() -> list[Answer]:
        async with open_gate(load_setup()) as wired:
            (row,) = (row for row in wired.store.index.sessions(SessionQuery()) if row.name == name)
            requests = [CallRequest.model_validate(call) for call in calls]
            return [await wired.gate.request(SessionId(row.session), request, wait=False) for request in requests]

    return asyncio.run(asyncio.wait_for(work(), 100))


def paying(tool: str, to: str, amount: JsonValue) -> dict[str, object]:
    return {"tool": tool, "arguments": {"to": to, "amount": amount}}


@covers("approvals.old-tool-grants-lapse")
def test_a_grant_for_a_whole_tool_answers_nothing_any_more(home: Path) -> None:
    same, other = asked("for the session", FOR_SESSION[0], paying("pay.send", "eve", 1_000_000))
    assert same.waiting
    assert other.waiting
    refund, more = asked("for the project", FOR_PROJECT[0], paying("pay.refund", "eve", 1_000_000))
    assert refund.waiting
    assert more.waiting


def test_other_grants_answer_as_before(home: Path) -> None:
    for answer in asked("for the session", *FOR_SESSION[1:], FOR_PROJECT[1]):
        assert answer.result is not None, answer
        assert answer.result.ok
    (elsewhere,) = asked("for the session", {"tool": "filesystem.read_file", "arguments": {"path": str(OUTSIDE / "none.txt")}})
    assert elsewhere.waiting


@covers("approvals.old-tool-grants-lapse")
def test_the_list_says_which_grants_no_longer_answer_and_why(command: Command) -> None:
    code, out, err = command("grants", "list")
    assert code == 0
    lines = [line for line in out.splitlines() if "no longer answers" in line]
    assert sorted(line.split()[-1] for line in lines) == ["pay.refund", "pay.send"]
    assert err.count(LAPSED) == 2
    assert len([line for line in out.splitlines() if "read-path" in line]) == 2
    assert "session, one call" in out, "the command"


@covers("upgrade.a-home-of-an-earlier-version")
def test_an_ask_that_an_earlier_version_left_open_is_approved_and_its_turn_goes_on(command: Command) -> None:
    code, listed, err = command("sessions", "list", "--output", "json")
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(listed)}
    assert set(rows) == {"for the session", "for the project", "still open"}
    assert rows["still open"]["status"] == "waiting"
    (ask,) = json.loads(command("approvals", "list", "--output", "json")[1])
    assert (ask["session"], ask["tool"]) == (rows["still open"]["id"], "filesystem.read_file")
    code, out, err = command("approve", ask["id"])
    assert code == 0, out + err
    code, out, err = command("start", "--resume", ask["session"])
    assert (code, "That was all." in out) == (0, True), out + err
    code, out, err = command("sessions", "history", ask["session"])
    assert "do it" in out
    assert command("audit", "verify")[0] == 0


@covers("upgrade.a-home-of-an-earlier-version")
def test_the_log_verifies_and_a_session_goes_on(command: Command) -> None:
    code, out, err = command("audit", "verify")
    assert code == 0, out + err
    _, listed, _ = command("sessions", "list")
    session = next(line.split()[0] for line in listed.splitlines() if "for the session" in line)
    code, out, err = command("start", "--resume", session, "and now?")
    assert code == 0, out + err
    assert command("audit", "verify")[0] == 0
