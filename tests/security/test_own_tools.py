"""A program's own tools and its answers to asks: nothing becomes free because the embedding program brought it."""

import logging
from pathlib import Path
from typing import Any

import pytest

import curtainwall
from curtainwall import AskAnswer, GrantScope, PendingAsk, TurnStatus
from curtainwall.model import CallDenied, CallPermitted
from tests.support.covers import covers
from tests.support.talking import Home, of, place_of, playing, run, runs

DONE, WAITING = TurnStatus.DONE, TurnStatus.WAITING


@curtainwall.tool(effect="inspect", roles={"path": "read-path"})
def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text().splitlines())


@curtainwall.tool
async def send_mail(to: str) -> str:
    """Send an e-mail."""
    return f"sent to {to} with password=hunter2hunter2 " + "x" * 40_000


TOOLS = (count_lines, send_mail)


@covers("library.own-tools-are-judged-by-their-roles")
def test_own_tools_ask_are_denied_and_masked_by_the_same_gate(home: Home) -> None:
    calls = [f'app.count_lines(path="{home.outside}/a")', f'app.count_lines(path="{home.root}/curtainwall.db")', 'app.send_mail(to="ann")']
    code = "\n".join(f"try:\n    print(await {call})\nexcept Exception as error:\n    print(type(error).__name__)" for call in calls)
    model = playing(runs(code))
    asked: list[tuple[str, ...]] = []

    def decide(ask: PendingAsk) -> bool:
        asked.append((ask.subject.tool, *ask.because))
        return True

    async def main() -> None:
        (home.outside / "a").write_text("1\n")
        async with curtainwall.open_session(model=model, tools=TOOLS, on_ask=decide) as session:
            assert (await session.send("go")).status is DONE
            [denied] = of(CallDenied, session.timeline())
            assert denied.verdict.because == ("protected-path",)
            await session.change_mode(curtainwall.Mode.PLAN)

    run(main())
    assert asked == [("app.count_lines", "read-outside"), ("app.send_mail", "unjudged-tool")]
    assert model.results[0].startswith("1\nPermissionError\nsent to ann with password=[masked:")
    assert "characters cut" in model.results[0]
    assert "hunter2" not in model.results[0]


@covers("library.own-tools-are-judged-by-their-roles")
def test_in_plan_mode_an_own_tool_that_may_change_something_is_denied(home: Home) -> None:
    model = playing(runs('await app.send_mail(to="ann")'))

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=TOOLS, mode=curtainwall.Mode.PLAN) as session:
            await session.send("go")
            assert [event.verdict.because for event in of(CallDenied, session.timeline())] == [("plan-tools",)]

    run(main())


@covers("library.own-tools-are-judged-by-their-roles")
def test_a_program_without_the_tool_does_not_run_what_was_approved_for_another(home: Home) -> None:
    model = playing(runs('print(await app.send_mail(to="ann"))'), "over")

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=TOOLS) as session:
            reply = await session.send("go")
            assert reply.status is WAITING
        async with curtainwall.open_session(model=model, resume=session.id) as again:
            await again.answer(again.pending[0].approval, granted=True)
            assert (await again.go_on()).text == "over"
            assert not of(CallPermitted, again.timeline())

    run(main())


@covers("library.on-ask")
@pytest.mark.parametrize("decision", ["yes", 1, AskAnswer(granted="yes"), ValueError("no idea")])
def test_only_true_is_a_yes(home: Home, decision: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = playing(runs(f'await filesystem.write_file(path="{home.outside}/a", content="1")'))

    def decide(ask: PendingAsk) -> Any:
        if isinstance(decision, Exception):
            raise decision
        return decision

    async def main() -> None:
        async with curtainwall.open_session(model=model, on_ask=decide) as session:
            assert (await session.send("go")).status is WAITING

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "stays open" in caplog.text
    assert not (home.outside / "a").exists()


@covers("library.own-tools-are-judged-by-their-roles")
def test_a_link_that_is_turned_elsewhere_after_the_question_is_not_followed(home: Home) -> None:
    model = playing(runs('print(await app.count_lines(path="link"))'), "over")

    async def main() -> None:
        for name in ("harmless", "private"):
            (home.outside / name).write_text("1\n" * len(name))
        async with curtainwall.open_session(model=model, tools=TOOLS) as session:
            link = place_of(session, "link")
            link.symlink_to(home.outside / "harmless")
            reply = await session.send("go")
            [first] = reply.pending
            assert first.subject.canonical["path"] == str(home.outside / "harmless")
            link.unlink()
            link.symlink_to(home.outside / "private")
            await session.answer(first.approval, granted=True)
            assert (await session.go_on()).text == "over"
            assert not of(CallPermitted, session.timeline())

    run(main())
    assert "it means something else than when it was approved" in model.results[0]


def deployment(says: str, ran: list[str]) -> curtainwall.Tool[[str], str]:
    """Return a tool of the same name whatever it says that it does."""

    @curtainwall.tool(name="deploy", description=says)
    def deploy(target: str) -> str:
        ran.append(says)
        return target

    return deploy


@covers("library.own-tools-are-judged-by-their-roles")
def test_a_lasting_yes_answers_no_other_tool_of_the_same_name(home: Home) -> None:
    asked: list[str] = []
    ran: list[str] = []
    project = home.outside / "project"

    def decide(ask: PendingAsk) -> AskAnswer:
        asked.append(ask.subject.tool)
        return AskAnswer(granted=True, scope=GrantScope.PROJECT)

    async def use(says: str) -> None:
        model = playing(runs('print(await app.deploy(target="x"))'), "over")
        async with curtainwall.open_session(model=model, tools=(deployment(says, ran),), on_ask=decide, workspace=project) as session:
            assert (await session.send("go")).status is DONE

    async def main() -> None:
        project.mkdir()
        for says in ("Say what would be deployed.", "Say what would be deployed.", "Deploy it, and delete what is there."):
            await use(says)

    run(main())
    assert len(ran) == 3
    assert len(asked) == 2, "the second call is the first one again, the third is something else"
