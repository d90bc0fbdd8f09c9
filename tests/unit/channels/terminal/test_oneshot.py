"""One task: how it ends is its status and its exit code; results are on stdout, everything else on stderr."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from prompt_toolkit.input import create_pipe_input

from curtainwall.channels.terminal import OnAsk, OneShotSettings, Shape, one_shot
from curtainwall.channels.terminal.asks import GRACE_MILLIS
from curtainwall.model import (
    AnswerApproval,
    ApprovalAnswered,
    Basis,
    BudgetKind,
    BudgetWarned,
    CallFinished,
    CloseSession,
    InterruptAsked,
    Limits,
    MessageAccepted,
    MessageId,
    SendMessage,
    SessionId,
    TurnEnded,
    TurnStatus,
)
from tests.support.covers import covers
from tests.support.desks import Hand, MemoryDesk
from tests.support.given import ANN, BOB, NOW, PROJECT, SESSION, fetch, ready, write
from tests.support.houses import run, until

Play = Callable[[Hand], Any]


@dataclass
class Shot:
    """One task on a memory desk, with an agent that plays a part as soon as it may work."""

    play: Play
    task: str | None = "do it"
    desk: MemoryDesk = field(default_factory=lambda: MemoryDesk(*ready(PROJECT)))
    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)
    code: int = -1

    def take(self, shape: Shape = "text", on_ask: OnAsk = "park", **more: Any) -> "Shot":
        async def work() -> int:
            parts: list[asyncio.Task[None]] = []

            async def part() -> None:
                done = self.play(Hand(self.desk))
                if asyncio.iscoroutine(done):
                    await done

            def attend(session: SessionId) -> None:
                assert session == SESSION
                parts.append(asyncio.create_task(part()))

            settings = OneShotSettings(shape, on_ask, self.out, self.err, attend=attend, **more)
            code = await one_shot(self.desk.line, SESSION, ANN, self.task, settings)
            await asyncio.gather(*parts)
            return code

        self.code = run(work())
        return self

    @property
    def document(self) -> Any:
        [line] = self.out.getvalue().splitlines()
        return json.loads(line)


def answers(hand: Hand) -> None:
    hand.start()
    hand.use(100, 0.5)
    hand.speak("all *done*")
    hand.end()


def asks(hand: Hand) -> None:
    hand.start()
    hand.speak("I have to ask")
    hand.end(TurnStatus.WAITING, waits_for=[hand.want("c1", fetch("a.example"))])


@covers("oneshot.exit-codes")
def test_done_is_zero_and_the_text_is_on_stdout() -> None:
    shot = Shot(answers).take()
    assert (shot.code, shot.out.getvalue()) == (0, "all *done*\n")
    assert shot.desk.last(MessageAccepted).text == "do it"


@covers("oneshot.one-document")
def test_json_is_exactly_one_document() -> None:
    shot = Shot(answers).take("json")
    assert shot.document == {
        "session": SESSION,
        "status": "done",
        "text": "all *done*",
        "turns": 1,
        "files": [],
        "usage": {
            "input_tokens": 100,
            "output_tokens": 0,
            "cached_tokens": 0,
            "dollars": 0.5,
            "tokens_basis": "measured",
            "dollars_basis": "measured",
        },
        "pending": [],
    }


def test_a_sum_is_as_sure_as_its_least_sure_part() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.use(100)
        hand.use(10, basis=Basis.ESTIMATED)
        hand.end()

    usage = Shot(play).take("json").document["usage"]
    assert (usage["input_tokens"], usage["tokens_basis"]) == (110, "estimated")


def test_what_a_request_used_that_broke_off_is_in_the_sum() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.use(0, basis=Basis.UNKNOWN, failure="the provider answered with status 429")
        hand.use(40, 0.25, failure="the reply broke off")
        hand.use(100, 0.5)
        hand.end()

    usage = Shot(play).take("json").document["usage"]
    assert (usage["input_tokens"], usage["dollars"], usage["tokens_basis"]) == (140, 0.75, "measured")


def test_stream_json_is_one_line_for_each_event_and_the_result() -> None:
    lines = [json.loads(line) for line in Shot(answers).take("stream-json").out.getvalue().splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds == ["MessageAccepted", "TurnStarted", "ModelRequested", "ModelResponded", "AgentSpoke", "TurnEnded", "result"]
    assert [line["seq"] for line in lines[:-1]] == list(range(3, 9))
    assert lines[-1]["status"] == "done"


@covers("oneshot.exit-codes")
def test_a_failed_turn_is_one_and_says_why() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.stream("half a")
        hand.end(TurnStatus.FAILED, "the provider is gone")

    shot = Shot(play).take("json")
    assert (shot.code, shot.document["status"], shot.document["text"]) == (1, "failed", "half a")
    assert shot.document["failure"] == "the provider is gone"
    on = f"`curtainwall start --resume {SESSION} TASK` goes on with this session"
    assert shot.err.getvalue().splitlines()[-2:] == ["the turn failed: the provider is gone", on]


@covers("oneshot.exit-codes")
def test_a_refused_task_is_one() -> None:
    desk = MemoryDesk()
    desk.do(CloseSession(by=ANN, reason="enough"))
    shot = Shot(lambda _: None, desk=desk).take("json")
    assert (shot.code, shot.document["status"]) == (1, "failed")
    assert "this session is closed: enough" in shot.err.getvalue()
    assert "--resume" not in shot.err.getvalue()


@covers("oneshot.parked")
def test_a_parked_task_is_three_and_says_how_to_go_on() -> None:
    shot = Shot(asks).take("json")
    [approval] = shot.desk.state().approvals
    assert shot.code == 3
    assert shot.document["status"] == "waiting"
    [pending] = shot.document["pending"]
    assert (pending["id"], pending["tool"]) == (approval, "fetch.get")
    assert pending["because"]
    assert f"`curtainwall approve {approval}`" in shot.err.getvalue()
    assert f"`curtainwall start --resume {SESSION}`" in shot.err.getvalue()


@covers("oneshot.goes-on")
def test_without_a_task_it_goes_on_with_what_waits() -> None:
    desk = Shot(asks).take().desk
    [approval] = desk.state().approvals
    assert Shot(lambda _: None, None, desk).take().code == 3
    desk.do(AnswerApproval(by=ANN, approval=approval, granted=True))

    def play(hand: Hand) -> None:
        hand.resume()
        hand.go_on(hand.desk_wish("c1"))
        hand.speak("there it is")
        hand.end()

    shot = Shot(play, None, desk).take()
    assert (shot.code, shot.out.getvalue()) == (0, "there it is\n")


@covers("oneshot.parked")
def test_a_turn_with_one_of_two_answers_goes_on_before_it_is_parked_again() -> None:
    desk = MemoryDesk(*ready(PROJECT))
    desk.do(SendMessage(by=ANN, message=MessageId("m0"), text="first"))
    hand = Hand(desk)
    hand.start()
    first, second = hand.want("c1", fetch("a.example")), hand.want("c2", fetch("b.example"))
    hand.end(TurnStatus.WAITING, waits_for=[first, second])
    desk.do(AnswerApproval(by=ANN, approval=list(desk.state().approvals)[1], granted=True))

    async def play(hand: Hand) -> None:
        await until(desk.is_followed)
        hand.resume()
        hand.go_on(second)
        hand.speak("that one was there")
        hand.end(TurnStatus.WAITING, waits_for=[first])

    shot = Shot(play, None, desk).take("json")
    assert (shot.code, shot.document["text"], len(shot.document["pending"])) == (3, "that one was there", 1)


def test_without_a_task_and_with_nothing_to_go_on_with_it_is_done() -> None:
    shot = Shot(lambda _: None, None).take("json")
    assert (shot.code, shot.document["text"], shot.err.getvalue()) == (
        0,
        "",
        "nothing waits in this session; give a TASK to go on with it\n",
    )


@covers("oneshot.parked")
def test_a_task_behind_a_parked_turn_is_parked_too() -> None:
    desk = Shot(asks).take().desk
    shot = Shot(lambda _: None, "and this", desk).take("json")
    assert (shot.code, shot.document["status"]) == (3, "waiting")
    assert [it.text for it in desk.view(SESSION).queue] == ["and this"]


def test_a_used_up_budget_is_parked() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.use(20)
        hand.end(TurnStatus.WAITING)

    shot = Shot(play, desk=MemoryDesk(*ready(limits=Limits(tokens=10)))).take("json")
    assert shot.code == 3
    assert f"`curtainwall sessions budget {SESSION} tokens 40` allows more" in shot.err.getvalue(), "twice what was used"


@covers("oneshot.on-ask-deny")
def test_on_ask_deny_answers_every_ask_with_a_denial() -> None:
    async def play(hand: Hand) -> None:
        hand.start()
        hand.want("c1", fetch("a.example"))
        hand.want("c2", fetch("b.example"))
        await until(lambda: not hand.desk.state().approvals)
        hand.speak("then not")
        hand.end()

    shot = Shot(play).take(on_ask="deny")
    assert (shot.code, shot.out.getvalue()) == (0, "then not\n")
    answered = [event for event in shot.desk.logs[SESSION] if isinstance(event, ApprovalAnswered)]
    assert [(event.granted, event.reason) for event in answered] == [
        (False, "whoever started this task has every ask denied (--on-ask deny)")
    ] * 2


@covers("oneshot.on-ask-wait")
def test_on_ask_wait_waits_for_an_answer_from_elsewhere() -> None:
    async def play(hand: Hand) -> None:
        asks(hand)
        [approval] = hand.desk.state().approvals
        hand.desk.do(AnswerApproval(by=BOB, approval=approval, granted=True))
        hand.resume()
        hand.go_on(hand.desk_wish("c1"))
        hand.end()

    shot = Shot(play).take(on_ask="wait")
    assert shot.code == 0
    assert "approved once by bob" in shot.err.getvalue()


@covers("oneshot.keys")
@pytest.mark.parametrize(
    ("key", "granted", "words"), [("y", True, "approved once"), ("s", True, "approved for the session"), ("n", False, "denied")]
)
def test_at_a_terminal_the_card_is_shown_and_a_key_answers(key: str, granted: bool, words: str) -> None:
    with create_pipe_input() as typed:

        async def play(hand: Hand) -> None:
            hand.start()
            hand.want("c1", fetch("a.example"))
            await offered(shot)
            typed.send_text("w")
            await until(lambda: hand.desk.explained)
            typed.send_text(f"\x1b[200~y\x1b[201~q{key}")
            answered = await until(lambda: hand.desk.has(ApprovalAnswered) and hand.desk.last(ApprovalAnswered))
            assert answered.granted is granted
            hand.end()

        shot = Shot(play)
        shot.take(on_ask="wait", keys=True, input=typed)
    assert shot.code == 0
    assert "┃ tool: fetch.get" in shot.err.getvalue()
    assert f"{words} by ann" in shot.err.getvalue()
    assert len([event for event in shot.desk.logs[SESSION] if isinstance(event, ApprovalAnswered)]) == 1


def test_two_asks_come_one_after_the_other_and_one_answered_elsewhere_is_skipped() -> None:
    with create_pipe_input() as typed:

        async def play(hand: Hand) -> None:
            hand.start()
            hand.want("c1", fetch("a.example"))
            hand.want("c2", fetch("b.example"))
            first, second = hand.desk.state().approvals
            await offered(shot, first)
            assert f"{second}? y" not in shot.err.getvalue()
            hand.desk.do(AnswerApproval(by=BOB, approval=first, granted=True))
            await offered(shot, second)
            typed.send_text("n")
            await until(lambda: not hand.desk.state().approvals)
            hand.end()

        shot = Shot(play)
        shot.take(on_ask="wait", keys=True, input=typed)
    assert shot.code == 0


async def shown(shot: Shot, approval: str = "") -> None:
    """Wait until the card of an ask is there, and the pause behind it has begun."""
    await until(lambda: f"the agent asks ({approval}" in shot.err.getvalue() and shot.desk.clock.sleepers)


async def offered(shot: Shot, approval: str = "") -> None:
    """Let the pause behind a card pass, until its keys are on offer."""
    await shown(shot, approval)
    shot.desk.clock.advance(GRACE_MILLIS)
    await until(lambda: f"{approval}? y once" in shot.err.getvalue())


@covers("oneshot.keys-not-by-accident")
@pytest.mark.parametrize("early", ["y", "p", "\x1b", "\x1b[A", "\x1b[200~y\x1b[201~"], ids=ascii)
def test_a_key_that_comes_before_the_pause_is_over_is_dropped_and_the_pause_begins_anew(early: str) -> None:
    with create_pipe_input() as typed:

        async def play(hand: Hand) -> None:
            typed.send_text(early)
            hand.start()
            hand.want("c1", fetch("a.example"))
            await shown(shot)
            for count in range(1, 4):
                typed.send_text(early)
                hand.desk.clock.advance(GRACE_MILLIS)
                await until(lambda count=count: len(hand.desk.clock.sleepers) == count + 1)
                assert "y once" not in shot.err.getvalue()
            hand.desk.clock.advance(GRACE_MILLIS)
            await until(lambda: "y once" in shot.err.getvalue())
            assert not hand.desk.has(ApprovalAnswered)
            typed.send_text("n")
            await until(lambda: hand.desk.has(ApprovalAnswered))
            hand.end()

        shot = Shot(play)
        shot.take(on_ask="wait", keys=True, input=typed)
    assert not shot.desk.last(ApprovalAnswered).granted
    assert shot.err.getvalue().count("keys pressed before this question were ignored") == 1


@covers("oneshot.keys-not-by-accident")
def test_an_interrupt_counts_before_the_pause_is_over() -> None:
    with create_pipe_input() as typed:

        async def play(hand: Hand) -> None:
            asks(hand)
            await shown(shot)
            typed.send_text("y\x03")

        shot = Shot(play)
        shot.take(on_ask="wait", keys=True, input=typed)
    assert shot.code == 130
    assert len(shot.desk.state().approvals) == 1


@covers("terminal.no-imitation")
def test_what_the_agent_says_while_a_card_waits_for_a_key_comes_after_the_answer() -> None:
    with create_pipe_input() as typed:

        async def play(hand: Hand) -> None:
            hand.start()
            hand.speak("before")
            hand.want("c1", fetch("a.example"))
            await offered(shot)
            hand.speak("the agent asks (abc234):")
            hand.desk.happen(BudgetWarned(at=NOW, kind=BudgetKind.STEPS, used=8, limit=10))
            await until(lambda: "80% of the budget" in shot.err.getvalue())
            assert shot.out.getvalue() == "before\n"
            typed.send_text("n")
            await until(lambda: "abc234" in shot.out.getvalue())
            hand.end()

        shot = Shot(play)
        shot.take(on_ask="wait", keys=True, input=typed)
    assert shot.out.getvalue() == "before\n\nthe agent asks (abc234):\n"


@covers("oneshot.exit-codes")
def test_an_interrupt_ends_the_turn_and_keeps_what_was_said() -> None:
    async def play(hand: Hand) -> None:
        hand.start()
        hand.stream("partial")
        os.kill(os.getpid(), signal.SIGINT)
        await until(lambda: hand.desk.has(InterruptAsked))
        hand.end(TurnStatus.INTERRUPTED)

    shot = Shot(play).take("json")
    assert (shot.code, shot.document["status"], shot.document["text"]) == (130, "interrupted", "partial")


def test_an_interrupt_while_it_waits_leaves_the_ask_open() -> None:
    async def play(hand: Hand) -> None:
        asks(hand)
        await until(lambda: "waits for an answer" in shot.err.getvalue())
        os.kill(os.getpid(), signal.SIGINT)

    shot = Shot(play)
    shot.take("json", on_ask="wait")
    assert shot.code == 130
    assert len(shot.desk.state().approvals) == 1
    assert not shot.desk.has(InterruptAsked)
    assert "--resume" in shot.err.getvalue()


def test_a_turn_that_came_before_is_not_taken_for_the_task() -> None:
    desk = MemoryDesk(*ready(PROJECT))
    desk.do(SendMessage(by=ANN, message=MessageId("m0"), text="first"))
    early = Hand(desk, "t0")
    early.start()

    def play(_: Hand) -> None:
        early.speak("that was the first")
        early.end()
        answers(Hand(desk))

    shot = Shot(play, desk=desk).take("json")
    assert shot.document["text"].endswith("all *done*")
    assert shot.code == 0


def test_the_files_of_the_turn_are_told() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.finish(hand.want("c1", write("/srv/own/a.txt")))
        hand.end()

    shot = Shot(play, desk=MemoryDesk()).take()
    assert "files: wrote a.txt" in shot.err.getvalue()
    assert shot.desk.has(CallFinished)


@covers("terminal.inert")
def test_text_that_is_piped_on_holds_no_escapes_either() -> None:
    def play(hand: Hand) -> None:
        hand.start()
        hand.speak("a\x1b[2Jb")
        hand.end(TurnStatus.FAILED, "bad\x1b[2J")

    shot = Shot(play).take()
    assert "\x1b" not in shot.out.getvalue() + shot.err.getvalue()
    assert shot.desk.last(TurnEnded).failure == "bad\x1b[2J"


@covers("oneshot.quick")
def test_importing_the_terminal_loads_no_terminal_library() -> None:
    code = "import sys, curtainwall.channels.terminal; print([m for m in ('prompt_toolkit', 'rich', 'markdown_it') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
