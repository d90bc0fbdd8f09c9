"""The tools of teams: what an agent asks for is sent to a team, and the answer becomes the result of the call."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.model import (
    ANSWER,
    NOBODY,
    SYSTEM,
    BadCall,
    CallPermitted,
    CommandRefused,
    FinishCall,
    MessageId,
    MessagePeer,
    Millis,
    Payload,
    PeerAnswer,
    PeerStatus,
    Place,
    Prepared,
    SendHeldAnswer,
    SessionId,
    ToolResult,
    Undecided,
)
from curtainwall.teams.conversations import KeeperRequests
from curtainwall.teams.pair_sessions import Caller, TeamCard
from curtainwall.teams.pairs import Pair, PairFigures, Shortage, TeamExchange
from curtainwall.teams.talk import AskResult, OnWait, Talk

_SMALL: Final = 4_000
"""Bytes up to which an answer's words are written along as an outcome; longer ones are kept and shortened like any other."""


@dataclass(frozen=True, slots=True)
class TeamCall:
    """What was asked for, in the words of the tools."""

    caller: Caller
    given: Mapping[str, JsonValue]
    permit: CallPermitted | None = None
    along: MessagePeer | None = None
    """The message, where it has left already."""

    @property
    def team(self) -> str:
        """Return the team that the call is about."""
        return str(self.given.get("toTeam") or self.given.get("team"))

    @property
    def pair(self) -> Pair:
        """Return the pair that the call is about."""
        return Pair(asker=self.caller.team, team=self.team, thread=str(self.given.get("thread", "")))

    @property
    def seconds(self) -> float | None:
        """Return how long is to be waited, where that was said."""
        wait = self.given.get("timeout")
        return None if wait is None else float(cast("int", wait)) / 1000

    @property
    def said(self) -> str:
        """Return what the team is told."""
        return str(self.given.get("question") or self.given.get("message"))

    @property
    def waits(self) -> bool:
        """Tell whether the answer is waited for."""
        return self.given.get("waitForResponse", True) is True

    @property
    def claims_to_be(self) -> str | None:
        """Return the name that the caller gives itself, where it is not the one that it is known by."""
        claimed = self.given.get("fromTeam")
        return None if claimed in (None, "", self.caller.team) else str(claimed)

    def days(self, talk: Talk) -> float:
        """Return for how many days a notice may wait."""
        return float(cast("float", self.given.get("ttlDays", talk.terms.notice_days)))

    def text(self, name: str) -> str:
        """Return an argument."""
        return str(self.given[name])

    def session(self, talk: Talk) -> SessionId:
        """Return the pair's session; raise where there is none."""
        found = talk.session_of(self.pair)
        if found is None:
            raise CommandRefused(f"there is no conversation with `{self.team}` yet; ask it something first")
        return found


class CallCompletion:
    """How a call that waits for an answer ends: where the answer is short, in the same commit that takes it in."""

    def __init__(self, call: TeamCall, masked: Callable[[JsonValue], JsonValue]) -> None:
        self._call = call
        self._masked = masked
        self.logged: ToolResult | None = None

    def finish(self, answer: PeerAnswer) -> FinishCall | None:
        """Return the outcome of the call, and remember it."""
        permit = self._call.permit
        if permit is None or _size(answer.text) > _SMALL:
            return None
        words = str(self._masked(answer.text))
        if _size(words) > 2 * _SMALL:
            return None
        value = _value(self._call.team, answer, words)
        self.logged = result = ToolResult(ok=answer.status is PeerStatus.DONE, value=value, is_logged=True)
        return FinishCall(by=SYSTEM, call=permit.call, permit=permit.permit, ok=result.ok, result=Payload(inline=value))


def _size(text: str) -> int:
    """Return how many bytes a text takes in the log, where what is not plain is escaped."""
    # No letter takes less than a byte, so a long text need not be written out to be measured.
    return len(text) if len(text) > 2 * _SMALL else len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2


def message_result(team: str, heard: AskResult, short: Sequence[Shortage] = (), own: SessionId | None = None) -> ToolResult:
    """Return what the caller is told of its message, and which used-up budgets keep it waiting: its own conversation's, or further on."""
    if heard.answer is None:
        later = "nothing is lost: fetch the answer with the tool `reports` of `teams` and this handle"
        value: dict[str, JsonValue] = {"team": team, "handle": heard.handle, "status": "waiting"}
        if short:
            value |= shortages_json(short, own)
            return ToolResult(ok=True, value={**value, "note": "; ".join((*map(str, short), later))})
        return ToolResult(ok=True, value={**value, "note": f"the team has not answered yet; {later}"})
    return ToolResult(ok=heard.answer.status is PeerStatus.DONE, value=_value(team, heard.answer, heard.answer.text))


def shortages_json(short: Sequence[Shortage], own: SessionId | None) -> dict[str, JsonValue]:
    """Return used-up budgets for other programs: those of the conversation itself, and those further on, each with its team."""
    mine = [kind for it in short if it.session == own for kind in it.kinds]
    further: list[JsonValue] = [{"team": it.team, "session": it.session, "exhausted": [*it.kinds]} for it in short if it.session != own]
    return {**({"exhausted": [*mine]} if mine else {}), **({"further": further} if further else {})}


def _value(team: str, answer: PeerAnswer, words: str) -> dict[str, JsonValue]:
    fault: dict[str, JsonValue] = {"fault": answer.fault} if answer.fault else {}
    key = "answer" if answer.status is PeerStatus.DONE else "reason"
    return {"team": team, "handle": answer.message, "status": answer.status.value, **fault, key: words}


Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]
_LAST = 50


@dataclass(frozen=True, slots=True)
class TeamToolPorts:
    """What the tools of teams work with."""

    talk: Talk
    keeping: KeeperRequests
    teams: Mapping[str, TeamCard]
    team_of: Callable[[SessionId], str]
    teller: Callable[[], OnWait | None]
    masked: Callable[[JsonValue], JsonValue]


def team_runners(hands: TeamToolPorts) -> Mapping[str, Runner]:
    """Return the tools by their full names."""
    talk, keeping = hands.talk, hands.keeping

    async def sent(call: TeamCall, days: float | None = None) -> MessageId:
        return call.along.message if call.along is not None else await talk.send(call.caller, call.pair, call.said, days=days)

    async def ask(call: TeamCall) -> ToolResult:
        ending = CallCompletion(call, hands.masked)
        message = await sent(call)
        heard = await talk.answer(call.caller, call.pair, message, seconds=call.seconds, tell=hands.teller(), finish=ending.finish)
        if heard.answer is None:
            return message_result(call.team, heard, talk.shortages(call.pair), talk.session_of(call.pair))
        return ending.logged or message_result(call.team, heard)

    async def send_message(call: TeamCall) -> ToolResult:
        if call.waits:
            return await ask(call)
        return ToolResult(ok=True, value={"team": call.team, "handle": await sent(call), "status": "sent"})

    async def notify(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "handle": await sent(call, call.days(talk)), "status": "accepted"})

    async def listing(call: TeamCall) -> ToolResult:
        told = talk.figures(call.caller.team)
        teams: list[JsonValue] = [
            {
                "team": name,
                "description": card.description,
                **({"colour": card.colour} if card.colour else {}),
                "conversations": _conversations(told, name),
            }
            for name, card in sorted(hands.teams.items())
        ]
        return ToolResult(ok=True, value={"you": call.caller.team, "teams": teams})

    async def quick_status(call: TeamCall) -> ToolResult:
        wanted = [it for it in talk.figures(call.caller.team) if call.given.get("team") in (None, it.pair.team)]
        return ToolResult(ok=True, value={"conversations": [figures_json(it) for it in wanted]})

    async def history(call: TeamCall) -> ToolResult:
        told = await talk.history(call.caller, call.pair)
        last = int(cast("int", call.given.get("limit", _LAST)))
        return ToolResult(ok=True, value={"team": call.team, "messages": [exchange_json(it) for it in told[-last:]], "of": len(told)})

    async def reports(call: TeamCall) -> ToolResult:
        team, handle = call.given.get("team"), call.given.get("handle")
        told = await talk.reports(call.caller, cast("str | None", team), cast("str | None", handle))
        if handle is not None and not told:
            raise CommandRefused(f"there is no message `{handle}` of yours")
        return ToolResult(ok=True, value={"reports": [{"team": pair.team, **exchange_json(it)} for pair, it in told[-_LAST:]]})

    async def cancel(call: TeamCall) -> ToolResult:
        handle = await talk.cancel(call.caller, call.pair, cast("str | None", call.given.get("handle")))
        return ToolResult(ok=True, value={"team": call.team, "handle": handle, "status": "cancelled"})

    async def wake(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeping.wake(call.session(talk))})

    async def sleep(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeping.sleep(call.session(talk))})

    async def compact(call: TeamCall) -> ToolResult:
        await talk.compact(call.caller, call.pair, str(call.given.get("instructions", "")))
        return ToolResult(ok=True, value={"team": call.team, "status": "compact-pending"})

    async def fork(call: TeamCall) -> ToolResult:
        into = call.pair._replace(thread=call.text("newThread"))
        await keeping.fork(call.session(talk), into)
        return ToolResult(ok=True, value={"team": call.team, "thread": into.thread, "status": "forked"})

    async def answer(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        command = SendHeldAnswer(by=SYSTEM, message=MessageId(str(prepared.arguments["message"])))
        await talk.peers.send(place.session, command)
        return ToolResult(ok=True, value="sent")

    named = (ask, send_message, notify, quick_status, history, reports, cancel, wake, sleep, compact, fork)
    runners = {f"teams.{it.__name__}": _runner(hands, it) for it in named}
    return {**runners, "teams.list": _runner(hands, listing), ANSWER: answer}


def team_refiners(hands: TeamToolPorts) -> Mapping[str, Callable[[Prepared, Place], Prepared]]:
    """Return what refuses a caller under a false name, and for the tools that send, finds the message that can leave with the permit."""

    def known(prepared: Prepared, place: Place) -> TeamCall:
        # Before anybody is asked: no human has to look at what would be refused all the same.
        call = _call(hands, prepared, place)
        if call.claims_to_be is not None:
            raise BadCall("invalid-arguments", _wrong_name_text(call))
        return call

    def looker(prepared: Prepared, place: Place) -> Prepared:
        known(prepared, place)
        return prepared

    def closer(prepared: Prepared, place: Place) -> Prepared:
        call = known(prepared, place)
        days = call.days(hands.talk) if prepared.subject.tool == "teams.notify" else None
        message = hands.talk.message(call.pair, call.said, days)
        return prepared if message is None else replace(prepared, along=message)

    senders = ("ask", "send_message", "notify")
    others = ("list", "quick_status", "history", "reports", "cancel", "wake", "sleep", "compact", "fork")
    return {f"teams.{name}": closer if name in senders else looker for name in (*senders, *others)}


def _wrong_name_text(call: TeamCall) -> str:
    return f"you are known here as `{call.caller.team}`, not as `{call.claims_to_be}`; leave `fromTeam` out"


def _call(hands: TeamToolPorts, prepared: Prepared, place: Place, permit: CallPermitted | None = None) -> TeamCall:
    caller = Caller(place.session, hands.team_of(place.session) or NOBODY)
    # What is masked for the log is masked for the other team as well.
    return TeamCall(caller, {**prepared.arguments, **prepared.subject.canonical}, permit, prepared.along)


def _runner(hands: TeamToolPorts, run: Callable[[TeamCall], Awaitable[ToolResult]]) -> Runner:
    async def called(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        call = _call(hands, prepared, place, permit)
        if call.claims_to_be is not None:
            return ToolResult(ok=False, value=_wrong_name_text(call))
        try:
            return await run(call)
        except CommandRefused as refusal:
            return ToolResult(ok=False, value=str(refusal))
        except Undecided:
            # Which process that is, is nothing for an agent.
            return ToolResult(ok=False, value="another process holds the conversation and does not decide; a human has to look after that")

    return called


def _conversations(told: list[PairFigures], team: str) -> list[JsonValue]:
    return [figures_json(it) for it in told if it.pair.team == team]


def figures_json(told: PairFigures) -> dict[str, JsonValue]:
    """Return a pair's figures for other programs."""
    return {
        "asker": told.pair.asker,
        "team": told.pair.team,
        "thread": told.pair.thread,
        "session": told.session,
        "status": told.status,
        "messages": told.messages,
        "open": told.open,
        "exhausted": [*told.exhausted],
        "created": _time(told.created),
        "used": _time(told.used),
        "tokens": told.tokens,
        "dollars": round(told.dollars, 6),
    }


def exchange_json(told: TeamExchange) -> dict[str, JsonValue]:
    """Return a message and its answer for other programs."""
    value: dict[str, JsonValue] = {"handle": told.message, "by": told.by, "at": _time(told.at), "message": told.text}
    if told.exhausted:
        return {**value, "status": "begun", "exhausted": [*told.exhausted]}
    if told.further:
        return {**value, "status": "begun", **shortages_json(told.further, None)}
    if told.state == "expired":
        return {**value, "status": told.state, "reason": "its time was over before the team came to it"}
    if told.answer is None or told.answered is None:
        return {**value, "status": told.state}
    key = "answer" if told.answer.status is PeerStatus.DONE else "reason"
    fault: dict[str, JsonValue] = {"fault": told.answer.fault} if told.answer.fault else {}
    return {**value, "status": told.answer.status.value, **fault, "answered": _time(told.answered), key: told.answer.text}


def _time(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
