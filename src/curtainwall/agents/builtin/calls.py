"""The calls of one turn: made through the gate, or settled if they were made before a wait."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.agents.builtin.program import CallRaised, CallReply, CallReturned, CallWaits
from curtainwall.agents.builtin.snapshots import PendingCall
from curtainwall.facts import Masker
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.model import (
    Answer,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallRequest,
    Clock,
    Gate,
    Journal,
    Live,
    NotFound,
    Presence,
    Save,
    ToolEffect,
    TurnAt,
    ordered_id,
)

_LONGEST = 200
_LOOKED_AT = 4_000


@dataclass(slots=True)
class TurnCalls:
    """The calls of one turn's programs. Messages of hooks are collected for the model and for the end of the turn."""

    at: TurnAt
    gate: Gate
    journal: Journal
    clock: Clock
    masker: Masker
    talk: ConversationHistory
    effects: Mapping[str, ToolEffect]
    sync: Callable[[], ConversationHistory]
    context: str = ""
    stopped: str | None = None

    @property
    def presence(self) -> Presence:
        """Tells whether the agent has left."""
        return self.at.presence

    def acts(self, tool: str) -> bool:
        """Tell whether a tool does more than read; an unknown one might."""
        return self.effects.get(tool) is not ToolEffect.INSPECT

    def mint(self) -> CallId:
        """Return an id for the next call."""
        return CallId(ordered_id(self.clock.now(), self.clock.entropy(5)))

    def knows(self, call: CallId) -> bool:
        """Tell whether the log has a call."""
        return call in self.talk.calls

    def first_of(self, call: CallId) -> CallId:
        """Return the open call whose approval this one has joined, or the call itself."""
        mine = self.talk.calls.get(call)
        if mine is None or mine.end is not None or not mine.joined:
            return call
        asked = ((other, made) for other, made in self.talk.calls.items() if made.approval == mine.approval and made.end is None)
        return next((other for other, made in asked if not made.joined), call)

    async def request(self, pending: PendingCall, save: Save) -> CallReply:
        """Make a call; if a human is asked, do not wait for the answer."""
        session = self.at.session
        self.journal.publish(session, Live(kind="doing", text=self._doing(pending)))
        request = CallRequest(tool=pending.tool, arguments=dict(pending.arguments), call=pending.call, turn=self.at.turn)
        return self._reply(await self.gate.request(session, request, wait=False, save=save, presence=self.at.presence))

    async def settle(self, pending: PendingCall) -> CallReply:
        """Return the outcome of an earlier call; run it if it was granted meanwhile."""
        call = pending.call
        end = self.talk.calls[call].end
        if isinstance(end, CallDropped) and end.shares is not None and end.shares in self.talk.calls:
            end = self.talk.calls[end.shares].end
        match end:
            case None:
                try:
                    return self._reply(await self.gate.resume(self.at.session, call, pending.arguments))
                except NotFound:
                    # An answer from elsewhere has just ended it; the log has the outcome.
                    self.talk = self.sync()
                    if self.talk.calls[call].end is None:
                        raise
                    return await self.settle(pending)
            case CallFinished():
                return _finished(end.ok, self.talk.load(end.complete if end.ok else end.shown or end.result))
            case CallDenied():
                return _denied(end.verdict.because, end.verdict.reason)
            case CallLost():
                message = f"OutcomeUnknown: {self.talk.calls[call].tool} was under way when the process ended; it may have run or not"
                return CallRaised("RuntimeError", message)
            case CallDropped():
                return CallRaised("RuntimeError", f"the call was dropped and did not run: {end.why}")

    async def drop(self, call: CallId) -> None:
        """Record that nobody waits for a call any more."""
        await self.gate.drop(self.at.session, call, "the program that made it is over")

    def _doing(self, pending: PendingCall) -> str:
        """Return a short description of a call for screens, without its secrets."""
        arguments = ", ".join(f"{name}={self._beginning(name, value)!r}" for name, value in pending.arguments.items())
        text = f"{pending.tool}({arguments})"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    def _beginning(self, name: str, value: JsonValue) -> str:
        if is_secret_key(name):
            return str(self.masker.mask_json({name: value}))[:_LONGEST]
        shown, seen = "", 0
        # The cut may split a secret, so nothing far beyond the beginning is shown.
        for piece in self.masker.pieces(str(value)[:_LOOKED_AT]):
            if seen >= _LONGEST:
                break
            shown, seen = shown + (piece.shown if piece.is_hidden else piece.shown[: _LONGEST - seen]), seen + len(piece.real)
        return shown

    def _reply(self, answer: Answer) -> CallReply:
        self.context += f"{answer.context}\n" if answer.context else ""
        self.stopped = self.stopped or answer.stopped
        if answer.waiting:
            return CallWaits(answer.call)
        if answer.result is None:
            return _denied(answer.verdict.because, answer.verdict.reason)
        # A program that was given a part could write it back as the whole. Of a failure it needs no more than a model does.
        is_cut = answer.result.ok and answer.complete is not None
        return _finished(answer.result.ok, answer.complete if is_cut else answer.result.value)


def _finished(ok: bool, value: JsonValue) -> CallReturned | CallRaised:
    if ok:
        return CallReturned(value)
    return CallRaised("RuntimeError", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _denied(because: tuple[str, ...], reason: str) -> CallRaised:
    return CallRaised("PermissionError", f"denied by {', '.join(f'`{rule}`' for rule in because) or 'policy'}: {reason}")
