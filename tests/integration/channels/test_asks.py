"""The board on a real house: what is routed to a channel appears there, once, and whoever answers late hears the truth."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import pytest

from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.matrix.asks import RoomAsks, ask_list
from curtainwall.channels.matrix.memory import Memory
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage
from curtainwall.model import (
    AlreadyAnswered,
    Answer,
    AnswerApproval,
    AnyCommand,
    Broken,
    CallRequest,
    ChangeMode,
    Conflict,
    CurtainwallError,
    GrantScope,
    Mode,
    NotFound,
    RemoveRoute,
    Route,
    RuleId,
    SessionId,
    SessionView,
    ShownAt,
    TryLater,
    Who,
    session_stream,
)
from curtainwall.operations.desk import session_view
from curtainwall.runtime import NoHooks, SessionGate, SessionRegistry, SystemClock
from curtainwall.session import Rules, fold, lift
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, house, open_session, policy, read, run, tools, until
from tests.support.many_asks import ask_often

OLGA = Who(name="olga", channel="matrix")
EVE = Who(name="eve", channel="matrix")
ROOM = Route(channel="matrix", reference="!ops:server")
WEB = Route(channel="web", reference="")
T = TypeVar("T")


@dataclass
class Stage:
    """A house with sessions that want something, and the way to look at it as a channel does."""

    house: SessionRegistry
    gate: SessionGate
    scratch: Path

    async def send(self, session: SessionId, command: AnyCommand) -> int:
        return await self.house.send(session, command)

    def view(self, session: SessionId) -> SessionView:
        events = [lift(entry) for entry in self.house.stores.log.read(session_stream(session))]
        return session_view(fold(events), events, None)

    def board(self, at: ShownAt | None = None) -> Board:
        return Board(self, self.house.feed, self.house.stores.index, lambda rule: f"because of {rule}", at)

    async def session(self, *routes: Route, place: Route | None = None, own: bool = True) -> SessionId:
        session = await open_session(self.house, self.scratch, own=own, routes=routes)
        if place is not None:
            assert await self.house.bind(place, session, ANN) == session
        return session

    def want(self, session: SessionId, path: str = "/etc/hosts") -> "asyncio.Task[Answer]":
        return asyncio.create_task(self.gate.request(session, read(path)))


@asynccontextmanager
async def stage(scratch: Path, *own_rules: str) -> AsyncGenerator[Stage]:
    rules = Rules(policy=policy(*own_rules), operators={"matrix": frozenset({"olga"}), "web": frozenset({"olga"})})
    async with SqliteStore.open(scratch / "home", SystemClock(), decode=lift) as store, house(store, rules) as opened:
        yield Stage(opened, SessionGate(opened, tools(FarSide(scratch / "far")), NoHooks()), scratch)


async def next_of(cards: AsyncIterator[Card]) -> Card:
    async with asyncio.timeout(90):
        return await anext(cards)


def there(board: Board) -> Card | None:
    cards = board.cards()
    return cards[0] if cards else None


@covers("asks.routed")
def test_an_ask_appears_where_its_session_is_routed_and_nowhere_else(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            session = await it.session(ROOM, WEB, place=Route(channel="cron", reference="nightly@1"))
            wish = it.want(session)
            card = await until(lambda: there(it.board()))
            assert it.board(ShownAt("matrix")).cards() == it.board(ShownAt("matrix", ROOM.reference)).cards() == (card,)
            assert it.board(ShownAt("web")).cards() == (card,)
            assert it.board(ShownAt("teams")).cards() == it.board(ShownAt("matrix", "!else")).cards() == ()
            assert (card.origin, card.session, card.tool) == ("cron: nightly", session, "filesystem.read_file")
            assert card.tag == f"[cron: nightly, session {session} `test`]"
            assert [(rule.rule, rule.reason) for rule in card.rules] == [(RuleId("read-outside"), "because of read-outside")]
            assert card.ask.subject.raw == {"path": "/etc/hosts"}
            assert "wants read-path /etc/hosts" in card.shown
            await it.send(session, RemoveRoute(by=ANN, route=WEB))
            assert it.board(ShownAt("web")).cards() == ()
            assert (await it.board(ShownAt("matrix")).answer(card, granted=True, by=OLGA)).text == f"approved once: {card.approval}"
            assert (await wish).result is not None

    run(check())


@covers("asks.all-are-reachable")
def test_every_open_ask_is_a_card_however_many_there_are_and_none_ends_because_others_come(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as here:
            (first,) = await ask_often(here.house.stores.log, 1)
            async with aclosing(here.board().follow()) as cards:
                assert (await next_of(cards)).key == first
                keys = [first, *await ask_often(here.house.stores.log, 1_100, before=1)]
                assert [(await next_of(cards)).key for _ in keys[1:]] == keys[1:]
                await here.board().answer(here.board().find(first[1]), granted=False, by=ANN)
                ended = await next_of(cards)
                assert (ended.key, ended.settled.how if ended.settled else "open") == (first, "denied")

    run(check())


@covers("asks.all-are-reachable")
def test_a_list_that_does_not_fit_into_a_room_says_how_many_are_left_and_how_to_see_them(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as here:
            keys = await ask_often(here.house.stores.log, 1_100)
            board = here.board()
            cards, listed = board.cards(), list[str]()
            while cards:
                *lines, last = ask_list(cards, "!ops:server", 20_000).splitlines()
                following = re.fullmatch(r"(\d+) more open asks?; `/pending after (\w+)` lists them", last)
                listed += [line.split()[0] for line in (lines if following else (*lines, last))]
                assert following is None or int(following[1]) == len(cards) - len(lines)
                cards = board.cards_after(following[2]) if following else ()
            assert listed == [approval for _, approval in keys]

    run(check())


@covers("asks.followed")
def test_whoever_follows_sees_each_card_once_and_then_by_whom_it_was_settled(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it, aclosing(it.board(ShownAt("matrix")).follow()) as cards:
            first = await it.session(ROOM)
            wish = it.want(first)
            card = await next_of(cards)
            assert (card.session, card.settled) == (first, None)
            other = it.want(await it.session(ROOM), "/etc/passwd")
            assert (await next_of(cards)).ask.subject.raw == {"path": "/etc/passwd"}
            await it.board().answer(card, granted=False, by=OLGA, reason="not today")
            ended = await next_of(cards)
            assert (ended.key, ended.settled and (ended.settled.how, ended.settled.by, ended.settled.reason)) == (
                card.key,
                ("denied", "olga on matrix", "not today"),
            )
            assert (await wish).result is None
            other.cancel()

    run(check())


@covers("asks.followed")
def test_whoever_knows_a_card_hears_of_its_end_also_where_that_came_before_they_followed(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            wish, other = it.want(await it.session(ROOM)), it.want(await it.session(ROOM), "/etc/passwd")
            board = it.board(ShownAt("matrix"))
            await until(lambda: len(board.cards()) == 2)
            known = board.cards()
            card = next(each for each in known if each.ask.subject.raw == {"path": "/etc/hosts"})
            await board.answer(card, granted=True, by=OLGA)
            await wish
            async with aclosing(board.follow(known)) as cards:
                ended = await next_of(cards)
                assert (ended.key, ended.settled and ended.settled.how) == (card.key, "granted")
                third = it.want(await it.session(ROOM), "/etc/group")
                assert (await next_of(cards)).ask.subject.raw == {"path": "/etc/group"}, "what is known as it is, is not told again"
            for task in (other, third):
                task.cancel()

    run(check())


class SlowVoice:
    """A voice in a room that takes its time with what it says first."""

    def __init__(self) -> None:
        self.is_asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.text = ""

    async def say(self, room: str, name: str, words: RoomMessage) -> str:
        self.is_asked.set()
        await self.goes_on.wait()
        self.text = words.text
        return "$card"

    async def change(self, room: str, name: str, event: str, words: RoomMessage) -> None:
        self.text = words.text


@covers("asks.followed")
def test_a_card_that_is_answered_while_its_room_is_told_of_it_does_not_look_open_for_good(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            wish, voice, board = it.want(await it.session(ROOM)), SlowVoice(), it.board(ShownAt("matrix"))
            card = await until(lambda: there(board))
            memory = Memory(it.house.stores.marks, "@wall:server")
            telling = asyncio.create_task(RoomAsks(board, cast("MatrixOutbox", voice), memory, ROOM.reference, ()).run())
            await asyncio.wait_for(voice.is_asked.wait(), 60)
            await board.answer(card, granted=True, by=OLGA)
            await wish
            voice.goes_on.set()
            await until(lambda: "was approved by olga on matrix" in voice.text)
            telling.cancel()

    run(check())


@covers("asks.joined")
def test_identical_asks_of_repeated_firings_share_a_card_and_one_answer_is_for_all(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            fired = [await it.session(ROOM, place=Route(channel="cron", reference=f"nightly@{n}")) for n in range(3)]
            wishes = [it.want(session) for session in fired]
            another = await it.session(ROOM, place=Route(channel="cron", reference="hourly@1"))
            it.want(another)
            it.want(fired[0], "/etc/passwd")
            by_hand = await it.session(ROOM)
            it.want(by_hand)
            board = it.board(ShownAt("matrix"))
            await until(lambda: sum(len(card.joined) for card in board.cards()) == 6)
            sizes = {(card.origin, str(card.ask.subject.raw["path"])): len(card.joined) for card in board.cards()}
            assert sizes == {
                ("cron: nightly", "/etc/hosts"): 3,
                ("cron: nightly", "/etc/passwd"): 1,
                ("cron: hourly", "/etc/hosts"): 1,
                ("", "/etc/hosts"): 1,
            }
            shared = next(card for card in board.cards() if len(card.joined) == 3)
            assert {session for session, _ in shared.joined} == set(fired)
            assert all(board.find(approval) == shared for _, approval in shared.joined)
            session, approval = shared.joined[1]
            await it.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            told = await board.answer(shared, granted=True, by=OLGA)
            assert told.counted
            others = ", ".join(f"{ask} in session {of}" for of, ask in shared.joined if (of, ask) != (session, approval))
            late = f"not settled by this: {approval} in session {session}: already answered by `ann`: granted at"
            assert told.text.startswith(f"approved once: {others}, 2 of 3 identical asks; {late}")
            assert all([(await wish).result is not None for wish in wishes])

    run(check())


@dataclass
class FaultyDesk:
    """A desk at which the answers to some sessions come to nothing."""

    stage: Stage
    fault: CurtainwallError
    at: tuple[SessionId, ...]

    async def send(self, session: SessionId, command: AnswerApproval) -> int:
        if session in self.at:
            raise self.fault
        return await self.stage.send(session, command)

    def view(self, session: SessionId) -> SessionView:
        return self.stage.view(session)


@covers("asks.each-is-told")
@pytest.mark.parametrize("fault", [TryLater("the disk is full"), Broken("its log is damaged"), Conflict("somebody was faster")])
def test_one_answer_for_several_asks_settles_whatever_it_can_and_tells_what_it_did_not(tmp_path: Path, fault: CurtainwallError) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            fired = [await it.session(ROOM, place=Route(channel="cron", reference=f"nightly@{n}")) for n in range(3)]
            wishes = [it.want(session) for session in fired]
            await until(lambda: [len(card.joined) for card in it.board().cards()] == [3])
            (card,) = it.board().cards()
            (first, one), (second, two), (third, three) = card.joined

            def board(*at: SessionId) -> Board:
                return Board(FaultyDesk(it, fault, at), it.house.feed, it.house.stores.index, lambda _: "")

            with pytest.raises(type(fault)):
                await board(*fired).answer(card, granted=False, by=OLGA)
            told = await board(first, third).answer(card, granted=False, by=OLGA)
            assert told.counted
            named = f"{three} in session {third}, {one} in session {first}"
            assert told.text == f"denied: {two} in session {second}, 1 of 3 identical asks; not settled by this: {named}: {fault}"
            (left,) = it.board().cards()
            assert left.joined == ((first, one), (third, three))
            again = await it.board().answer(left, granted=False, by=OLGA)
            assert again.text == f"denied: {one}, 2 of 2 identical asks"
            assert all([(await wish).result is None for wish in wishes])

    run(check())


@covers("asks.joined")
def test_a_command_that_could_change_files_is_not_identical_with_one_whose_card_says_that_it_cannot(tmp_path: Path) -> None:
    async def check() -> None:
        asks = '@id("mine") forbid(principal, action == Action::"run-command", resource) unless { context.approved };'
        async with stage(tmp_path, asks) as it:
            fired = [await it.session(ROOM, place=Route(channel="cron", reference=f"nightly@{n}"), own=False) for n in range(3)]
            await it.send(fired[2], ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS))
            for session in fired:
                said = await it.gate.request(session, CallRequest(tool="shell.run", arguments={"command": "make clean"}), wait=False)
                assert said.waiting
            board = it.board(ShownAt("matrix"))
            told = {tuple(session for session, _ in card.joined): "read-only" in card.shown for card in board.cards()}
            assert told == {tuple(fired[:2]): True, (fired[2],): False}

    run(check())


@covers("asks.late")
def test_whoever_answers_late_hears_who_settled_it_and_when(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            wish = it.want(await it.session(ROOM))
            board = it.board(ShownAt("matrix"))
            card = await until(lambda: there(board))
            assert (await board.answer(card, granted=False, by=OLGA)).counted
            late = await board.answer(card, granted=True, by=ANN)
            assert not late.counted
            assert late.text.startswith("already answered by `olga on matrix`: denied at 2")
            with pytest.raises(AlreadyAnswered, match="already answered by `olga on matrix`: denied at 2"):
                board.find(card.approval)
            with pytest.raises(NotFound, match="there is no ask `zzzzzz` here"):
                board.find("zzzzzz")
            assert (await wish).result is None

    run(check())


@covers("asks.operators")
def test_only_an_operator_of_the_channel_may_answer_there(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            wish = it.want(await it.session(ROOM))
            board = it.board(ShownAt("matrix"))
            card = await until(lambda: there(board))
            refused = await board.answer(card, granted=True, by=EVE, scope=GrantScope.SESSION)
            assert (refused.counted, refused.text) == (False, "`eve` is not an operator of `matrix` and may not answer")
            assert board.cards() == (card,)
            wish.cancel()

    run(check())
