"""A program is saved in the same commit as what must not be written without it, and the call is decided once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from curtainwall.model import (
    SYSTEM,
    CallId,
    CallRequest,
    CommandRefused,
    MessageId,
    Payload,
    Place,
    RequestCall,
    SavedProgram,
    SendMessage,
    SessionId,
    StartTurn,
    TryLater,
    TurnId,
    Workspace,
)
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, kinds, open_session, policy, read, run, tools, until, write

TURN = TurnId("t1")


@dataclass
class Here:
    """A session in a turn, whose rules count how often they are looked at."""

    house: SessionRegistry
    gate: SessionGate
    session: SessionId
    workspace: Path
    looked: list[int]

    def kinds(self) -> list[str]:
        """What the log has since the turn began."""
        told = kinds(self.house, self.session)
        return told[told.index("TurnStarted") + 1 :]


@dataclass
class Program:
    """A program that makes a call, and can be saved."""

    fault: Exception | None = None
    saves: int = 0
    may_save: asyncio.Event = field(default_factory=asyncio.Event)

    async def save(self) -> SavedProgram:
        self.saves += 1
        await self.may_save.wait()
        if self.fault is not None:
            raise self.fault
        return SavedProgram(program="p1", step=1, state=Payload(inline="…"))


@asynccontextmanager
async def in_a_turn(tmp_path: Path) -> AsyncGenerator[Here]:
    rules, looked = Rules(policy=policy()), [0]

    def in_force() -> Rules:
        looked[0] += 1
        return rules

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with SessionRegistry(MemoryStore(SystemClock()), SystemClock(), in_force) as house:
        session = await open_session(house, workspace)
        await house.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="go"))
        await house.send(session, StartTurn(by=SYSTEM, turn=TURN))
        yield Here(house, SessionGate(house, tools(FarSide(tmp_path / "far"))), session, workspace, looked)


def of_turn(request: CallRequest) -> CallRequest:
    return request.model_copy(update={"turn": TURN})


@covers("session.a-program-is-saved-with-what-must-not-happen-twice")
def test_a_call_that_acts_is_decided_once_and_saved_with_its_permit(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here:
            program = Program()
            program.may_save.set()
            here.looked[0] = 0
            await here.gate.request(here.session, of_turn(write(here.workspace / "a")), save=program.save)
            assert here.kinds() == ["CallRequested", "CallPermitted", "ProgramSaved", "CallFinished"]
            # One look for the request and one for its outcome.
            assert (program.saves, here.looked[0]) == (1, 2)

    run(story())


@covers("session.a-program-is-saved-with-what-must-not-happen-twice")
def test_nothing_of_an_ask_is_written_before_its_program_is_saved(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here:
            program = Program()
            asking = asyncio.create_task(here.gate.request(here.session, of_turn(read("/etc/hostname")), wait=False, save=program.save))
            await until(lambda: program.saves)
            assert here.kinds() == []
            program.may_save.set()
            assert (await asking).waiting
            assert here.kinds() == ["CallRequested", "ApprovalAsked", "ProgramSaved"]

    run(story())


def test_for_a_look_that_nobody_is_asked_about_nothing_is_saved(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here:
            program = Program()
            await here.gate.request(here.session, of_turn(read(here.workspace / "a")), save=program.save)
            assert here.kinds()[:2] == ["CallRequested", "CallPermitted"]
            assert program.saves == 0

    run(story())


def test_where_a_program_cannot_be_saved_its_call_is_not_made_and_the_others_are(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here:
            broken, whole = Program(fault=TryLater("the disk is full")), Program()
            made = [
                asyncio.create_task(here.gate.request(here.session, of_turn(write(here.workspace / name)), save=program.save))
                for name, program in (("a", broken), ("b", whole))
            ]
            await until(lambda: broken.saves)
            for program in (broken, whole):
                program.may_save.set()
            failed, done = await asyncio.gather(*made, return_exceptions=True)
            assert isinstance(failed, TryLater)
            assert not isinstance(done, BaseException)
            assert done.result is not None
            assert here.kinds() == ["CallRequested", "CallPermitted", "ProgramSaved", "CallFinished"]
            assert whole.saves == 1

    run(story())


def test_a_call_that_is_cancelled_while_its_program_is_saved_leaves_no_open_ask(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here:
            program = Program()
            asking = asyncio.create_task(here.gate.request(here.session, of_turn(read("/etc/hostname")), save=program.save))
            await until(lambda: program.saves)
            asking.cancel()
            program.may_save.set()
            await asyncio.gather(asking, return_exceptions=True)
            async with here.house.hold(here.session) as actor:
                assert (actor.state.approvals, actor.state.calls) == ({}, {})

    run(story())


def test_a_call_of_a_program_that_cannot_be_saved_by_whoever_makes_it_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_a_turn(tmp_path) as here, here.house.hold(here.session) as actor:
            place = Place(session=here.session, workspace=Workspace(path=str(here.workspace), own=True))
            prepared = tools(FarSide(tmp_path / "far")).prepare("filesystem.read_file", {"path": "/etc/hostname"}, place)
            command = RequestCall(by=SYSTEM, call=CallId("c1"), subject=prepared.subject, turn=TURN, of_program=True)
            with pytest.raises(CommandRefused, match="saved along with it"):
                await actor.submit(command)
            assert here.kinds() == []

    run(story())
