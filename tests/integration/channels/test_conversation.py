"""A conversation on a terminal made of a pipe and a buffer: what is typed, what is seen, and what comes of it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.base import PipeInput
from prompt_toolkit.output.vt100 import Vt100_Output

from curtainwall.channels.terminal import ConversationSettings, OwnerWatch, converse
from curtainwall.channels.terminal.asks import GRACE_MILLIS
from curtainwall.model import (
    AgentSpoke,
    AnswerApproval,
    AnyCommand,
    ApprovalAnswered,
    CloseSession,
    GrantScope,
    InterruptAsked,
    InterruptTurn,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    ModeChanged,
    SendMessage,
    SessionId,
    TurnStatus,
)
from tests.support.covers import covers
from tests.support.desks import Hand, MemoryDesk
from tests.support.given import ANN, BOB, NOW, OLGA, PROJECT, SESSION, fetch, ready, write
from tests.support.houses import run, until
from tests.support.screens import Screen

ENTER, CTRL_C, CTRL_D, UP, ALT_ENTER = "\r", "\x03", "\x04", "\x1b[A", "\x1b\r"


@dataclass
class Seat:
    """Somebody at a terminal."""

    typed: PipeInput
    desk: MemoryDesk
    screen: Screen
    attended: list[SessionId] = field(default_factory=list)
    code: int | None = None

    def type(self, text: str) -> None:
        self.typed.send_text(text)

    @property
    def seen(self) -> str:
        """What stands on the screen, and what scrolled away."""
        return self.screen.text

    async def sees(self, words: str) -> None:
        await until(lambda: words in self.seen)

    async def is_offered(self, approval: str = "") -> None:
        """Let time pass until keys answer the one ask."""

        def is_offered() -> bool:
            self.desk.clock.advance(GRACE_MILLIS // 2)
            return f"{approval}? y once" in self.screen.visible

        await until(is_offered)


@asynccontextmanager
async def seated(desk: MemoryDesk, typed: PipeInput, size: tuple[int, int] = (24, 80), **settings: Any) -> AsyncGenerator[Seat]:
    seat = Seat(typed, desk, Screen(*size))
    output = Vt100_Output(seat.screen, lambda: Size(rows=size[0], columns=size[1]), term="xterm", enable_cpr=False)
    conversing = ConversationSettings(
        colour=settings.pop("colour", True),
        log_places=lambda session: (f"the log of {session}",),
        attend=seat.attended.append,
        input=typed,
        output=output,
        **settings,
    )

    async def hold() -> None:
        seat.code = await converse(desk.line, SESSION, ANN, conversing)

    holding = asyncio.create_task(hold())
    try:
        await until(lambda: "\n>" in seat.seen or holding.done())
        yield seat
        await asyncio.wait_for(holding, 60)
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


Story = Callable[[Seat], Coroutine[Any, Any, None]]


def tell(story: Story, desk: MemoryDesk | None = None, **settings: Any) -> Seat:
    """Play a story and return the seat as it was left."""

    async def work() -> Seat:
        with create_pipe_input() as typed:
            async with seated(desk or MemoryDesk(*ready(PROJECT)), typed, **settings) as seat:
                await story(seat)
            return seat

    return run(work())


async def started(seat: Seat, text: str = "go", turn: str = "t1") -> Hand:
    """Have the human send something and the agent take it up."""
    seat.type(text + ENTER)
    await until(lambda: seat.desk.state().queue)
    hand = Hand(seat.desk, turn)
    hand.start()
    await seat.sees("Ctrl-C interrupts")
    return hand


async def asked(seat: Seat, *hosts: str) -> Hand:
    """Have the agent ask for these hosts, until every card is there."""
    hand = await started(seat)
    for count, host in enumerate(hosts):
        hand.want(f"c{count}", fetch(host))
        await seat.sees(f"wants fetch-url https://{host}")
    if len(hosts) == 1:
        await seat.is_offered()
    return hand


@covers("terminal.conversation")
def test_a_message_is_sent_and_the_answer_is_drawn() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat, "hello there")
        hand.speak("I am **here**")
        hand.end()
        await seat.sees("I am here")
        seat.type(CTRL_D)

    seat = tell(story)
    assert seat.code == 0
    assert seat.attended == [SESSION]
    assert "> hello there" in seat.seen
    assert f"`curtainwall start --resume {SESSION}`" in seat.seen


@covers("terminal.text-once")
def test_live_text_is_seen_before_the_log_has_it_and_only_once_for_good() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        seat.desk.say("doing", "thinking hard")
        seat.desk.say("text", "first paragraph\n\nsecond ")
        await seat.sees("first paragraph")
        assert not seat.desk.has(AgentSpoke)
        hand.speak("first paragraph\n\nsecond half")
        hand.end()
        await seat.sees("second half")
        seat.type("/quit" + ENTER)

    assert tell(story).seen.count("first paragraph") == 1


def test_a_session_that_works_elsewhere_is_shown_from_the_log_alone() -> None:
    async def story(seat: Seat) -> None:
        seat.desk.do(SendMessage(by=BOB, message=MessageId("m1"), text="from elsewhere"))
        hand = Hand(seat.desk)
        hand.start()
        await seat.sees("> bob: from elsewhere")
        hand.stream("in pie")
        hand.stream("ces")
        hand.speak("in pieces")
        hand.end()
        await seat.sees("in pieces")
        seat.type(CTRL_D)

    tell(story)


@covers("terminal.multi-line")
@pytest.mark.parametrize("keys", [f"one{ALT_ENTER}two{ENTER}", f"one\\{ENTER}two{ENTER}", f"\x1b[200~one\ntwo\x1b[201~{ENTER}"])
def test_a_message_may_have_several_lines(keys: str) -> None:
    async def story(seat: Seat) -> None:
        seat.type(keys)
        await until(lambda: seat.desk.has(MessageAccepted))
        seat.type(CTRL_D)

    assert tell(story).desk.last(MessageAccepted).text == "one\ntwo"


@covers("terminal.queue")
def test_what_is_typed_while_the_agent_works_is_queued_and_can_be_taken_back_and_changed() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        seat.type("and thsi" + ENTER)
        await seat.sees("queued: and thsi")
        seat.type(UP)
        await until(lambda: seat.desk.has(MessageWithdrawn))
        await until(lambda: not seat.desk.state().queue)
        seat.type("\x7f\x7fis" + ENTER)
        await seat.sees("queued: and this")
        hand.end()
        seat.type(CTRL_D)

    seat = tell(story)
    assert [it.text for it in seat.desk.view(SESSION).queue] == ["and this"]


@covers("terminal.interrupt")
def test_ctrl_c_interrupts_the_turn_and_keeps_the_text_and_leaves_when_nothing_runs() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        seat.desk.say("text", "half a sentence")
        await seat.sees("half a sentence")
        seat.type(CTRL_C)
        await until(lambda: seat.desk.has(InterruptAsked))
        await seat.sees("stopping")
        hand.stream("half a sentence")
        hand.end(TurnStatus.INTERRUPTED)
        await seat.sees("interrupted; what was said so far is kept")
        seat.type(CTRL_C)

    assert tell(story).code == 0


@covers("terminal.interrupt")
def test_a_second_ctrl_c_leaves() -> None:
    async def story(seat: Seat) -> None:
        await started(seat)
        seat.type(CTRL_C)
        await until(lambda: seat.desk.has(InterruptAsked))
        seat.type(CTRL_C)

    assert tell(story).code == 130


class Prompt(MemoryDesk):
    """A desk whose agent has stopped, for everybody to see, before whoever wanted that hears that it was wanted."""

    is_seen: Callable[[], bool]

    async def send(self, session: SessionId, command: AnyCommand) -> int:
        seq = await super().send(session, command)
        if isinstance(command, InterruptTurn):
            Hand(self).end(TurnStatus.INTERRUPTED)
            await until(self.is_seen)
        return seq


@covers("terminal.interrupt")
@pytest.mark.parametrize(("keys", "code"), [(CTRL_C + CTRL_C, 130), (CTRL_C + CTRL_D, 0)])
def test_a_second_ctrl_c_leaves_as_it_was_meant_when_it_was_pressed(keys: str, code: int) -> None:
    async def story(seat: Seat) -> None:
        desk.is_seen = lambda: "interrupted; what was said so far is kept" in seat.seen
        await started(seat)
        seat.type(keys)

    desk = Prompt(*ready(PROJECT))
    assert tell(story, desk).code == code


def test_ctrl_c_empties_a_line_before_it_leaves() -> None:
    async def story(seat: Seat) -> None:
        seat.type("not this")
        await seat.sees("not this")
        seat.type(CTRL_C)
        seat.type("/quit" + ENTER)

    seat = tell(story)
    assert seat.code == 0
    assert not seat.desk.has(MessageAccepted)


@covers("terminal.keys")
@pytest.mark.parametrize(
    ("key", "granted", "scope", "words"),
    [
        ("y", True, GrantScope.ONCE, "approved once by ann"),
        ("s", True, GrantScope.SESSION, "approved for the session by ann"),
        ("n", False, GrantScope.ONCE, "denied by ann"),
    ],
)
def test_a_single_key_answers_the_one_ask(key: str, granted: bool, scope: GrantScope, words: str) -> None:
    async def story(seat: Seat) -> None:
        hand = await asked(seat, "a.example")
        seat.type(key)
        await seat.sees(words)
        hand.end()
        seat.type("/quit" + ENTER)

    answered = tell(story).desk.last(ApprovalAnswered)
    assert (answered.granted, answered.scope, answered.by) == (granted, scope, ANN)


@covers("terminal.keys")
def test_w_explains_and_answers_nothing() -> None:
    async def story(seat: Seat) -> None:
        await asked(seat, "a.example")
        seat.type("w")
        await seat.sees("now it would be: ask")
        seat.type(CTRL_C + CTRL_C)

    assert not tell(story).desk.has(ApprovalAnswered)


@covers("terminal.keys-not-by-accident")
def test_a_key_that_comes_with_the_card_is_text_and_no_answer() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        hand.want("c1", fetch("a.example"))
        await seat.sees("wants fetch-url")
        seat.type("yes please" + ENTER)
        await until(lambda: seat.desk.state().queue)
        hand.end()
        seat.type(CTRL_D)

    seat = tell(story)
    assert not seat.desk.has(ApprovalAnswered)
    assert seat.desk.last(MessageAccepted).text == "yes please"


@covers("terminal.keys-not-by-accident")
def test_keys_answer_nothing_while_something_is_typed_or_pasted_or_several_are_open() -> None:
    async def story(seat: Seat) -> None:
        hand = await asked(seat, "a.example")
        seat.type(" yes" + ENTER)
        await until(lambda: seat.desk.state().queue)
        seat.type("\x1b[200~y\x1b[201~" + ENTER)
        await until(lambda: len(seat.desk.state().queue) == 2)
        hand.want("c9", fetch("b.example"))
        await seat.sees("2 asks wait")
        seat.desk.clock.advance(2 * GRACE_MILLIS)
        seat.type("y" + ENTER)
        await until(lambda: len(seat.desk.state().queue) == 3)
        hand.end()
        seat.type(CTRL_D)

    seat = tell(story)
    assert not seat.desk.has(ApprovalAnswered)


@covers("terminal.keys-not-by-accident")
def test_a_key_that_follows_typing_at_once_answers_nothing() -> None:
    async def story(seat: Seat) -> None:
        hand = await asked(seat, "a.example")
        seat.type(f" first{ENTER}yes, second{ENTER}")
        await until(lambda: len(seat.desk.state().queue) == 2)
        hand.end()
        seat.type(CTRL_D)

    seat = tell(story)
    assert not seat.desk.has(ApprovalAnswered)
    assert seat.desk.last(MessageAccepted).text == "yes, second"


@covers("terminal.keys-not-by-accident")
def test_a_key_that_is_read_late_answers_nothing_that_was_shown_meanwhile() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        hand.want("c1", fetch("a.example"))
        await seat.sees("wants fetch-url https://a.example")
        seat.type("y")
        seat.desk.clock.advance(2 * GRACE_MILLIS)
        await seat.sees("> y")
        hand.end()
        seat.type(CTRL_C + CTRL_D)

    assert not tell(story).desk.has(ApprovalAnswered)


@covers("slash.bare-answer")
def test_an_answer_without_an_id_is_for_the_ask_that_was_there_when_it_was_begun() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        seat.type("/approve")
        await seat.sees("> /approve")
        approval = hand.want("c1", fetch("a.example")) and next(iter(seat.desk.state().approvals))
        await seat.sees("wants fetch-url https://a.example")
        seat.desk.clock.advance(2 * GRACE_MILLIS)
        seat.type(ENTER)
        await seat.sees(f"say which: {approval}")
        assert not seat.desk.has(ApprovalAnswered)
        await seat.is_offered(approval)
        seat.type("/approve" + ENTER)
        await seat.sees("approved once by ann")
        hand.end()
        seat.type(CTRL_D)

    tell(story)


@covers("terminal.answered-elsewhere")
def test_an_answer_from_elsewhere_is_seen_with_who_gave_it_and_the_keys_wait_anew() -> None:
    async def story(seat: Seat) -> None:
        hand = await asked(seat, "a.example", "b.example")
        first, second = seat.desk.state().approvals
        seat.desk.do(AnswerApproval(by=OLGA, approval=first, granted=False, reason="no"))
        await seat.sees(f"denied by olga on matrix: {first} fetch.get (no)")
        await seat.sees(f"{second} waits:")
        seat.type("y")
        await seat.sees("> y")
        seat.type("\x7f")
        await seat.is_offered(second)
        seat.type("n")
        await seat.sees(f"denied by ann: {second}")
        hand.end()
        seat.type(CTRL_D)

    tell(story)


@covers("terminal.card")
def test_words_answer_as_well_and_the_id_may_be_left_out() -> None:
    async def story(seat: Seat) -> None:
        hand = await asked(seat, "a.example")
        seat.type("/approve session" + ENTER)
        await seat.sees("approved for the session by ann")
        hand.end()
        seat.type(CTRL_D)

    tell(story)


@covers("terminal.parked-stays")
def test_leaving_keeps_an_open_ask_and_says_how_to_go_on() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        hand.end(TurnStatus.WAITING, waits_for=[hand.want("c1", fetch("a.example"))])
        await seat.sees("wants fetch-url")
        await until(lambda: seat.desk.view(SESSION).status == "waiting")
        seat.type(CTRL_C)

    seat = tell(story)
    [approval] = seat.desk.state().approvals
    assert seat.code == 0
    assert f"`curtainwall approve {approval}`" in seat.seen
    assert not seat.desk.has(InterruptAsked)


@covers("terminal.resume")
def test_a_resumed_session_shows_what_was_said_and_what_is_open() -> None:
    desk = MemoryDesk(*ready(PROJECT))
    desk.do(SendMessage(by=ANN, message=MessageId("m1"), text="an old question"))
    hand = Hand(desk)
    hand.start()
    hand.speak("an old answer")
    hand.end(TurnStatus.WAITING, waits_for=[hand.want("c1", fetch("a.example"))])

    async def story(seat: Seat) -> None:
        await seat.is_offered()
        seat.type("y")
        await seat.sees("approved once by ann")
        seat.type(CTRL_D)

    seen = tell(story, desk).seen
    assert "an old question" in seen
    assert "an old answer" in seen


@covers("terminal.changed-files")
def test_after_a_turn_the_files_it_changed_are_told() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        hand.finish(hand.want("c1", write("/srv/own/a.txt")))
        hand.end()
        await seat.sees("files: wrote a.txt")
        seat.type(CTRL_D)

    tell(story, MemoryDesk())


def test_going_to_another_session_follows_that_one() -> None:
    async def story(seat: Seat) -> None:
        seat.type("/fork elsewhere" + ENTER)
        await seat.sees("elsewhere · session s2")
        seat.type("hello" + ENTER)
        await until(lambda: seat.desk.has(MessageAccepted, SessionId("s2")))
        seat.desk.happen(AgentSpoke(at=NOW, turn=Hand(seat.desk).turn, text="from the fork"), session=SessionId("s2"))
        await seat.sees("from the fork")
        seat.type(CTRL_D)

    seat = tell(story)
    assert not seat.desk.has(MessageAccepted)
    assert seat.attended == [SESSION, SessionId("s2")]


def test_a_refusal_is_a_line_and_a_message_that_was_refused_is_put_back() -> None:
    async def story(seat: Seat) -> None:
        seat.type("/mode fast" + ENTER)
        await seat.sees("there is no mode `fast`")
        seat.type("/mode plan" + ENTER)
        await until(lambda: seat.desk.has(ModeChanged))
        await seat.sees("mode plan")
        seat.type("/quit" + ENTER)

    tell(story)


@covers("terminal.inert")
def test_nothing_an_agent_writes_moves_the_cursor_even_when_it_comes_in_pieces() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b2J\rX"

    async def story(seat: Seat) -> None:
        hand = await started(seat)
        for letter in evil:
            seat.desk.say("text", letter)
        seat.desk.say("doing", evil)
        await seat.sees("owned")
        hand.stream(evil)
        hand.want("c1", write(f"/srv/project/{evil}", evil))
        hand.speak(evil)
        hand.end(TurnStatus.FAILED, evil)
        await seat.sees("the turn failed")
        seat.type(CTRL_C + CTRL_C)

    drawn = tell(story, colour=False).screen.getvalue()
    assert "\x1b[2J" not in drawn
    assert "owned\x07" not in drawn
    assert "\x9b" not in drawn
    assert "\\x1b[2J" in drawn


@covers("models.retries-are-told")
def test_what_failed_and_is_tried_again_is_on_the_status_line_until_it_works() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        seat.desk.say("again", "trying again in 2 s (2 of 6): it is busy")
        await seat.sees("trying again in 2 s (2 of 6): it is busy")
        seat.desk.say("text", "here I am\n\n")
        await seat.sees("thinking")
        hand.end(TurnStatus.DONE)
        seat.type(CTRL_D)

    tell(story, colour=False)


@covers("terminal.colours")
def test_without_colour_there_is_none_on_the_screen() -> None:
    async def story(seat: Seat) -> None:
        hand = await started(seat)
        hand.speak("# Title\n\n`code`")
        hand.end(TurnStatus.FAILED, "bad")
        await seat.sees("the turn failed")
        seat.type(CTRL_D)

    drawn = tell(story, colour=False).screen.getvalue()
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m", drawn)
    assert re.search(r"\x1b\[(?:[0-9;]*;)?3[0-8]", tell(story).screen.getvalue())


@pytest.mark.parametrize("columns", [20, 34])
def test_a_narrow_terminal_works(columns: int) -> None:
    async def story(seat: Seat) -> None:
        seat.type("hi" + ENTER)
        await until(lambda: seat.desk.state().queue)
        hand = Hand(seat.desk)
        hand.start()
        hand.want("c1", fetch("a.example"))
        await seat.sees("https://")
        hand.speak("well " * 30)
        hand.end()
        await seat.sees("well well")
        seat.type(CTRL_D)

    assert tell(story, size=(10, columns)).code == 0


@covers("terminal.history")
def test_what_was_typed_is_kept_masked_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "typed"

    async def write_it(seat: Seat) -> None:
        seat.type("the key is sk-secret" + ENTER)
        await until(lambda: seat.desk.has(MessageAccepted))
        seat.type(CTRL_D)

    tell(write_it, history=path, mask=lambda text: text.replace("sk-secret", "[masked]"))
    assert "sk-secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0

    async def bring_it_back(seat: Seat) -> None:
        seat.type(UP)
        await seat.sees("the key is [masked]")
        seat.type(CTRL_C + CTRL_D)

    tell(bring_it_back, history=path)


@covers("terminal.completion")
def test_slash_words_are_completed() -> None:
    async def story(seat: Seat) -> None:
        seat.type("/hist")
        await seat.sees("show what was said")
        seat.type("\t")
        await until(lambda: "/history" in seat.seen)
        seat.type(ENTER + ENTER)
        await seat.sees("nothing was said yet")
        seat.type("/clear" + ENTER + CTRL_D)

    tell(story)


@covers("session.closed-can-be-reopened")
def test_a_message_to_a_closed_session_opens_it_again() -> None:
    desk = MemoryDesk()

    async def story(seat: Seat) -> None:
        seat.type("precious" + ENTER)
        await until(lambda: [message.text for message in desk.view(SESSION).queue] == ["precious"])
        assert desk.view(SESSION).status != "closed"
        seat.type(CTRL_C + CTRL_C)

    desk.do(CloseSession(by=ANN, reason="enough"))
    assert desk.view(SESSION).status == "closed"
    tell(story, desk)


@covers("session.nobody-waits-for-a-stopped-owner")
def test_another_process_that_falls_silent_in_the_middle_of_a_turn_is_told_of_once() -> None:
    looked: list[SessionId] = []

    def holder(session: SessionId) -> int:
        looked.append(session)
        return 4711

    async def story(seat: Seat) -> None:
        hand = await started(seat)
        await seat.sees("process 4711 works on this session and has said nothing for 0 seconds")
        await seat.sees("`kill -CONT 4711` lets it go on")
        hand.speak("here I am")
        await seat.sees("here I am")
        assert seat.seen.count("has said nothing") == 1
        seat.type(CTRL_C + CTRL_C)

    tell(story, size=(40, 200), owner_watch=OwnerWatch(holder, 0.1))
    assert looked == [SESSION]


@covers("session.nobody-waits-for-a-stopped-owner")
def test_of_another_process_that_has_nothing_to_do_nothing_is_said() -> None:
    looked: list[SessionId] = []

    def holder(session: SessionId) -> int:
        looked.append(session)
        return 4711

    async def story(seat: Seat) -> None:
        for number in range(5):
            seat.type(f"/pending no-such-{number}" + ENTER)
            await seat.sees(f"no-such-{number}")
        seat.type(CTRL_D)

    assert "has said nothing" not in tell(story, owner_watch=OwnerWatch(holder, 0.001)).seen
    assert looked == []
