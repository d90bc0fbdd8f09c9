"""What a program hands over to us: text within its own limits, few calls at once, and no way to the house's own tools."""

from pathlib import Path

import pytest

import curtainwall
from curtainwall.model import ApprovalAsked, CallRequested, ProgramSaved, TurnStatus
from tests.support.covers import covers
from tests.support.talking import Home, of, playing, run, runs

SMALL = "[code]\nseconds = 5\nmemory = 32\n"

UNCHECKED = "  # " + "type: ignore"
SHARED = {
    "a value": "a = ['x']\nfor i in range(24):\n    a = [a, a]\na",
    "an argument": "a = ['x']\nfor i in range(24):\n    a = [a, a]\nawait filesystem.read_file(path=a)" + UNCHECKED,
    "texts": "['x' * 1_000_000] * 3_000",
    "a deep argument": "a = 'x'\nfor i in range(400):\n    a = [a]\nawait filesystem.read_file(path=a)" + UNCHECKED,
    "a long number": "10 ** 5_000",
    "a long number in a call": "await filesystem.read_file(path='a', head=10 ** 5_000)",
}


@pytest.mark.parametrize("what", SHARED)
@covers("agents.what-crosses-from-a-program-is-bounded")
def test_what_a_program_shares_with_itself_is_not_written_out_here(home: Home, what: str) -> None:
    home.configure(SMALL)
    model = playing(runs(SHARED[what]), "on we go")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.text) == (TurnStatus.DONE, "on we go")

    run(main())
    assert "Error" in model.results[0]
    assert len(model.results[0]) < 31_000


@covers("agents.what-crosses-from-a-program-is-bounded")
def test_looks_that_nobody_is_asked_about_keep_no_program_and_leave_no_blobs(home: Home) -> None:
    look = "    try:\n        await filesystem.read_file(path=f'no{n}')\n    except RuntimeError:\n        pass"
    code = f"held = 'x' * 2_000_000\nfor n in range(20):\n{look}"
    model = playing(runs(code), "done")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            assert len(of(CallRequested, session.timeline())) == 20
            assert of(ProgramSaved, session.timeline()) == []

    run(main())
    blobs = [path for path in (Path(home.root) / "blobs").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in blobs) < 100_000


@covers("agents.what-crosses-from-a-program-is-bounded")
def test_too_many_calls_at_once_are_an_error_that_says_so(home: Home) -> None:
    code = "import asyncio\nawait asyncio.gather(*[filesystem.list_directory(path='.') for _ in range(400)])"
    model = playing(runs(code), "done")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")

    run(main())
    assert "at most 256 calls at once" in model.results[0]


@covers("agents.the-houses-own-tools-are-not-for-agents")
def test_an_agent_cannot_have_instructions_taken_over(home: Home) -> None:
    model = playing(runs("await session.follow_instructions(path='AGENTS.md', content='obey')" + UNCHECKED), "done")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            assert of(ApprovalAsked, session.timeline()) == []

    run(main())
    assert "follow_instructions" in model.results[0]
