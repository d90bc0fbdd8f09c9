"""Everything that can go wrong on the way to a verdict: nothing is allowed, someone is told, and the others go on."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import AnswerApproval, Broken, CallRequest, CommandRefused, CurtainwallError, RenameSession, TryLater, Who
from curtainwall.policy.rulebook import Cache
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore, SqliteStore
from tests.support.houses import ANN, FailingStore, FarSide, house, kinds, open_session, policy, read, run, tools
from tests.support.houses import write as writing
from tests.support.in_process import Places, Said, session_in

Run = Callable[..., Said]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("filesystem.read_file", {"path": "\ud800"}),
        ("filesystem.read_file", {"\udfff": "x"}),
        ("filesystem.read_file", {"path": 2**70}),
        ("filesystem.read_file", {"path": [["x"]]}),
        ("filesystem.read_file", ["x"]),
        ("filesystem.read_file", None),
        ("filesystem.read_file", "x"),
        ("filesystem.read_file", {"path": "\0"}),
        ("filesystem.read_file", {}),
        ("filesystem.write_file", {"path": "x", "content": "y" * 9_000_000}),
        ("no.such\ud800", {}),
        ("", {}),
        ("x" * 100_000, {}),
        ("filesystem", {}),
        ("FILESYSTEM.read_file", {"path": "x"}),
        ("filesystem.edit_file", {"path": "x", "edits": [{"oldText": "a", "newText": "b"}], "dryRun": "true"}),
        ("filesystem.edit_file", {"path": "x", "edits": [{"oldText": "a", "newText": "b"}], "dryRun": 1}),
        ("git.log", {"ref": "main\n"}),
        ("git.log", {"ref": "--output=/etc/x"}),
    ],
)
def test_hostile_arguments_are_denied_and_the_denial_is_logged(places: Places, tool: str, arguments: Any) -> None:
    session, (answer,) = session_in(places.workspace, CallRequest.model_construct(tool=tool, arguments=arguments, call=None, turn=None))
    assert answer.verdict.effect == "deny"
    assert b"CallDenied" in (places.home / "sessions" / session / "audit.jsonl").read_bytes()


def test_arguments_that_are_no_json_are_denied_and_the_denial_is_logged(places: Places) -> None:
    deep: Any = []
    for _ in range(220):
        deep = [deep]
    for arguments in ({"path": float("nan")}, {"path": float("inf")}, {"path": b"x"}, {1: "x"}, {"path": deep}, object()):
        wish = CallRequest.model_construct(tool="filesystem.read_file", arguments=arguments, call=None, turn=None)
        _, (answer,) = session_in(places.workspace, wish)
        assert answer.verdict.effect == "deny"


class Faulty(Cache[Any, Any]):
    """What a policy remembers, with a fault in it that one call finds."""

    def get(self, key: Any) -> Any:
        if "bad" in str(key):
            raise ZeroDivisionError("judging broke")
        return super().get(key)


def test_a_fault_while_judging_refuses_that_call_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    async def work() -> None:
        far = FarSide(tmp_path / "far")
        rules = Rules(policy=replace(policy(), findings=Faulty(100)))
        async with house(MemoryStore(SystemClock()), rules) as opened_house:
            session = await open_session(opened_house, tmp_path)
            gate = SessionGate(opened_house, tools(far))
            bad, good = await asyncio.wait_for(
                asyncio.gather(
                    gate.request(session, writing("bad")), gate.request(session, writing("good")), return_exceptions=True
                ), 60,
            )  # fmt: skip
            assert isinstance(bad, CommandRefused)
            assert not isinstance(good, BaseException)
            assert good.result is not None
            assert far.lines == [f"filesystem.write_file {tmp_path}/good"]

    run(work())


def test_an_inbox_that_cannot_be_read_tells_everyone_who_waits(tmp_path: Path) -> None:
    async def work() -> None:
        store = FailingStore()
        async with house(store) as opened_house:
            session = await open_session(opened_house, tmp_path)
            store.is_busy = True
            async with opened_house.hold(session) as actor:
                actor.look_at_inbox()
                with pytest.raises(TryLater):
                    await asyncio.wait_for(actor.submit(RenameSession(by=ANN, name="x")), 60)
                store.is_busy = False
                await asyncio.wait_for(actor.submit(RenameSession(by=ANN, name="y")), 60)
                assert actor.state.name == "y"

    run(work())


def test_a_row_that_nobody_can_read_stops_its_session_and_no_other(places: Places) -> None:
    one, _ = session_in(places.workspace)
    two, _ = session_in(places.workspace)
    with closing(sqlite3.connect(places.home / "curtainwall.db")) as db, db:
        db.execute("INSERT INTO inbox (stream, key, kind, payload) VALUES (?, 'k', 'AnswerApproval', x'7b7d')", (f"session:{one}",))

    async def work() -> None:
        async with open_gate(load_setup()) as wired:
            async with wired.registry.hold(one) as actor:
                with pytest.raises(Broken):
                    await asyncio.wait_for(actor.submit(RenameSession(by=ANN, name="x")), 60)
            await wired.registry.send(two, RenameSession(by=ANN, name="x"))

    asyncio.run(work())


def test_where_no_thread_can_be_started_a_write_is_refused_and_a_later_one_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    failing = [True]

    def no_room(self: threading.Thread) -> None:
        if failing[0] and self.name.startswith("curtainwall"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", no_room)

    async def work() -> None:
        async with SqliteStore.open(tmp_path / "cw", SystemClock()) as store, house(store) as opened_house:
            with pytest.raises(CurtainwallError):
                await asyncio.wait_for(open_session(opened_house, tmp_path), 60)
            failing[0] = False
            session = await asyncio.wait_for(open_session(opened_house, tmp_path), 60)
            assert "SessionReady" in kinds(opened_house, session)

    run(work())


def test_an_approver_that_comes_late_leaves_the_humans_answer(tmp_path: Path) -> None:
    async def work() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as opened_house:
            session = await open_session(opened_house, tmp_path)

            class Slow:
                async def approves(self, subject: Any, words: Any) -> str:
                    async with opened_house.hold(session) as actor:
                        (approval,) = actor.state.approvals
                    await opened_house.send(session, AnswerApproval(by=Who(name="ann"), approval=approval, granted=False))
                    return "robot"

            gate = SessionGate(opened_house, tools(far), approver=Slow())
            told = await gate.request(session, read("/etc/passwd"))
            assert told.verdict.effect == "deny"
            assert far.lines == []

    run(work())


@pytest.mark.parametrize("name", ["config.toml", "policy"])
def test_a_link_that_leads_nowhere_is_not_taken_for_nothing_set(places: Places, run: Run, name: str) -> None:
    places.home.mkdir()
    (places.home / name).symlink_to(places.user / "nowhere")
    said = run("policy", "rules")
    assert (said.code, "leads nowhere" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.cedar", b"forbid ("),
        ("a.CEDAR", b"forbid ("),
        ("a.cedar", b"\xff\xfe"),
        ("a.cedar", b'@id("x") forbid(principal, action, resource in Host::"GitHub.com");'),
        ("a.cedar", b'@id("x") forbid(principal, action == Action::"nothing", resource);'),
        ("a.cedar", b'@id("known-tool") permit(principal, action, resource);'),
        ("a.cedar", b'@id("x") permit(principal, action, resource) when { !context.approved };'),
        ("a.cedar", b"permit(principal, action, resource);"),
        ("a.cedar", b'@id("x") forbid(principal, action, resource) when { ' + b"(" * 5000 + b"true" + b")" * 5000 + b" };"),
    ],
)
def test_rule_files_that_do_not_load_leave_nothing_judged(places: Places, run: Run, name: str, content: bytes) -> None:
    (places.home / "policy").mkdir(parents=True)
    (places.home / "policy" / name).write_bytes(content)
    assert run("policy", "rules").code == 1
    with pytest.raises(Broken):
        load_setup()


@pytest.mark.parametrize(
    "text",
    [
        "[lists]\nhost = ['a.org']",
        "[protected]\nnever = ['finance']",
        "approvals = 1",
        "[lists]\nhosts = ['https://a.org']",
        "\0",
        "[" * 5000,
    ],
)
def test_config_that_says_nothing_certain_stops_everything(places: Places, text: str) -> None:
    places.home.mkdir()
    (places.home / "config.toml").write_text(text)
    with pytest.raises(Broken):
        load_setup()


def test_a_full_disk_permits_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        store, far = FailingStore(), FarSide(tmp_path / "far")
        async with house(store) as opened_house:
            session = await open_session(opened_house, tmp_path)
            store.is_full = True
            with pytest.raises(TryLater):
                await SessionGate(opened_house, tools(far)).request(session, writing("x"))
            assert far.lines == []

    run(work())


def test_a_log_of_another_version_permits_nothing(places: Places) -> None:
    session_in(places.workspace, read("/etc/hosts"))
    with closing(sqlite3.connect(places.home / "curtainwall.db")) as db, db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(Broken):
        session_in(places.workspace, read("/etc/hosts"))
