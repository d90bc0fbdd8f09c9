"""One call of a tool of teams: who makes it, what was given, and how it ends together with the answer that it waits for."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    CallPermitted,
    CommandRefused,
    FinishCall,
    MessagePeer,
    Payload,
    PeerAnswer,
    PeerStatus,
    SessionId,
    ToolResult,
)
from curtainwall.teams.figures import Shortage
from curtainwall.teams.pairs import Pair
from curtainwall.teams.talk import Talk, Told
from curtainwall.teams.terms import Caller

_SMALL: Final = 4_000
"""Bytes up to which an answer's words are written along as an outcome; longer ones are kept and shortened like any other."""


@dataclass(frozen=True, slots=True)
class Call:
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


class Ending:
    """How a call that waits for an answer ends: where the answer is short, in the same commit that takes it in."""

    def __init__(self, call: Call, masked: Callable[[JsonValue], JsonValue]) -> None:
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


def told(team: str, heard: Told, short: Sequence[Shortage] = (), own: SessionId | None = None) -> ToolResult:
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
