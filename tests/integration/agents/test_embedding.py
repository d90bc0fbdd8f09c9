"""A session embedded in a program: its own tools, its answers to asks, live events, notes, arguments and errors."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import curtainwall
from curtainwall import (
    AskAnswer,
    Closed,
    CurtainwallError,
    GrantScope,
    LiveAsk,
    LiveContext,
    LiveDiagnostic,
    LiveSpeech,
    LiveTool,
    LiveTurn,
    OpeningFailed,
    PendingAsk,
    Session,
    TurnStatus,
)
from curtainwall.model import CallDenied, CallPermitted, CommandRefused, Place, Prepared, ToolResult, TryLater
from tests.support.covers import covers
from tests.support.talking import Held, Home, of, place_of, playing, run, runs, write_in

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


@covers("library.own-tools-are-added")
def test_own_tools_are_added_to_ours(home: Home) -> None:
    model = playing(runs('print(await app.count_lines(path="a.txt"), await filesystem.read_file(path="a.txt"))'))

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=TOOLS) as session:
            write_in(session, "a.txt", "1\n2\n")
            assert (await session.send("go")).status is DONE

    run(main())
    assert model.results == ["2 1\n2"]
    assert "class _app" in model.prompts[0].system


@covers("library.own-tools-are-added")
def test_a_mapping_replaces_the_runners_that_it_names_and_no_other(home: Home) -> None:
    model = playing(runs('print(await filesystem.read_file(path="a"), await filesystem.write_file(path="b", content="1"))'))

    async def read(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=True, value="from the program")

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools={"filesystem.read_file": read}) as session:
            await session.send("go")
            assert place_of(session, "b").read_text() == "1"
        with pytest.raises(OpeningFailed, match=r"no tool `app\.new` to replace"):
            async with curtainwall.open_session(model=model, tools={"app.new": read}):
                pass

    run(main())
    assert model.results[0].startswith("from the program")


@covers("library.on-ask")
def test_asks_are_answered_by_the_program_or_left_to_a_human(home: Home) -> None:
    paths = [str(home.outside / name) for name in "abc"]
    model = playing(*(runs(f'print(await filesystem.read_file(path="{path}"))') for path in paths), "first", "second")
    answers = {paths[0]: True, paths[1]: AskAnswer(granted=False, reason="not that one"), paths[2]: None}

    async def decide(ask: PendingAsk) -> bool | AskAnswer | None:
        await asyncio.sleep(0)
        return answers[str(ask.subject.canonical["path"])]

    for path in paths:
        Path(path).write_text("text")

    async def main() -> None:
        async with curtainwall.open_session(model=model, on_ask=decide) as session:
            reply = await session.send("go")
            assert (reply.status, [ask.subject.canonical["path"] for ask in reply.pending]) == (WAITING, [paths[2]])
            assert (await session.go_on()).status is WAITING
            await session.answer(reply.pending[0].approval, granted=True)
            assert (await session.go_on()).text == "first"
            [denied] = of(CallDenied, session.timeline())
            assert "not that one" in denied.verdict.reason

    run(main())


@covers("library.on-ask")
def test_an_answer_from_elsewhere_ends_a_decision_that_takes_long(home: Home) -> None:
    model = playing(runs(f'await filesystem.write_file(path="{home.outside}/a", content="1")'), "went on")
    shown, was_cancelled = asyncio.Event(), asyncio.Event()

    async def decide(ask: PendingAsk) -> bool:
        shown.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()
        return False

    async def main() -> None:
        async with curtainwall.open_session(model=model, on_ask=decide) as session:
            sending = asyncio.create_task(session.send("go"))
            await shown.wait()
            await session.answer(session.pending[0].approval, granted=True, scope=GrantScope.ONCE)
            assert (await sending).text == "went on"
            assert was_cancelled.is_set()

    run(main())


@covers("library.live-events")
def test_live_events_show_text_tools_asks_context_and_diagnostics(home: Home) -> None:
    (home.outside / "a").write_text("inside the file")
    model = playing(runs(f'print(await filesystem.read_file(path="{home.outside}/a"))', text="I look"), "done now")

    async def main() -> None:
        async with curtainwall.open_session(model=model, on_ask=lambda ask: True) as session:
            events = [event async for event in session.stream_events("go")]
            assert "".join(event.text for event in events if isinstance(event, LiveSpeech)) == "I lookdone now"
            tools = [(event.tool, event.status) for event in events if isinstance(event, LiveTool)]
            assert tools == [("filesystem.read_file", status) for status in ("requested", "permitted", "finished")]
            previews = [event.preview for event in events if isinstance(event, LiveTool)]
            assert previews == [f"path={home.outside}/a", "", "inside the file"]
            asks = [event for event in events if isinstance(event, LiveAsk)]
            assert [event.status for event in asks] == ["open", "granted"]
            assert asks[0].ask is None or asks[0].ask.because == ("read-outside",)
            turns = [event.status for event in events if isinstance(event, LiveTurn)]
            assert (turns[0], turns[-1]) == ("started", DONE)
            assert [event.measured for event in events if isinstance(event, LiveContext)] == [False] * 4
            about = [event.diagnostic for event in events if isinstance(event, LiveDiagnostic) and event.diagnostic.tool]
            assert [(each.kind, each.tool, each.preview) for each in about][-1] == ("tool_call", "filesystem.read_file", "inside the file")
            assert about == [each for each in session.diagnostics() if each.tool]

    run(main())


@covers("programs.failures-are-reported")
def test_a_call_of_a_tool_that_does_not_exist_is_a_live_event_with_its_error(home: Home) -> None:
    model = playing(runs('await filesystem.no_such_tool(path="a")'), "sorry")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            events = [event.diagnostic async for event in session.stream_events("go") if isinstance(event, LiveDiagnostic)]
            [failed] = [each for each in events if each.kind == "program_failure"]
            assert "no_such_tool" in failed.preview
            assert failed in session.diagnostics()

    run(main())


@covers("library.lists-sessions")
def test_sessions_are_listed_by_their_last_activity(home: Home) -> None:
    async def main() -> None:
        assert curtainwall.list_sessions() == ()
        assert not home.root.exists(), "looking makes nothing"
        async with curtainwall.open_session(model=playing("one"), name="first") as first:
            async with curtainwall.open_session(model=playing("two"), name="second", workspace=home.project) as second:
                await first.send("a")
                await second.close()
            assert [row.session for row in curtainwall.list_sessions()] == [second.id, first.id]
            await first.note("still here")
            assert [row.session for row in curtainwall.list_sessions()] == [first.id, second.id]
            assert [row.session for row in curtainwall.list_sessions(limit=1)] == [first.id]
        for wanted in ({"status": "closed"}, {"text": "seco"}, {"workspace": home.project}):
            assert [row.session for row in curtainwall.list_sessions(**wanted)] == [second.id]
        assert curtainwall.list_sessions(home=home.outside) == ()
        for wrong in ({"status": "gone"}, {"text": 5}, {"limit": "all"}, {"limit": -1}, {"home": 5}, {"workspace": 5}):
            with pytest.raises(CurtainwallError):
                curtainwall.list_sessions(**wrong)

    run(main())


@covers("library.live-events")
def test_live_events_without_a_message_end_with_the_session_or_the_context(home: Home) -> None:
    held = Held("thinking")

    async def watched(session: Session) -> list[curtainwall.LiveEvent]:
        return [event async for event in session.events()]

    async def main() -> None:
        async with curtainwall.open_session(model=playing(held, "two")) as session:
            watching = asyncio.create_task(watched(session))
            sending = asyncio.create_task(session.send("go"))
            await held.shown.wait()
            await session.interrupt()
            await sending
            fork = await session.fork()
            watching_fork = asyncio.create_task(watched(fork))
            await asyncio.sleep(0)
            await session.close()
            statuses = [event.status for event in await watching if isinstance(event, LiveTurn)]
            assert statuses[-1] is TurnStatus.INTERRUPTED
        assert await watching_fork == []

    run(main())


@covers("library.notes")
def test_notes_are_in_the_history_masked_and_not_for_the_agent(home: Home) -> None:
    model = playing("one", "two")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("a")
            await session.note("ticket opened", {"ticket": 4711, "password": "hunter2hunter2"})
        async with curtainwall.open_session(model=model, resume=session.id) as again:
            await again.send("b")
            [note] = again.notes()
            assert (note.text, note.details["ticket"]) == ("ticket opened", 4711)
            assert "hunter2" not in str(note)
            with pytest.raises(CommandRefused, match="64 KiB"):
                await again.note("x" * 70_000)

    run(main())
    assert "ticket" not in str(model.prompts[-1].items)


@covers("library.arguments-of-open-session")
def test_home_configuration_limits_and_system_prompt_are_arguments(home: Home, tmp_path: Path) -> None:
    model = playing("one", "two", "three", "four")

    async def main() -> None:
        place = tmp_path / "elsewhere"
        arguments: dict[str, Any] = {"home": place, "config": {"limits": {"tokens": 5_000_000}}, "limits": {"steps": 3}}
        prompt = "Answer like a pirate. My password=hunter2hunter2"
        async with curtainwall.open_session(model=model, **arguments, system_prompt=prompt) as session:
            await session.send("a")
            figures = {figure.kind.value: figure.limit for figure in session.budget}
            assert (figures["steps"], figures["tokens"], figures["seconds"]) == (3, 5_000_000, 7_200)
            fork = await session.fork()
            await fork.send("b")
        assert (place / "curtainwall.db").is_file()
        assert not home.root.exists()
        async with curtainwall.open_session(model=model, home=place, resume=session.id) as again:
            await again.send("c")
        with pytest.raises(OpeningFailed, match="keeps its limits"):
            async with curtainwall.open_session(model=model, home=place, resume=session.id, limits={"steps": 9}):
                pass

    run(main())
    assert all("Answer like a pirate." in prompt.system for prompt in model.prompts)
    assert "hunter2" not in model.prompts[0].system
    assert len(model.prompts) == 3


@covers("library.every-error-is-ours")
@pytest.mark.parametrize(
    "arguments",
    [
        {"limits": {"steps": 0}},
        {"limits": {"steps": math.nan}},
        {"limits": {"cookies": 5}},
        {"limits": 5},
        {"config": {"modell": {}}},
        {"config": {"model": {"compact-at": "much"}}},
        {"config": 5},
        {"home": 5},
        {"resume": 5},
        {"resume": "nobody"},
        {"agent": None},
        {"agent": "nobody"},
        {"model": 5},
        {"mode": "free"},
        {"name": 5},
        {"policy": "rules.cedar"},
        {"policy": [5]},
        {"workspace": 5},
        {"workspace": ""},
        {"home": ""},
        {"tools": 5},
        {"tools": [len]},
        {"tools": [count_lines, count_lines]},
        {"parts": 5},
        {"system_prompt": 5},
        {"system_prompt": "x" * 70_000, "agent": "claude-code"},
        {"on_ask": 5},
    ],
    ids=str,
)
def test_a_wrong_argument_opens_nothing(home: Home, arguments: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(OpeningFailed):
            async with curtainwall.open_session(**{"model": "demo", **arguments}):
                pass

    run(main())
    assert not list(home.root.glob("sessions/*"))


@covers("library.every-error-is-ours")
def test_a_session_that_is_not_there_is_missed_in_the_home_that_the_program_named(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(resume="nobody", home=home.outside):
            pass

    with pytest.raises(OpeningFailed, match=f"no session `nobody` in `{home.outside}`"):
        run(main())


WRONG: list[Callable[[Session], Awaitable[object]]] = [
    lambda session: session.compact_at(math.nan),
    lambda session: session.compact_at(math.inf),
    lambda session: session.compact_at(2),
    lambda session: session.compact_at(True),
    lambda session: session.compact_at("0.5"),
    lambda session: session.compact(5),
    lambda session: session.send(5),
    lambda session: session.send(" \n"),
    lambda session: anext(session.stream(5)),
    lambda session: anext(session.stream_events(5)),
    lambda session: session.inject(None),
    lambda session: session.answer("x", granted="yes"),
    lambda session: session.answer("x", granted=True, scope="for ever"),
    lambda session: session.answer("nothing", granted=True),
    lambda session: session.revoke(5),
    lambda session: session.raise_budget("cookies", 5),
    lambda session: session.raise_budget("steps", math.nan),
    lambda session: session.change_mode("free"),
    lambda session: session.change_model(5),
    lambda session: session.rename(5),
    lambda session: session.fork(5),
    lambda session: session.close(5),
    lambda session: session.note("x", {"x": math.nan}),
    lambda session: session.note("x", 5),
    lambda session: session.go_on(),
]


@covers("library.every-error-is-ours")
def test_every_error_of_a_session_is_ours(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(model="demo") as session:
            before = len(session.timeline())
            for number, wrong in enumerate(WRONG):
                with pytest.raises(CurtainwallError):
                    await wrong(session)
                assert len(session.timeline()) == before, number
            with pytest.raises(CurtainwallError):
                session.timeline("all")
            assert issubclass(TryLater, CurtainwallError)
        for read in (lambda: session.info, session.history, session.timeline, lambda: session.context):
            with pytest.raises(CurtainwallError):
                read()
        with pytest.raises(Closed, match="has left the session"):
            await session.close()
        async with curtainwall.open_session(resume=session.id) as again:
            await again.close()
            await again.close()
        await again.close()

    run(main())


@covers("library.every-error-is-ours")
def test_every_error_of_teams_is_ours(home: Home) -> None:
    config = {"model": {"name": "demo"}, "teams": {"backend": {"project": str(home.project)}}}
    calls: list[Callable[[curtainwall.Teams], Awaitable[object]]] = [
        lambda teams: teams.ask("backend", "hello", wait=math.nan),
        lambda teams: teams.ask("backend", "hello", wait="long"),
        lambda teams: teams.ask("backend", 5),
        lambda teams: teams.ask(5, "hello"),
        lambda teams: teams.ask("nobody", "hello"),
        lambda teams: teams.notify("backend", "hello", days=math.inf),
        lambda teams: teams.history("backend", limit=-1),
    ]

    async def main() -> None:
        async with curtainwall.open_teams(config=config) as teams:
            for call in calls:
                with pytest.raises(CurtainwallError):
                    await call(teams)
        with pytest.raises(CurtainwallError):
            async with curtainwall.open_teams(5):
                pass
        for wrong in ({"parts": 5}, {"home": ""}):
            with pytest.raises(CurtainwallError):
                async with curtainwall.open_teams(config=config, **wrong):
                    pass

    run(main())


@covers("library.public-names")
def test_every_public_name_is_listed_and_can_be_loaded() -> None:
    assert set(curtainwall.__all__) <= set(dir(curtainwall))
    for name in curtainwall.__all__:
        assert getattr(curtainwall, name) is not None
    with pytest.raises(AttributeError):
        _ = curtainwall.nothing
