"""The tools of teams: each sends an agent's request to a team and turns the answer into the result of the call."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
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
    record,
)
from curtainwall.teams.conversations import KeeperRequests
from curtainwall.teams.pair_sessions import Caller, TeamCard
from curtainwall.teams.pairs import Pair, PairFigures, Shortage, TeamExchange
from curtainwall.teams.talk import AskResult, OnWait, Talk

_SMALL: Final = 4_000
"""Answers of up to this many bytes are logged together with the outcome of the call; longer ones are stored and shortened as usual."""


@record
class TeamCall:
    """A call of a team tool, with its arguments."""

    caller: Caller
    arguments: Mapping[str, JsonValue]
    permit: CallPermitted | None = None
    along: MessagePeer | None = None
    """The message, if it was already sent together with the permit."""

    @property
    def team(self) -> str:
        """Return the team that the call is about."""
        return str(self.arguments.get("toTeam") or self.arguments.get("team"))

    @property
    def pair(self) -> Pair:
        """Return the pair that the call is about."""
        return Pair(asker=self.caller.team, team=self.team, thread=str(self.arguments.get("thread", "")))

    @property
    def seconds(self) -> float | None:
        """Return how long to wait for the answer, if the call says so."""
        wait = self.arguments.get("timeout")
        return None if wait is None else float(cast("int", wait)) / 1000

    @property
    def message(self) -> str:
        """Return the text for the team."""
        return str(self.arguments.get("question") or self.arguments.get("message"))

    @property
    def waits(self) -> bool:
        """Tell whether the caller waits for the answer."""
        return self.arguments.get("waitForResponse", True) is True

    @property
    def claims_to_be(self) -> str | None:
        """Return the name that the caller claims, if it is not its real one."""
        claimed = self.arguments.get("fromTeam")
        return None if claimed in (None, "", self.caller.team) else str(claimed)

    def days(self, talk: Talk) -> float:
        """Return for how many days a notice may wait."""
        return float(cast("float", self.arguments.get("ttlDays", talk.terms.notice_days)))

    def text(self, name: str) -> str:
        """Return an argument."""
        return str(self.arguments[name])

    def session(self, talk: Talk) -> SessionId:
        """Return the pair's session; raise if there is none."""
        session = talk.session_of(self.pair)
        if session is None:
            raise CommandRefused(f"there is no conversation with `{self.team}` yet; ask it something first")
        return session


class CallCompletion:
    """Finishes a call that waits for an answer. A short answer finishes it in the same commit that records the answer."""

    def __init__(self, call: TeamCall, masked: Callable[[JsonValue], JsonValue]) -> None:
        self._call = call
        self._masked = masked
        self.logged: ToolResult | None = None

    def finish(self, answer: PeerAnswer) -> FinishCall | None:
        """Return the outcome of the call, and remember it."""
        permit = self._call.permit
        if permit is None or _size(answer.text) + _size(answer.partial) > _SMALL:
            return None
        partial = str(self._masked(answer.partial)) if answer.partial else ""
        masked = answer.model_copy(update={"text": str(self._masked(answer.text)), "partial": partial})
        if _size(masked.text) + _size(masked.partial) > 2 * _SMALL:
            return None
        value = _value(self._call.team, masked)
        self.logged = result = ToolResult(ok=answer.status is PeerStatus.DONE, value=value, is_logged=True)
        return FinishCall(by=SYSTEM, call=permit.call, permit=permit.permit, ok=result.ok, result=Payload(inline=value))


def _size(text: str) -> int:
    """Return how many bytes a text takes in the log, including escapes."""
    # Each character takes at least one byte, so a long text need not be encoded to be measured.
    return len(text) if len(text) > 2 * _SMALL else len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2


def message_result(team: str, result: AskResult, short: Sequence[Shortage] = (), own: SessionId | None = None) -> ToolResult:
    """Return the result of sending a message: the answer, or a handle and the used-up budgets that hold it up."""
    if result.answer is None:
        later = "nothing is lost: fetch the answer with the tool `reports` of `teams` and this handle"
        value: dict[str, JsonValue] = {"team": team, "handle": result.handle, "status": "waiting"}
        if short:
            value |= shortages_json(short, own)
            return ToolResult(ok=True, value={**value, "note": "; ".join((*map(str, short), later))})
        return ToolResult(ok=True, value={**value, "note": f"the team has not answered yet; {later}"})
    return ToolResult(ok=result.answer.status is PeerStatus.DONE, value=_value(team, result.answer))


def shortages_json(short: Sequence[Shortage], own: SessionId | None) -> dict[str, JsonValue]:
    """Return used-up budgets as JSON: those of the conversation itself, and those of teams further down the chain."""
    own_kinds = [kind for it in short if it.session == own for kind in it.kinds]
    further: list[JsonValue] = [{"team": it.team, "session": it.session, "exhausted": [*it.kinds]} for it in short if it.session != own]
    return {**({"exhausted": [*own_kinds]} if own_kinds else {}), **({"further": further} if further else {})}


def _value(team: str, answer: PeerAnswer) -> dict[str, JsonValue]:
    return {"team": team, "handle": answer.message, "status": answer.status.value, **_words(answer)}


def _words(answer: PeerAnswer) -> dict[str, JsonValue]:
    """Return the answer's text under its name, with the fault and what was said before it."""
    fault: dict[str, JsonValue] = {"fault": answer.fault} if answer.fault else {}
    partial: dict[str, JsonValue] = {"partial": answer.partial} if answer.partial else {}
    return {**fault, "answer" if answer.status is PeerStatus.DONE else "reason": answer.text, **partial}


Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]
_LAST = 50


@record
class TeamToolPorts:
    """The parts that the tools of teams use."""

    talk: Talk
    keeping: KeeperRequests
    teams: Mapping[str, TeamCard]
    teller: Callable[[], OnWait | None]
    masked: Callable[[JsonValue], JsonValue]
    fork: Callable[[SessionId, Pair], Awaitable[SessionId]]


def team_runners(ports: TeamToolPorts) -> Mapping[str, Runner]:
    """Return the tools by their full names."""
    talk, keeper = ports.talk, ports.keeping

    async def send(call: TeamCall, days: float | None = None) -> MessageId:
        return call.along.message if call.along is not None else await talk.send(call.caller, call.pair, call.message, days=days)

    async def ask(call: TeamCall) -> ToolResult:
        completion = CallCompletion(call, ports.masked)
        message = await send(call)
        result = await talk.answer(call.caller, call.pair, message, seconds=call.seconds, tell=ports.teller(), finish=completion.finish)
        if result.answer is None:
            return message_result(call.team, result, talk.shortages(call.pair), talk.session_of(call.pair))
        return completion.logged or message_result(call.team, result)

    async def send_message(call: TeamCall) -> ToolResult:
        if call.waits:
            return await ask(call)
        return ToolResult(ok=True, value={"team": call.team, "handle": await send(call), "status": "sent"})

    async def notify(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "handle": await send(call, call.days(talk)), "status": "accepted"})

    async def listing(call: TeamCall) -> ToolResult:
        figures = talk.figures(call.caller.team)
        teams: list[JsonValue] = [
            {
                "team": name,
                "description": card.description,
                **({"colour": card.colour} if card.colour else {}),
                "conversations": _conversations(figures, name),
            }
            for name, card in sorted(ports.teams.items())
        ]
        return ToolResult(ok=True, value={"you": call.caller.team, "teams": teams})

    async def quick_status(call: TeamCall) -> ToolResult:
        wanted = [it for it in talk.figures(call.caller.team) if call.arguments.get("team") in (None, it.pair.team)]
        return ToolResult(ok=True, value={"conversations": [figures_json(it) for it in wanted]})

    async def history(call: TeamCall) -> ToolResult:
        messages = await talk.history(call.caller, call.pair)
        last = int(cast("int", call.arguments.get("limit", _LAST)))
        return ToolResult(
            ok=True, value={"team": call.team, "messages": [exchange_json(it) for it in messages[-last:]], "of": len(messages)}
        )

    async def reports(call: TeamCall) -> ToolResult:
        team, handle = call.arguments.get("team"), call.arguments.get("handle")
        rows = await talk.reports(call.caller, cast("str | None", team), cast("str | None", handle))
        if handle is not None and not rows:
            raise CommandRefused(f"there is no message `{handle}` of yours")
        return ToolResult(ok=True, value={"reports": [{"team": pair.team, **exchange_json(it)} for pair, it in rows[-_LAST:]]})

    async def cancel(call: TeamCall) -> ToolResult:
        handle = await talk.cancel(call.caller, call.pair, cast("str | None", call.arguments.get("handle")))
        return ToolResult(ok=True, value={"team": call.team, "handle": handle, "status": "cancelled"})

    async def wake(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeper.wake(call.session(talk))})

    async def sleep(call: TeamCall) -> ToolResult:
        return ToolResult(ok=True, value={"team": call.team, "status": await keeper.sleep(call.session(talk))})

    async def compact(call: TeamCall) -> ToolResult:
        await talk.compact(call.caller, call.pair, str(call.arguments.get("instructions", "")))
        return ToolResult(ok=True, value={"team": call.team, "status": "compact-pending"})

    async def fork(call: TeamCall) -> ToolResult:
        into = call.pair._replace(thread=call.text("newThread"))
        await ports.fork(call.session(talk), into)
        return ToolResult(ok=True, value={"team": call.team, "thread": into.thread, "status": "forked"})

    async def answer(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        command = SendHeldAnswer(by=SYSTEM, message=MessageId(str(prepared.arguments["message"])))
        await talk.peers.send(place.session, command)
        return ToolResult(ok=True, value="sent")

    named = (ask, send_message, notify, quick_status, history, reports, cancel, wake, sleep, compact, fork)
    runners = {f"teams.{it.__name__}": _runner(it) for it in named}
    return {**runners, "teams.list": _runner(listing), ANSWER: answer}


def team_refiners(ports: TeamToolPorts) -> Mapping[str, Callable[[Prepared, Place], Prepared]]:
    """Return the refiners by tool. All refuse a false `fromTeam`; sending tools also attach a message that can leave with the permit."""

    def known(prepared: Prepared, place: Place) -> TeamCall:
        # Checked before approval: no human should review a call that is refused anyway.
        call = _call(prepared, place)
        if call.claims_to_be is not None:
            raise BadCall("invalid-arguments", _wrong_name_text(call))
        return call

    def looker(prepared: Prepared, place: Place) -> Prepared:
        known(prepared, place)
        return prepared

    def refine(prepared: Prepared, place: Place) -> Prepared:
        call = known(prepared, place)
        days = call.days(ports.talk) if prepared.subject.tool == "teams.notify" else None
        message = ports.talk.message(call.pair, call.message, days)
        return prepared if message is None else replace(prepared, along=message)

    senders = ("ask", "send_message", "notify")
    others = ("list", "quick_status", "history", "reports", "cancel", "wake", "sleep", "compact", "fork")
    return {f"teams.{name}": refine if name in senders else looker for name in (*senders, *others)}


def _wrong_name_text(call: TeamCall) -> str:
    return f"you are known here as `{call.caller.team}`, not as `{call.claims_to_be}`; leave `fromTeam` out"


def _call(prepared: Prepared, place: Place, permit: CallPermitted | None = None) -> TeamCall:
    caller = Caller(place.session, place.team or NOBODY)
    # Arguments masked for the log are masked for the other team as well.
    return TeamCall(caller, {**prepared.arguments, **prepared.subject.canonical}, permit, prepared.along)


def _runner(run: Callable[[TeamCall], Awaitable[ToolResult]]) -> Runner:
    async def called(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        call = _call(prepared, place, permit)
        if call.claims_to_be is not None:
            return ToolResult(ok=False, value=_wrong_name_text(call))
        try:
            return await run(call)
        except CommandRefused as refusal:
            return ToolResult(ok=False, value=str(refusal))
        except Undecided:
            # The agent does not need to know which process that is.
            return ToolResult(ok=False, value="another process holds the conversation and does not decide; a human has to look after that")

    return called


def _conversations(figures: list[PairFigures], team: str) -> list[JsonValue]:
    return [figures_json(it) for it in figures if it.pair.team == team]


def figures_json(figures: PairFigures) -> dict[str, JsonValue]:
    """Return a pair's figures as JSON."""
    return {
        "asker": figures.pair.asker,
        "team": figures.pair.team,
        "thread": figures.pair.thread,
        "session": figures.session,
        "status": figures.status,
        "messages": figures.messages,
        "open": figures.open,
        "exhausted": [*figures.exhausted],
        "created": _time(figures.created),
        "used": _time(figures.used),
        "tokens": figures.tokens,
        "dollars": round(figures.dollars, 6),
    }


def exchange_json(exchange: TeamExchange) -> dict[str, JsonValue]:
    """Return a message and its answer as JSON."""
    value: dict[str, JsonValue] = {"handle": exchange.message, "by": exchange.by, "at": _time(exchange.at), "message": exchange.text}
    if exchange.exhausted:
        return {**value, "status": "begun", "exhausted": [*exchange.exhausted]}
    if exchange.further:
        return {**value, "status": "begun", **shortages_json(exchange.further, None)}
    if exchange.state == "expired":
        return {**value, "status": exchange.state, "reason": "its time was over before the team came to it"}
    if exchange.answer is None or exchange.answered is None:
        return {**value, "status": exchange.status}
    return {**value, "status": exchange.answer.status.value, "answered": _time(exchange.answered), **_words(exchange.answer)}


def _time(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
