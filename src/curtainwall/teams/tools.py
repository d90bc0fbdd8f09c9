"""The tools of teams carried out: what an agent asked for becomes talk, and what came of it a result."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import cast

from pydantic import JsonValue

from curtainwall.model import (
    ANSWER,
    NOBODY,
    SYSTEM,
    BadCall,
    CallPermitted,
    CommandRefused,
    MessageId,
    Millis,
    PeerStatus,
    Place,
    Prepared,
    SendHeldAnswer,
    SessionId,
    ToolResult,
    Undecided,
)
from curtainwall.teams.calls import Call, Ending, shortages_json, told
from curtainwall.teams.figures import Exchange, PairFigures
from curtainwall.teams.requests import Wishes
from curtainwall.teams.talk import Talk, Tell
from curtainwall.teams.terms import Caller, Card

Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]
_LAST = 50


@dataclass(frozen=True, slots=True)
class Hands:
    """What the tools of teams work with."""

    talk: Talk
    keeping: Wishes
    teams: Mapping[str, Card]
    team_of: Callable[[SessionId], str]
    teller: Callable[[], Tell | None]
    masked: Callable[[JsonValue], JsonValue]


def team_runners(hands: Hands) -> Mapping[str, Runner]:
    """Return the tools by their full names."""
    talk, keeping = hands.talk, hands.keeping

    async def sent(call: Call, days: float | None = None) -> MessageId:
        return call.along.message if call.along is not None else await talk.send(call.caller, call.pair, call.said, days=days)

    async def ask(call: Call) -> ToolResult:
        ending = Ending(call, hands.masked)
        message = await sent(call)
        heard = await talk.answer(call.caller, call.pair, message, seconds=call.seconds, tell=hands.teller(), finish=ending.finish)
        if heard.answer is None:
            return told(call.team, heard, talk.shortages(call.pair), talk.session_of(call.pair))
        return ending.logged or told(call.team, heard)

    async def send_message(call: Call) -> ToolResult:
        if call.waits:
            return await ask(call)
        return ToolResult(ok=True, value={"team": call.team, "handle": await sent(call), "status": "sent"})

    async def notify(call: Call) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "handle": await sent(call, call.days(talk)), "status": "accepted"})

    async def listing(call: Call) -> ToolResult:
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

    async def quick_status(call: Call) -> ToolResult:
        wanted = [it for it in talk.figures(call.caller.team) if call.given.get("team") in (None, it.pair.team)]
        return ToolResult(ok=True, value={"conversations": [figures_json(it) for it in wanted]})

    async def history(call: Call) -> ToolResult:
        told = await talk.history(call.caller, call.pair)
        last = int(cast("int", call.given.get("limit", _LAST)))
        return ToolResult(ok=True, value={"team": call.team, "messages": [exchange_json(it) for it in told[-last:]], "of": len(told)})

    async def reports(call: Call) -> ToolResult:
        team, handle = call.given.get("team"), call.given.get("handle")
        told = await talk.reports(call.caller, cast("str | None", team), cast("str | None", handle))
        if handle is not None and not told:
            raise CommandRefused(f"there is no message `{handle}` of yours")
        return ToolResult(ok=True, value={"reports": [{"team": pair.team, **exchange_json(it)} for pair, it in told[-_LAST:]]})

    async def cancel(call: Call) -> ToolResult:
        handle = await talk.cancel(call.caller, call.pair, cast("str | None", call.given.get("handle")))
        return ToolResult(ok=True, value={"team": call.team, "handle": handle, "status": "cancelled"})

    async def wake(call: Call) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeping.wake(call.session(talk))})

    async def sleep(call: Call) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeping.sleep(call.session(talk))})

    async def compact(call: Call) -> ToolResult:
        await talk.compact(call.caller, call.pair, str(call.given.get("instructions", "")))
        return ToolResult(ok=True, value={"team": call.team, "status": "compact-pending"})

    async def fork(call: Call) -> ToolResult:
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


def team_closers(hands: Hands) -> Mapping[str, Callable[[Prepared, Place], Prepared]]:
    """Return what refuses a caller under a false name, and for the tools that send, finds the message that can leave with the permit."""

    def known(prepared: Prepared, place: Place) -> Call:
        # Before anybody is asked: no human has to look at what would be refused all the same.
        call = _call(hands, prepared, place)
        if call.claims_to_be is not None:
            raise BadCall("invalid-arguments", _false_name(call))
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


def _false_name(call: Call) -> str:
    return f"you are known here as `{call.caller.team}`, not as `{call.claims_to_be}`; leave `fromTeam` out"


def _call(hands: Hands, prepared: Prepared, place: Place, permit: CallPermitted | None = None) -> Call:
    caller = Caller(place.session, hands.team_of(place.session) or NOBODY)
    # What is masked for the log is masked for the other team as well.
    return Call(caller, {**prepared.arguments, **prepared.subject.canonical}, permit, prepared.along)


def _runner(hands: Hands, run: Callable[[Call], Awaitable[ToolResult]]) -> Runner:
    async def called(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        call = _call(hands, prepared, place, permit)
        if call.claims_to_be is not None:
            return ToolResult(ok=False, value=_false_name(call))
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


def exchange_json(told: Exchange) -> dict[str, JsonValue]:
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
