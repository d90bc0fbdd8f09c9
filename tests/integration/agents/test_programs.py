"""Programs of the agent in real workers: asked about, answered in any order and by anyone, never run twice, stopped before harm."""

import asyncio
import json
import re
import subprocess
import sys

import pytest

import curtainwall
from curtainwall.library.session import Session
from curtainwall.model import (
    ApprovalAsked,
    CallFinished,
    CallPermitted,
    CallRequested,
    CommandRefused,
    GrantScope,
    Place,
    Prepared,
    ProgramFinished,
    ProgramSaved,
    ToolResult,
    TurnStatus,
)
from curtainwall.tools import NATIVE_TOOLS, Runner
from tests.support.covers import covers
from tests.support.houses import FarSide
from tests.support.repository import ROOT
from tests.support.talking import Home, names_in, of, playing, read_in, run, runs, write_in

WAITING, DONE = TurnStatus.WAITING, TurnStatus.DONE


def far_side(home: Home) -> tuple[FarSide, dict[str, Runner]]:
    far = FarSide(home.root.parent / "far")
    return far, {spec.full_name: far.run for spec in NATIVE_TOOLS}


async def answer_all(session: Session, *, granted: bool = True) -> None:
    for ask in session.pending:
        await session.answer(ask.approval, granted=granted)


@covers("agents.programs-continue-where-they-waited")
def test_after_an_answer_the_program_goes_on_with_the_next_line_and_repeats_nothing(home: Home) -> None:
    far, tools = far_side(home)
    code = f"""
print("begin", end="")
await filesystem.write_file(path="a.txt", content="1")
seen = len([n for n in range(1000) if n % 7 == 0])
await filesystem.write_file(path="{home.outside}/b.txt", content="2")
print(" end", seen)
await filesystem.write_file(path="c.txt", content="3")
"all of it"
"""
    model = playing(runs(code), "That was it.")

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=tools) as session:
            reply = await session.send("go")
            assert reply.status is WAITING
            assert [line.rpartition("/")[2] for line in far.lines] == ["a.txt"]
            [ask] = reply.pending
            assert ask.subject.tool == "filesystem.write_file"
            await session.answer(ask.approval, granted=True)
            reply = await session.go_on()
            assert (reply.status, reply.text, reply.pending) == (DONE, "That was it.", ())
            assert len(of(ProgramFinished, session.timeline())) == 1

    run(main())
    assert [line.rpartition("/")[2] for line in far.lines] == ["a.txt", "b.txt", "c.txt"]
    assert model.results == ["begin end 143\nall of it"]
    assert len(model.prompts) == 2


@covers("agents.programs-continue-where-they-waited")
def test_two_waits_in_one_gather_are_answered_in_the_reverse_order(home: Home) -> None:
    far, tools = far_side(home)
    code = f"""
import asyncio
import re
async def write(name):
    print("wants", name)
    await filesystem.write_file(path="{home.outside}/" + name, content=name)
    print("has", name)
    await filesystem.write_file(path="after-" + name, content=name)
    return name
print(await asyncio.gather(write("left"), write("right")))
"""
    model = playing(runs(code))

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=tools) as session:
            reply = await session.send("go")
            left, right = sorted(reply.pending, key=lambda ask: str(ask.subject.raw["path"]))
            await session.answer(right.approval, granted=True)
            reply = await session.go_on()
            assert reply.status is WAITING
            assert [ask.approval for ask in reply.pending] == [left.approval]
            assert [line.rpartition("/")[2] for line in far.lines] == ["right", "after-right"]
            await session.answer(left.approval, granted=True)
            assert (await session.go_on()).status is DONE

    run(main())
    assert [line.rpartition("/")[2] for line in far.lines] == ["right", "after-right", "left", "after-left"]
    assert model.results[0].splitlines() == ["wants left", "wants right", "has right", "has left", "['left', 'right']"]


def test_the_same_ask_twice_in_one_gather_is_one_ask_and_one_effect(home: Home) -> None:
    far, tools = far_side(home)
    write = f'filesystem.write_file(path="{home.outside}/a", content="1")'
    model = playing(runs(f"import asyncio\nprint(await asyncio.gather({write}, {write}))"))

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools=tools) as session:
            reply = await session.send("go")
            [ask] = reply.pending
            assert ask.shared_by == 2
            assert (await session.go_on()).status is WAITING
            await session.answer(ask.approval, granted=True)
            assert (await session.go_on()).status is DONE

    run(main())
    assert len(far.lines) == 1
    assert model.results == ["['done', 'done']"]


def test_a_message_behind_a_turn_that_waits_is_told_to_wait_and_taken_up_afterwards(home: Home) -> None:
    model = playing(runs(f'await filesystem.write_file(path="{home.outside}/a", content="1")'), "first", "second")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("one")).status is WAITING
            reply = await session.send("two")
            assert (reply.status, len(reply.pending), len(session.info.queue)) == (WAITING, 1, 1)
            await answer_all(session)
            assert (await session.go_on()).text == "first"
            assert (await session.go_on()).text == "second"

    run(main())


@covers("agents.answers-come-from-anywhere")
def test_another_process_answers_and_the_program_goes_on_here(home: Home) -> None:
    model = playing(runs(f'print(await filesystem.read_file(path="{home.outside}/note"))'), "read")
    (home.outside / "note").write_text("seen from outside")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            [ask] = (await session.send("go")).pending
            going_on = asyncio.create_task(session.go_on())
            command = [sys.executable, "-m", "curtainwall", "approve", ask.approval]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            assert (await going_on).status is WAITING
            # Whether the turn ends before or after this, it is told.
            reply = await session.go_on()
            assert (reply.status, reply.text) == (DONE, "read")

    run(main())
    assert model.results == ["seen from outside"]


LONG = "".join(f"line {number}\n" for number in range(20_000))


@covers("agents.programs-get-results-whole")
def test_a_program_that_copies_a_long_file_writes_all_of_it(home: Home) -> None:
    model = playing(runs('await filesystem.write_file(path="copy.txt", content=await filesystem.read_file(path="long.txt"))'), "copied")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            write_in(session, "long.txt", LONG)
            assert (await session.send("go")).status is DONE
            assert read_in(session, "copy.txt") == LONG

    run(main())


@covers("agents.programs-get-results-whole")
def test_a_long_result_has_the_type_that_the_signature_says(home: Home) -> None:
    code = (
        'files = await filesystem.read_multiple_files(paths=["long.txt", "short.txt"])\n[len(file.get("content") or "") for file in files]'
    )
    model = playing(runs(code), "read")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            write_in(session, "long.txt", LONG)
            write_in(session, "short.txt", "short")
            await session.send("go")

    run(main())
    assert [json.loads(result) for result in model.results] == [[len(LONG), 5]]


@covers("agents.programs-get-results-whole")
def test_a_long_result_of_a_call_that_another_process_approved_is_whole(home: Home) -> None:
    model = playing(runs(f'len(await filesystem.read_file(path="{home.outside}/long.txt"))'), "read")
    (home.outside / "long.txt").write_text(LONG)

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            [ask] = (await session.send("go")).pending
            command = [sys.executable, "-m", "curtainwall", "approve", ask.approval]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            assert (await session.go_on()).status is DONE

    run(main())
    assert model.results == [str(len(LONG))]


@covers("agents.programs-get-results-whole")
def test_a_long_result_that_two_calls_share_is_whole_for_both(home: Home) -> None:
    read = f'filesystem.read_file(path="{home.outside}/long.txt")'
    model = playing(runs(f"import asyncio\n[len(text) for text in await asyncio.gather({read}, {read})]"), "read")
    (home.outside / "long.txt").write_text(LONG)

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            await answer_all(session)
            assert (await session.go_on()).status is DONE

    run(main())
    assert [json.loads(result) for result in model.results] == [[len(LONG), len(LONG)]]


def test_the_words_of_a_failure_are_shortened_for_a_program_as_well(home: Home) -> None:
    async def fail(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=False, value=LONG)

    code = 'try:\n    await filesystem.read_file(path="a")\nexcept RuntimeError as error:\n    print(len(str(error)) < 31_000)'
    model = playing(runs(code), "read")

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools={"filesystem.read_file": fail}) as session:
            await session.send("go")

    run(main())
    assert model.results == ["True"]


@covers("agents.a-denial-is-a-permission-error")
def test_a_denial_by_a_human_is_an_error_that_the_program_can_catch(home: Home) -> None:
    code = f"""
try:
    await filesystem.write_file(path="{home.outside}/b.txt", content="2")
except PermissionError as fault:
    print("refused:", fault)
"after"
"""
    model = playing(runs(code))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            [ask] = (await session.send("go")).pending
            await session.answer(ask.approval, granted=False, reason="not there, please")
            assert (await session.go_on()).status is DONE

    run(main())
    assert "denied-by-human" in model.results[0]
    assert "not there, please" in model.results[0]
    assert model.results[0].endswith("after")
    assert list(home.outside.iterdir()) == []


@covers("agents.a-denial-is-a-permission-error")
def test_a_denial_by_a_rule_names_the_rule_and_asks_nobody(home: Home) -> None:
    model = playing(runs(f'await filesystem.read_file(path="{home.root}/keys/mask")'))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.pending) == (DONE, ())

    run(main())
    assert "PermissionError: denied by `protected-path`" in model.results[0]


@covers("agents.wrong-types-stop-before-the-first-effect")
def test_wrong_types_stop_the_program_before_its_first_effect(home: Home) -> None:
    code = """
there = await filesystem.list_directory(path=".")
print("looked")
await filesystem.write_file(path="a.txt", content="fine so far")
await filesystem.write_file(path="b.txt", content=2)
"""
    model = playing(runs(code), runs('await filesystem.write_file(path="c.txt", content="2")'))

    async def main() -> list[str]:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            ran = [call.subject.tool for call in of(CallRequested, session.timeline())]
            assert ran == ["filesystem.list_directory", "filesystem.write_file"]
            return names_in(session)

    assert run(main()) == ["c.txt"]
    assert model.results[0].startswith(
        "looked\nThe program was stopped before it changed anything, because its types are wrong:\nline 5, column "
    )


def test_an_ask_for_reading_in_a_program_of_wrong_types_is_answered_and_then_the_program_stops(home: Home) -> None:
    (home.outside / "note").write_text("seen")
    code = f"""
print(await filesystem.read_file(path="{home.outside}/note"))
await filesystem.write_file(path=2, content="x")
"""
    model = playing(runs(code))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            await answer_all(session)
            assert (await session.go_on()).status is DONE

    run(main())
    assert model.results[0].startswith("seen\nThe program was stopped before it changed anything")


def test_a_grant_for_the_session_is_not_asked_again(home: Home) -> None:
    code = f'await filesystem.write_file(path="{home.outside}/a", content="1")'
    model = playing(runs(code), "one", runs(code), "two")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            [ask] = (await session.send("go")).pending
            await session.answer(ask.approval, granted=True, scope=GrantScope.SESSION)
            assert (await session.go_on()).text == "one"
            assert (await session.send("again")).text == "two"
            [grant] = session.grants
            await session.revoke(grant.id)
            assert session.grants == ()
            assert len(of(ApprovalAsked, session.timeline())) == 1

    run(main())


def test_several_programs_of_one_reply_run_one_after_the_other(home: Home) -> None:
    outside = f'await filesystem.write_file(path="{home.outside}/a", content="1")\n"second"'
    model = playing(runs("'first'", outside, "'third'"))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("go")).status is WAITING
            assert len(of(ProgramFinished, session.timeline())) == 1
            await answer_all(session)
            assert (await session.go_on()).status is DONE

    run(main())
    assert model.results == ["first", "second", "third"]


def test_a_program_and_the_permit_of_its_effect_are_written_together(home: Home) -> None:
    model = playing(runs('await filesystem.write_file(path="a", content="1")\nawait filesystem.read_file(path="a")'))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")
            events = [each.event for each in session.timeline()]
            [saved] = of(ProgramSaved, events)
            at = events.index(saved)
            assert [type(event) for event in events[at - 2 : at + 1]] == [CallRequested, CallPermitted, ProgramSaved]
            assert len(of(CallFinished, events)) == 2

    run(main())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_smallest_pool_is_enough_for_a_program_and_its_check(home: Home, workers: int) -> None:
    home.configure(f"[code]\nworkers = {workers}\n")
    model = playing(runs('await filesystem.write_file(path="a", content="1")\n"written"'))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("go")).status is DONE

    run(main())
    assert model.results == ["written"]


def test_an_ask_that_the_program_does_not_wait_for_is_dropped_with_its_end(home: Home) -> None:
    code = f"""
import asyncio
import re
async def late():
    await filesystem.write_file(path="{home.outside}/a", content="1")
async def fails():
    await filesystem.read_file(path="nothing-there")
await asyncio.gather(late(), fails())
"""
    model = playing(runs(code))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, session.pending) == (DONE, ())

    run(main())
    assert "RuntimeError" in model.results[0]
    assert list(home.outside.iterdir()) == []


def test_streamed_text_is_the_reply(home: Home) -> None:
    told = "A long answer, in many pieces. " * 20
    model = playing(told)

    async def main() -> str:
        async with curtainwall.open_session(model=model) as session:
            return "".join([piece async for piece in session.stream("go")])

    assert run(main()) == told


def test_messages_of_one_turn_are_told_apart_as_they_come(home: Home) -> None:
    model = playing(runs("1", text="I look. " * 20), runs("2"), runs("3", text="I look again."), "I have seen it.")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            pieces = [piece async for piece in session.stream("go")]
            assert "".join(pieces) == session.history()[-1].text
            assert pieces.count("\n\n") == 2

    run(main())


def test_nothing_can_be_gone_on_with_where_nothing_waits(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(model=playing("hello")) as session:
            with pytest.raises(CommandRefused, match="no turn runs or waits"):
                await session.go_on()
            await session.send("hi")
            with pytest.raises(CommandRefused, match="no turn runs or waits"):
                await session.go_on()

    run(main())


@covers("agents.a-slow-call-holds-no-worker")
def test_a_program_whose_call_takes_a_while_leaves_its_worker_to_others_and_goes_on_where_it_was(home: Home) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def slow(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        begun.set()
        await over.wait()
        return ToolResult(ok=True, value="at last")

    far, tools = far_side(home)
    waits = 'before = [n * n for n in range(5)]\nprint("begin")\nsaid = await shell.run(command="sleep")\nprint(said, before)'
    model = playing(runs(waits), runs('print(await filesystem.write_file(path="b", content="2"))'), "quick", "slow")
    home.configure("[code]\nworkers = 1\n")

    async def main() -> None:
        async with curtainwall.open_session(model=model, tools={**tools, "shell.run": slow}) as session:
            first = asyncio.create_task(session.send("go"))
            await begun.wait()
            other = await session.reset()
            assert (await other.send("go")).text == "quick"
            assert not first.done()
            over.set()
            assert (await first).text == "slow"

    run(main())
    assert len(far.lines) == 1
    assert model.results == ["begin\nat last [0, 1, 4, 9, 16]"]


def test_the_program_on_the_page_of_the_agent_runs(home: Home) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "agent.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    model = playing(runs(code))

    async def get(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=True, value=f"from {prepared.arguments['url']}")

    async def main() -> None:
        home.configure('[lists]\nhosts = ["a.example", "b.example"]\n')
        async with curtainwall.open_session(model=model, tools={"fetch.get": get}) as session:
            write_in(session, "notes.txt", "four")
            assert (await session.send("go")).status is DONE

    run(main())
    assert model.results == ["4\nfrom https://a.example/"]
