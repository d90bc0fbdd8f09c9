"""A session's life in a program's hands: stopped, failed, out of budget, forked, reset, closed, and taken up by another process."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import curtainwall
from curtainwall.agents.builtin.language_model import Delta, ModelFault, ModelReply, Prompt
from curtainwall.library.session import Session
from curtainwall.model import (
    Basis,
    BudgetKind,
    CallDropped,
    CallFinished,
    Closed,
    CommandRefused,
    CompactionSkipped,
    GrantScope,
    InterruptAsked,
    MessageAccepted,
    Mode,
    ModelFailed,
    NotFound,
    OpeningFailed,
    TextStreamed,
    TurnFailed,
    TurnStatus,
    Usage,
    WithdrawMessage,
    WorkTimed,
)
from tests.support.covers import covers
from tests.support.hooking import command, python
from tests.support.talking import Counted, Held, Home, Playing, of, playing, run, runs, until

WAITING, DONE, INTERRUPTED = TurnStatus.WAITING, TurnStatus.DONE, TurnStatus.INTERRUPTED


def ask_outside(home: Home, name: str = "a") -> str:
    return f'await filesystem.write_file(path="{home.outside}/{name}", content="1")\n"written"'


async def shown(session: Session, held: Held, text: str) -> "asyncio.Task[curtainwall.Reply]":
    """Send a message whose reply gets stuck, and return once it has."""
    sending = asyncio.create_task(session.send(text))
    await held.shown.wait()
    return sending


def test_whoever_still_waits_when_the_program_leaves_the_session_is_told_so(home: Home) -> None:
    async def story() -> None:
        sent, streamed = Held("Once upon a time "), Held("there was ")
        async with asyncio.timeout(60):
            async with curtainwall.open_session(model=playing(sent)) as session:
                sending = await shown(session, sent, "a tale")
            with pytest.raises(Closed, match="has left the session"):
                await sending
            async with curtainwall.open_session(model=playing(streamed)) as session:
                reading = asyncio.create_task(_read(session))
                await streamed.shown.wait()
            with pytest.raises(Closed, match="has left the session"):
                await reading
            with pytest.raises(Closed, match="has left the session"):
                await session.send("another one")

    async def _read(session: Session) -> list[str]:
        return [text async for text in session.stream("a tale")]

    run(story())


@covers("agents.interruption-keeps-what-was-shown")
def test_an_interrupt_in_the_middle_of_a_reply_keeps_the_partial_text(home: Home) -> None:
    held = Held("Once upon a time there was ")
    model = playing(held, "Where was I?")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            sending = await shown(session, held, "a story")
            await session.interrupt()
            reply = await sending
            assert (reply.status, reply.text.strip()) == (INTERRUPTED, "Once upon a time there was")
            assert held.was_closed
            assert "".join(piece.text for piece in of(TextStreamed, session.timeline())) == held.text
            assert [failed.failure for failed in of(ModelFailed, session.timeline())] == ["interrupted"]
            assert len(of(WorkTimed, session.timeline())) == 1
            assert (await session.send("go on")).text == "Where was I?"

    run(main())
    assert model.heard == ["human: a story", f"agent: {held.text}[cut off here]", "human: go on"]


@covers("agents.interruption-drops-open-asks")
def test_an_interrupt_while_a_human_is_asked_drops_the_ask_and_the_program_has_a_result(home: Home) -> None:
    model = playing(runs(ask_outside(home)), "fine")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            [ask] = (await session.send("write it")).pending
            await session.interrupt()
            assert (session.pending, session.info.status) == ((), "ready")
            assert len(of(CallDropped, session.timeline())) == 1
            with pytest.raises(CommandRefused):
                await session.answer(ask.approval, granted=True)
            assert (await session.send("leave it")).text == "fine"

    run(main())
    assert model.results[0].startswith("The program was stopped")
    assert list(home.outside.iterdir()) == []


def test_an_interrupt_while_a_program_computes_frees_the_worker_at_once(home: Home) -> None:
    home.configure("[code]\nseconds = 3600\n")
    model = playing(runs('await filesystem.write_file(path="a", content="1")\nwhile True:\n    pass'), "fine")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            sending = asyncio.create_task(session.send("loop"))
            await until(session, CallFinished)
            await session.interrupt()
            assert (await sending).status is INTERRUPTED
            assert (await session.send("better")).text == "fine"

    run(main())


@covers("library.idle-interrupt")
def test_where_nothing_runs_an_interrupt_does_nothing(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(model=playing()) as session:
            before = len(session.timeline())
            await session.interrupt()
            await session.send("a")
            await session.interrupt()
            assert (await session.send("b")).status is DONE
            assert not of(InterruptAsked, session.timeline())
            assert before
            await session.close()
            with pytest.raises(Closed):
                await session.interrupt()

    run(main())


@covers("agents.a-failed-turn-keeps-the-message")
def test_a_failure_keeps_the_message_and_leaves_the_session_usable(home: Home) -> None:
    model = playing(ModelFault("key", "the key is not valid"), "hello")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            with pytest.raises(TurnFailed, match="the key is not valid"):
                await session.send("first")
            [turn] = session.history()
            assert ([said.text for said in turn.asked], turn.status, turn.failure) == (["first"], TurnStatus.FAILED, "the key is not valid")
            assert session.info.status == "ready"
            assert (await session.send("second")).text == "hello"

    run(main())
    assert model.heard == ["human: first", "human: second"]


def test_a_model_that_is_not_there_fails_the_turn_and_a_change_of_model_helps(home: Home) -> None:
    model = playing("hello")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            with pytest.raises(NotFound, match="nowhere"):
                await session.change_model("nowhere:nothing")
        async with curtainwall.open_session(resume=session.id) as again:
            with pytest.raises(TurnFailed, match="there is no model `playing`"):
                await again.send("first")
            await again.compact()
            [skipped] = await until(again, CompactionSkipped)
            await again.change_model("demo")
            assert (await again.send("hello")).status is DONE
            assert "there is no model `playing`" in skipped.why

    run(main())


def test_a_model_that_breaks_in_a_way_of_its_own_fails_the_turn_alone(home: Home) -> None:
    class Breaking(Playing):
        async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
            if not self.made:
                self.made = 1
                raise KeyError("oops")
            async for piece in super().reply(prompt):
                yield piece

    async def main() -> None:
        async with curtainwall.open_session(model=Breaking(["hello"])) as session:
            with pytest.raises(TurnFailed, match="a fault of ours: KeyError"):
                await session.send("first")
            assert (await session.send("second")).text == "hello"

    run(main())


@covers("agents.budgets-park-and-a-raise-goes-on")
def test_a_used_up_budget_parks_the_turn_and_a_raise_goes_on(home: Home) -> None:
    home.configure("[limits]\nsteps = 2\n")
    model = playing(runs("1"), runs("2"), "three")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.pending, session.info.exhausted) == (WAITING, (), (BudgetKind.STEPS,))
            assert (await session.go_on()).status is WAITING
            await session.raise_budget(BudgetKind.STEPS, 10)
            reply = await session.go_on()
            assert (reply.status, reply.text) == (DONE, "three")

    run(main())
    assert len(model.prompts) == 3


@covers("agents.budgets-park-and-a-raise-goes-on")
def test_a_message_after_the_last_of_the_budget_waits_for_a_raise(home: Home) -> None:
    home.configure("[limits]\nsteps = 1\n")
    model = playing("one", "two")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("first")).text == "one"
            reply = await session.send("second")
            assert (reply.status, reply.text) == (WAITING, "")
            assert (await session.go_on()).status is WAITING
            await session.raise_budget(BudgetKind.STEPS, 10)
            assert (await session.go_on()).text == "two"

    run(main())


def test_each_figure_of_the_budget_says_how_sure_it_is(home: Home) -> None:
    usage = Usage(input_tokens=700, output_tokens=50, dollars=0.25, tokens_basis=Basis.MEASURED, dollars_basis=Basis.MEASURED)
    model = playing(Counted("counted", usage), "guessed")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("first")
            told = {figure.kind: (figure.used, figure.basis) for figure in session.budget}
            assert told[BudgetKind.TOKENS] == (750, Basis.MEASURED)
            assert told[BudgetKind.DOLLARS] == (0.25, Basis.MEASURED)
            assert told[BudgetKind.STEPS] == (1, Basis.MEASURED)
            assert (session.context.used, session.context.size, session.context.measured) == (750, 1_000_000, True)
            await session.send("second")
            assert {figure.kind: figure.basis for figure in session.budget}[BudgetKind.TOKENS] is Basis.ESTIMATED
            assert not session.context.measured

    run(main())


@covers("agents.a-stop-hook-sends-back")
def test_a_hook_at_the_end_of_a_turn_sends_the_agent_back_to_work(home: Home) -> None:
    seen = home.root.parent / "seen"
    body = (
        f"event = json.load(sys.stdin)\nopen({str(seen)!r}, 'a').write(json.dumps(event) + '\\n')\n"
        "if not event['stop_hook_active']:\n    print(json.dumps({'decision': 'block', 'reason': 'the tests are missing'}))"
    )
    hook = command(python(home.root.parent / "hook", body))
    home.configure(f'[[hooks.Stop]]\nhooks = [{{ type = "command", command = {json.dumps(hook["command"])} }}]\n')
    model = playing("done, I think", "now with tests")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.text) == (DONE, "done, I think\n\nnow with tests")

    run(main())
    assert model.heard[-1] == "human: You are not done yet: the tests are missing"
    told = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [event["last_assistant_message"] for event in told] == ["done, I think", "now with tests"]


def test_what_is_injected_is_known_at_the_next_message_and_asks_for_no_reply(home: Home) -> None:
    model = playing("80, you say")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.inject("the port is 80")
            assert model.prompts == []
            await session.send("which port?")
            assert len(session.history()) == 1

    run(main())
    assert model.heard == ["human: the port is 80", "human: which port?"]


def test_a_name_can_be_changed_and_not_taken_away(home: Home) -> None:
    async def main() -> None:
        async with curtainwall.open_session(model=playing(), name="one") as session:
            await session.rename("two")
            assert session.info.name == "two"
            with pytest.raises(CommandRefused, match="cannot be empty"):
                await session.rename(" ")

    run(main())


@covers("agents.a-fork-knows-and-goes-its-own-way")
def test_a_fork_knows_the_history_has_a_workspace_of_its_own_and_leaves_the_open_turn_to_its_parent(home: Home) -> None:
    model = playing(
        runs('await filesystem.write_file(path="a", content="1")'), "written", runs(ask_outside(home)), "in the fork", "in the parent"
    )

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("write a")
            [ask] = (await session.send("write outside")).pending
            fork = await session.fork("other")
            assert (fork.info.name, fork.info.parent, fork.info.status, fork.pending) == ("other", session.id, "ready", ())
            mine, theirs = Path(session.info.workspace.path), Path(fork.info.workspace.path)
            assert mine != theirs
            assert (theirs / "a").read_text() == "1"
            (theirs / "a").write_text("2")
            assert (mine / "a").read_text() == "1"
            assert (await fork.send("and you?")).text == "in the fork"
            assert model.heard[0] == "human: write a"
            assert model.heard[-2].startswith("result: The program was stopped")
            assert model.heard[-1] == "human: and you?"
            await session.answer(ask.approval, granted=True)
            assert (await session.go_on()).text == "in the parent"
            assert (await session.fork()).info.name.endswith("(fork)")

    run(main())
    assert model.results[-1] == "written"


@covers("agents.a-reset-starts-afresh")
def test_a_reset_keeps_the_workspace_and_the_labels_and_nothing_that_was_granted(home: Home) -> None:
    (home.project / ".env").write_text("colour=blue")
    model = playing(runs('await filesystem.read_file(path=".env")'), "read", runs(ask_outside(home)), "granted", "fresh")

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project, mode=Mode.ACCEPT_EDITS) as session:
            for text in ("read", "write"):
                reply = await session.send(text)
                while reply.status is WAITING:
                    await session.answer(reply.pending[0].approval, granted=True, scope=GrantScope.SESSION)
                    reply = await session.go_on()
            before = session.info
            assert before.labels
            assert before.grants
            again = await session.reset()
            after = again.info
            assert (after.parent, after.workspace.path, after.grants, after.mode) == (session.id, str(home.project), (), Mode.DEFAULT)
            assert [label.label for label in after.labels] == [label.label for label in before.labels]
            assert (await again.send("who are you?")).text == "fresh"

    run(main())
    assert model.heard == ["human: who are you?"]


def test_closing_twice_is_harmless_and_nothing_is_said_afterwards(home: Home) -> None:
    async def main() -> Path:
        async with curtainwall.open_session(model=playing("hi")) as session:
            await session.send("hello")
            await session.close("enough")
            await session.close("enough")
            assert session.info.status == "closed"
            for late in (session.send("more"), session.go_on(), session.interrupt(), session.compact()):
                with pytest.raises(Closed):
                    await late
            assert len(session.history()) == 1
            return Path(session.info.workspace.path)

    assert run(main()).is_dir()


def test_closing_in_the_middle_of_a_reply_ends_it(home: Home) -> None:
    held = Held("I was about to ")

    async def main() -> None:
        async with curtainwall.open_session(model=playing(held)) as session:
            sending = await shown(session, held, "go")
            await session.close()
            assert (await sending).status is INTERRUPTED
            assert held.was_closed

    run(main())


def test_a_message_that_is_withdrawn_is_never_taken_up_and_whoever_sent_it_is_told(home: Home) -> None:
    held = Held("busy ")
    model = playing(held, "after")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            first = await shown(session, held, "one")
            second = asyncio.create_task(session.send("two"))
            await until(session, MessageAccepted, 2)
            [waiting] = session.info.queue
            assert waiting.text == "two"
            by = of(MessageAccepted, session.timeline())[0].by
            await session._work.desk.send(session.id, WithdrawMessage(by=by, message=waiting.message))
            with pytest.raises(CommandRefused, match="withdrawn"):
                await second
            await session.interrupt()
            await first
            assert (await session.send("three")).text == "after"

    run(main())
    assert "human: two" not in model.heard


CHILD = """
import asyncio, sys, curtainwall
async def main():
    async with curtainwall.open_session(resume=sys.argv[1]) as session:
        for ask in session.pending:
            await session.answer(ask.approval, granted=True)
        print((await session.go_on()).text)
        print((await session.send("and now?")).text)
asyncio.run(main())
"""


@covers("agents.sessions-are-taken-up-by-other-processes")
def test_another_process_takes_a_parked_session_up_and_goes_on(home: Home) -> None:
    script = home.root.parent / "script.jsonl"
    lines = [{"code": f'await filesystem.write_file(path="a", content="1")\n{ask_outside(home)}'}, {"text": "first"}, {"text": "second"}]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def main() -> str:
        async with curtainwall.open_session(model=f"script:{script}") as session:
            assert (await session.send("go")).status is WAITING
            return session.id

    session = run(main())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, session[:10]], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout) == (0, "first\nsecond\n"), done.stderr
    assert (home.outside / "a").read_text() == "1"


@covers("agents.replies-answer-their-message")
def test_a_message_behind_a_turn_that_waits_is_answered_with_its_own_words_alone(home: Home) -> None:
    model = playing(runs(ask_outside(home), text="one moment"), "first", "second")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("one")).text == "one moment"
        async with curtainwall.open_session(model=model, resume=session.id) as again:
            waiting = await again.send("two")
            assert (waiting.status, waiting.text, waiting.usage) == (WAITING, "", ())
            assert (await again.go_on()).text == "", "nobody has answered yet"
            [ask] = again.pending
            await again.answer(ask.approval, granted=True)
            reply = await again.go_on()
            assert (reply.status, reply.text) == (DONE, "second")
            assert [turn.text for turn in again.history()] == ["one moment\n\nfirst", "second"]
            with pytest.raises(CommandRefused, match="no turn runs or waits"):
                await again.go_on()

    run(main())


@dataclass
class Late(Playing):
    """Says the first half of its first reply, and the second half when it is let."""

    shown: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        is_first = not self.prompts
        async for part in super().reply(prompt):
            if is_first and isinstance(part, ModelReply):
                self.shown.set()
                await self.may_end.wait()
                yield Delta(" and the late half")
                whole = f"{part.message.text} and the late half"
                yield replace(part, message=part.message.model_copy(update={"text": whole}))
            else:
                yield part


@covers("agents.replies-answer-their-message")
def test_the_late_words_of_a_stream_that_was_left_are_not_taken_for_the_next_answer(home: Home) -> None:
    model = Late(["the first half", "the second answer"])

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            stream = session.stream("one")
            assert "".join([await anext(stream)])
            await model.shown.wait()
            await stream.aclose()
            reading = asyncio.create_task(_read(session))
            await until(session, MessageAccepted, 2)
            model.may_end.set()
            assert await reading == "the second answer"
            assert [turn.text for turn in session.history()] == ["the first half and the late half", "the second answer"]

    async def _read(session: Session) -> str:
        return "".join([piece async for piece in session.stream("two")])

    run(main())


def test_a_session_that_is_left_in_the_middle_of_a_reply_is_asked_again_when_it_is_taken_up(home: Home) -> None:
    held = Held("half a ")
    model = playing(held, "a whole answer")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            sending = await shown(session, held, "go")
            sending.cancel()
        async with curtainwall.open_session(model=model, resume=session.id) as again:
            assert (await again.go_on()).text == "a whole answer"
            assert len(again.history()) == 1

    run(main())


def test_what_cannot_be_opened_says_why(home: Home) -> None:
    async def opened(**wish: Any) -> None:
        async with curtainwall.open_session(**wish):
            pass

    for wish, why in (
        ({"model": "nowhere:nothing"}, "there is no model"),
        ({"resume": "nothing"}, "there is no session"),
        ({"workspace": home.root}, "cannot be a workspace"),
    ):
        with pytest.raises(OpeningFailed, match=why):
            run(opened(**wish))


def test_a_session_that_is_taken_up_with_another_model_uses_that(home: Home) -> None:
    other = playing("from the other", name="other")

    async def main() -> None:
        async with curtainwall.open_session(model=playing("one")) as session:
            await session.send("hi")
        async with curtainwall.open_session(model=other, resume=session.id) as again:
            assert (await again.send("and you?")).text == "from the other"
            assert again.info.model == "other"

    run(main())
    assert other.heard == ["human: hi", "agent: one", "human: and you?"]


@covers("agents.usage-survives-a-full-disk")
def test_what_a_reply_cost_is_counted_though_the_reply_could_not_be_kept(home: Home) -> None:
    usage = Usage(input_tokens=900, output_tokens=100, dollars=0.25)
    model = playing(Counted("long " * 10_000, usage), "fine")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            blobs, away = home.root / "blobs", home.root / "away"
            blobs.rename(away)
            blobs.write_text("in the way")
            with pytest.raises(TurnFailed, match="cannot be used"):
                await session.send("tell me everything")
            [failed] = of(ModelFailed, session.timeline())
            assert failed.usage == usage
            blobs.unlink()
            away.rename(blobs)
            assert (await session.send("again")).text == "fine"
            [tokens] = [it.used for it in session.info.budget if it.kind is BudgetKind.TOKENS]
            assert tokens > 1_000

    run(main())
