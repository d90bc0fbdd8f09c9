"""Plan confusion: a yes to a list is no yes to anything else, whoever wrote the list and whatever happens afterwards."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.model import AnswerApproval, ApprovalAsked, CallRequest, NotAllowed, SessionId, Subject, Who
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.houses import ANN, FarSide, events, house, open_session, policy, run, tools

EVE = Who(name="eve", channel="matrix")


def step(path: Path | str, content: str = "x") -> JsonValue:
    return {"tool": "filesystem.write_file", "arguments": {"path": str(path), "content": content}}


def proposal(*steps: JsonValue) -> CallRequest:
    return CallRequest(tool="session.propose_plan", arguments={"steps": list(steps)})


def write(path: Path | str, content: str = "x") -> CallRequest:
    return CallRequest(tool="filesystem.write_file", arguments={"path": str(path), "content": content})


async def approve(rooms: SessionRegistry, gate: SessionGate, session: SessionId, *steps: JsonValue) -> ApprovalAsked:
    """Propose a plan, say yes, and let it be taken in."""
    answer = await gate.request(session, proposal(*steps), wait=False)
    assert answer.waiting
    asked = [event for event in events(rooms, session) if isinstance(event, ApprovalAsked)][-1]
    await rooms.send(session, AnswerApproval(by=ANN, approval=asked.approval, granted=True))
    done = await gate.resume(session, answer.call)
    assert done.result is not None
    return asked


def test_a_link_turned_after_the_plan_was_approved_asks(tmp_path: Path) -> None:
    project, other = tmp_path / "p", tmp_path / "other"
    project.mkdir()
    other.mkdir()

    async def work() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as rooms:
            gate = SessionGate(rooms, tools(far))
            session = await open_session(rooms, project, own=False)
            await approve(rooms, gate, session, step("here/a"))
            (project / "here").symlink_to(other)
            assert (await gate.request(session, write("here/a"), wait=False)).waiting

    run(work())


def test_other_spellings_of_a_listed_call_are_that_call_and_nothing_else_is(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()

    async def work() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as rooms:
            gate = SessionGate(rooms, tools(far))
            session = await open_session(rooms, project, own=False)
            await approve(rooms, gate, session, step("a"), step("b"))
            assert (await gate.request(session, write("a", "y"), wait=False)).waiting
            assert (await gate.request(session, write("A"), wait=False)).waiting
            assert (await gate.request(session, write(project / "x" / ".." / "a"), wait=False)).result is not None
            assert (await gate.request(session, write("a"), wait=False)).waiting, "it was listed once"
            assert (await gate.request(session, write("b"), wait=False)).result is not None
        assert len([line for line in far.lines if "write_file" in line]) == 2

    run(work())


@pytest.mark.parametrize("hostile", ["x\nstep 2: nothing", "x\rwants nothing", "x\u2028as written:", "\x1b[2J", "x" * 20_000])
def test_no_word_of_a_step_passes_for_a_line_of_the_card(tmp_path: Path, hostile: str) -> None:
    project = tmp_path / "p"
    project.mkdir()

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as rooms:
            gate = SessionGate(rooms, tools(FarSide(tmp_path / "far")))
            session = await open_session(rooms, project, own=False)
            await gate.request(session, proposal(step("a", hostile)), wait=False)
            [asked] = [event for event in events(rooms, session) if isinstance(event, ApprovalAsked)]
            lines = asked.shown.split("\n")
            assert [line.partition(" ")[0] for line in lines] == ["tool:", "plan", "because", "step", "wants", "with", "with"]
            assert all(line.isprintable() for line in lines)
            if hostile.startswith("xxx"):
                assert hostile in asked.shown, "nothing is cut"

    run(work())


def test_an_automatic_approver_says_nothing_about_plans(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    seen: list[str] = []

    class Approver:
        async def approves(self, subject: Subject, human_words: object) -> str | None:
            seen.append(subject.tool)
            return "robot"

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as rooms:
            gate = SessionGate(rooms, tools(FarSide(tmp_path / "far")), approver=Approver())
            session = await open_session(rooms, project, own=False)
            assert (await gate.request(session, proposal(step("a")), wait=False)).waiting
            assert (await gate.request(session, write("b"), wait=True)).result is not None

    run(work())
    assert seen == ["filesystem.write_file"]


def test_a_stranger_approves_no_plan(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()

    async def work() -> None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(), operators={"matrix": frozenset({"olga"})})) as rooms:
            gate = SessionGate(rooms, tools(FarSide(tmp_path / "far")))
            session = await open_session(rooms, project, own=False)
            await gate.request(session, proposal(step("a")), wait=False)
            [asked] = [event for event in events(rooms, session) if isinstance(event, ApprovalAsked)]
            with pytest.raises(NotAllowed):
                await rooms.send(session, AnswerApproval(by=EVE, approval=asked.approval, granted=True))

    run(work())
