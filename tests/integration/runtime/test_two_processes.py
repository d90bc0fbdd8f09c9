"""Two processes on one session: both send commands, one decides, and the other takes over when it dies."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from curtainwall.model import MessageAccepted, SessionId, session_stream
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.houses import house, open_session, run
from tests.support.repository import ROOT
from tests.support.stores import A, line_from, process
from tests.support.waiting import BOUND


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path, workspace: Path) -> SessionId:
    async def story() -> SessionId:
        async with SqliteStore.open(home, SystemClock()) as store, house(store) as h:
            return await open_session(h, workspace)

    return run(story())


class Sender:
    """A process that sends messages. What it says is read all the time: a process whose pipe is full decides nothing."""

    def __init__(self, home: Path, session: SessionId, name: str, count: int) -> None:
        command = [sys.executable, "-m", "tests.support.sending_script", str(home), session, name, str(count)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()
        self.wait_for(lambda lines: "ready" in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._ear.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def told(self) -> list[str]:
        """Return the commands that the process says were decided."""
        return [line for line in self.lines if line not in ("ready", "finished")]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_for(self, enough: Callable[[list[str]], bool]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: enough(self.lines), timeout=200), f"only {len(self.lines)} lines came"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()


def is_finished(lines: list[str]) -> bool:
    return bool(lines) and lines[-1] == "finished"


def accepted(home: Path, session: SessionId) -> Counter[str]:
    store = SqliteStore.open(home, SystemClock())
    try:
        assert store.verify() is None
        events = [lift(entry) for entry in store.log.read(session_stream(session))]
        return Counter(event.text for event in events if isinstance(event, MessageAccepted))
    finally:
        store.close()


@covers("runtime.one-owner-many-clients")
def test_a_thousand_commands_from_two_processes_are_each_applied_exactly_once(home: Path, tmp_path: Path) -> None:
    session = opened(home, tmp_path)
    with Sender(home, session, "one", 500) as one, Sender(home, session, "two", 500) as two:
        one.go()
        two.go()
        one.wait_for(is_finished)
        two.wait_for(is_finished)
        told = [*one.told, *two.told]
    counts = accepted(home, session)
    assert sorted(told) == sorted(counts)
    assert set(counts.values()) == {1}
    assert len(counts) == 1_000


@covers("runtime.takes-over-at-once")
def test_when_the_owner_is_killed_the_other_takes_over_and_nothing_accepted_is_lost(home: Path, tmp_path: Path) -> None:
    session = opened(home, tmp_path)
    with Sender(home, session, "owner", 100_000) as owner, Sender(home, session, "other", 200) as other:
        owner.go()
        owner.wait_for(lambda lines: len(lines) > 40)
        other.go()
        other.wait_for(lambda lines: len(lines) > 20)
        owner.process.kill()
        other.wait_for(is_finished)
        owner.process.wait()
    counts = accepted(home, session)
    assert set(counts.values()) == {1}
    assert {*owner.told, *other.told} <= set(counts), "a command that was said to be decided is not in the log"
    assert {f"other-{number}" for number in range(200)} <= set(counts)


@covers("runtime.takes-over-at-once")
def test_whoever_waits_for_a_lease_goes_on_as_soon_as_its_owner_is_killed(home: Path) -> None:
    async def taken(h: SessionRegistry) -> None:
        while h.stores.leases.take(A) is None:
            await h.until_free(A, patience=3600)

    async def story() -> None:
        async with SqliteStore.open(home, SystemClock()) as store, house(store) as h:
            with process("hold", str(home), A) as owner:
                assert line_from(owner) == "held"
                waiting = asyncio.create_task(taken(h))
                await asyncio.sleep(0)
                assert not waiting.done()
                owner.kill()
                await asyncio.wait_for(waiting, BOUND)

    run(story())
