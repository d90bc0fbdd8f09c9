"""A program that takes back what its agent changed."""

from pathlib import Path

import pytest

import curtainwall
from curtainwall import CurtainwallError, TurnStatus
from curtainwall.model import Mode
from tests.support.covers import covers
from tests.support.talking import Home, playing, run, runs


@covers("undo.exact")
def test_a_program_takes_accepted_changes_back_and_applies_them_again(home: Home, tmp_path: Path) -> None:
    project = tmp_path.resolve() / "made"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    model = playing(runs('print(await filesystem.write_file(path="a.txt", content="two\\n"))'))

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=project, mode=Mode.REVIEW) as session:
            reply = await session.send("go")
            (ask,) = reply.pending
            await session.answer(ask.approval, granted=True)
            assert (await session.go_on()).status is TurnStatus.DONE
            assert (project / "a.txt").read_text() == "two\n"
            assert [outcome.is_done for outcome in await session.undo()] == [True]
            assert (project / "a.txt").read_text() == "one\n"
            assert [outcome.is_done for outcome in await session.redo()] == [True]
            assert (project / "a.txt").read_text() == "two\n"
            with pytest.raises(CurtainwallError, match="only 1 step"):
                await session.undo(2)

    run(main())
