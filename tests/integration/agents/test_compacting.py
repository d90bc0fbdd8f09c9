"""Older messages become a summary when the context fills up or somebody asks; where that fails, everything stays as it was."""

import asyncio

import pytest

import curtainwall
from curtainwall.agents.builtin.compaction import estimate_items, estimate_tokens
from curtainwall.agents.builtin.language_model import AgentMessage, ModelFault, ProgramOutcome
from curtainwall.library.session import Session
from curtainwall.model import Basis, CompactionSkipped, HistoryCompacted, ModelRequested, TurnFailed, TurnStatus, Usage
from tests.support.covers import covers
from tests.support.hooking import python
from tests.support.talking import Counted, Held, Home, Line, Playing, of, playing, run, runs, until, words

SIZE = 40_000


def counted(text: str, tokens: int) -> Counted:
    return Counted(text, Usage(input_tokens=tokens, output_tokens=0, tokens_basis=Basis.MEASURED))


def small(*lines: Line, **rest: object) -> Playing:
    return Playing(list(lines), context_size=SIZE, **rest)  # pyright: ignore[reportArgumentType] - fields of `Playing`


async def talked(session: Session, *texts: str) -> None:
    for text in texts:
        await session.send(text)


@covers("agents.compaction-at-the-threshold")
def test_at_the_threshold_a_turn_begins_with_a_summary_and_the_figures_are_recorded(home: Home) -> None:
    model = small("one", "two", counted("three", 35_000), "four", summaries=["we counted to three"])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b", "c")
            assert of(HistoryCompacted, session.timeline()) == []
            assert (session.context.used, session.context.threshold) == (35_000, 0.835)
            assert (await session.send("d")).text == "four"
            [made] = of(HistoryCompacted, session.timeline())
            assert (made.trigger, made.before > 35_000, made.after < 10_000) == ("threshold", True, True)
            assert session.context.used < 10_000
            assert [turn.text for turn in session.history()] == ["one", "two", "three", "four"]
            assert "message_compaction" in [told.kind for told in session.diagnostics()]

    run(main())
    assert model.heard == [
        "human: [Summary of our conversation so far]\nwe counted to three",
        "agent: Understood. I go on from there.",
        "human: c",
        "agent: three",
        "human: d",
    ]
    [asked] = [prompt for prompt in model.prompts if not prompt.may_run]
    assert "PERSON: a" in words(asked.items)[0]
    assert model.prompts[-1].system == model.prompts[0].system


@covers("agents.compaction-at-the-threshold")
def test_the_threshold_can_be_set_while_running_and_switched_off(home: Home) -> None:
    model = small("one", counted("two", 39_000), counted("three", 39_000), counted("four", 10_000), "five")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.compact_at(None)
            await talked(session, "a", "b", "c", "d")
            assert (of(HistoryCompacted, session.timeline()), session.context.threshold) == ([], None)
            await session.compact_at(0.2)
            await session.send("e")
            assert len(of(HistoryCompacted, session.timeline())) == 1

    run(main())


@covers("agents.compaction-inside-a-turn")
def test_a_turn_that_outgrows_the_context_is_compacted_before_the_provider_refuses(home: Home) -> None:
    model = playing(*(runs(f"'{n:02}' * 14_500") for n in range(12)), "read it all", context_size=20_000)

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("read everything")
            assert (reply.status, reply.text) == (TurnStatus.DONE, "read it all")
            made = of(HistoryCompacted, session.timeline())
            assert {each.trigger for each in made} == {"threshold"}
            assert 3 <= len(made) <= 12
            assert all(each.after < each.before for each in made)
            assert len(session.history()) == 1

    run(main())
    sizes = [estimate_tokens(prompt.system) + estimate_items(prompt.items) for prompt in model.prompts]
    assert max(sizes) < 20_000, sizes
    for prompt in model.prompts:
        # A result without its program would be refused, and the task and the newest result must not get lost.
        named = {program.id for item in prompt.items if isinstance(item, AgentMessage) for program in item.programs}
        assert {item.id for item in prompt.items if isinstance(item, ProgramOutcome)} == named
    turns = [prompt for prompt in model.prompts if prompt.may_run]
    assert all(any(line == "human: read everything" for line in words(prompt.items)) for prompt in turns)
    for number, prompt in enumerate(turns[1:]):
        last = prompt.items[-1]
        assert isinstance(last, ProgramOutcome)
        assert last.text.startswith(f"{number:02}")


@covers("agents.compaction-inside-a-turn")
def test_where_a_summary_does_not_help_it_is_not_written_again_with_each_step(home: Home) -> None:
    model = playing(*(runs(f"{n}") for n in range(6)), "done", context_size=1_000)

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("count")).text == "done"

    run(main())
    assert sum(not prompt.may_run for prompt in model.prompts) <= 2


@covers("library.context-is-known-before-the-reply")
def test_the_context_is_estimated_before_a_reply_and_corrected_by_a_summary(home: Home) -> None:
    held = Held("thinking")
    model = small("one", counted("two", 30_000), held)

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (session.context.used, session.context.size, session.context.measured) == (0, SIZE, False)
            await talked(session, "a", "b")
            assert (session.context.used, session.context.measured) == (30_000, True)
            await session.compact()
            [made] = await until(session, HistoryCompacted)
            assert (session.context.used, session.context.measured) == (made.after, False)
            working = asyncio.create_task(session.send("c" * 4_000))
            await held.shown.wait()
            assert made.after + 1_000 <= session.context.used < made.after + 1_100
            assert not session.context.measured
            await session.interrupt()
            await working

    run(main())


@covers("agents.compaction-when-asked")
def test_asked_for_with_instructions_it_is_done_between_turns(home: Home) -> None:
    (home.project / "AGENTS.md").write_text("# Work\nbe quick\n# Compact Instructions\nkeep every file name\n")
    model = small("one", "two", "three")

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project) as session:
            await talked(session, "a", "b")
            await session.compact("remember the port")
            [made] = await until(session, HistoryCompacted)
            assert made.trigger == "asked"
            await session.send("c")

    run(main())
    [asked] = [prompt for prompt in model.prompts if not prompt.may_run]
    told = words(asked.items)[0]
    assert "remember the port" in told
    assert "keep every file name" in told
    assert "be quick" in model.prompts[-1].system
    assert model.heard[0].endswith("\na summary")


@pytest.mark.parametrize("summary", ["", "  \n ", ModelFault("rejected", "no summary today")])
@covers("agents.failed-compaction-changes-nothing")
def test_a_failed_or_empty_summary_leaves_everything_as_it_was(home: Home, summary: Line) -> None:
    model = small("one", "two", "three", summaries=[summary])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            await session.compact()
            [skipped] = await until(session, CompactionSkipped)
            assert skipped.why in ("the summary was empty", "no summary today")
            await session.send("c")

    run(main())
    assert model.heard == ["human: a", "agent: one", "human: b", "agent: two", "human: c"]


@covers("agents.failed-compaction-changes-nothing")
def test_a_turn_goes_on_where_the_summary_at_its_start_fails(home: Home) -> None:
    model = small("one", counted("two", 39_000), "three", summaries=[ModelFault("busy", "too many requests")])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            assert (await session.send("c")).text == "three"
            assert [skipped.why for skipped in of(CompactionSkipped, session.timeline())] == ["too many requests"]

    run(main())
    assert model.heard == ["human: a", "agent: one", "human: b", "agent: two", "human: c"]


@covers("agents.overflow-compacts-once")
def test_a_context_that_overflows_is_compacted_once_and_the_question_is_asked_again(home: Home) -> None:
    overflow = ModelFault("overflow", "too long; `/compact` helps")
    model = small("one", "two", runs("'x' * 29_000", "'y' * 29_000"), overflow, "answered")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            reply = await session.send("the real question")
            assert (reply.status, reply.text) == (TurnStatus.DONE, "answered")
            assert [made.trigger for made in of(HistoryCompacted, session.timeline())] == ["overflow"]

    run(main())
    assert model.heard[-1] == "human: the real question"


def test_a_context_that_overflows_again_fails_and_says_what_to_do(home: Home) -> None:
    overflow = ModelFault("overflow", "too long; `/compact` helps")
    model = small("one", "two", overflow, overflow, "later")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            with pytest.raises(TurnFailed, match="/compact"):
                await session.send("c")
            assert (await session.send("d")).text == "later"

    run(main())
    assert "human: c" in model.heard


@covers("agents.labels-outlive-compaction")
def test_labels_and_grants_stay_when_what_brought_them_is_only_a_summary(home: Home) -> None:
    (home.project / ".env").write_text("colour=blue")
    model = small(runs('await filesystem.read_file(path=".env")'), "read", "two", "three")

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project) as session:
            reply = await session.send("read")
            while reply.status is TurnStatus.WAITING:
                await session.answer(reply.pending[0].approval, granted=True)
                reply = await session.go_on()
            await session.send("b")
            labels = session.info.labels
            assert labels
            await session.compact()
            await until(session, HistoryCompacted)
            assert session.info.labels == labels

    run(main())


def test_a_hook_can_keep_a_history_from_being_compacted(home: Home) -> None:
    hook = python(home.root.parent / "hook", "print('not now', file=sys.stderr)\nsys.exit(2)")
    home.configure(f'[[hooks.PreCompact]]\nhooks = [{{ type = "command", command = "{hook}" }}]\n')
    model = small("one", "two")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            await session.compact()
            [skipped] = await until(session, CompactionSkipped)
            assert "a hook says no: " in skipped.why
            assert "not now" in skipped.why

    run(main())
    assert all(prompt.may_run for prompt in model.prompts)


def test_where_there_is_nothing_to_compact_that_is_said(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(model=playing("one")) as session:
            await session.send("a")
            await session.compact()
            [skipped] = await until(session, CompactionSkipped)
            assert skipped.why == "there is nothing that a summary could replace"
            assert [asked.purpose for asked in of(ModelRequested, session.timeline())] == ["turn"]

    run(main())


@covers("agents.compaction-when-asked")
def test_what_is_said_after_somebody_asked_for_a_summary_is_worked_on_after_it(home: Home) -> None:
    held = Held("thinking")
    model = small("one", "two", held, "four", summaries=["in short"])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            working = asyncio.create_task(session.send("c"))
            await held.shown.wait()
            await session.compact()
            waiting = asyncio.create_task(session.send("d"))
            while not session.info.queue:  # noqa: ASYNC110 - nobody tells when it is
                await asyncio.sleep(0.01)
            await session.interrupt()
            assert (await working).status is TurnStatus.INTERRUPTED
            assert (await waiting).text == "four"
            assert len(of(HistoryCompacted, session.timeline())) == 1

    run(main())
    assert model.heard[0].startswith("human: [Summary of our conversation so far]\nin short")
    assert model.heard[-1] == "human: d"


@covers("agents.compaction-when-asked")
def test_a_process_that_comes_later_knows_the_compacted_history_and_no_other(home: Home) -> None:
    model = small("one", "two", "three", "four", summaries=["in short"])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await talked(session, "a", "b")
            await session.compact()
            await until(session, HistoryCompacted)
            await session.send("c")
        heard = model.heard
        async with curtainwall.open_session(model=model, resume=session.id) as again:
            await asyncio.wait_for(again.send("d"), 60)
        assert model.heard == [*heard, "agent: three", "human: d"]

    run(main())
