"""Answers to other teams that need a yes before they leave: each is brought to the gate once, and goes or is withheld."""

import asyncio
from dataclasses import dataclass

from curtainwall.model import (
    ANSWER,
    SYSTEM,
    Broken,
    CallId,
    CallRequest,
    CommandRefused,
    Conflict,
    Gate,
    MessageId,
    PeerAnswer,
    Presence,
    SessionId,
    TryLater,
    Undecided,
    WithholdAnswer,
    session_stream,
)
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import CallStatus, OpenCall, SessionState, answer_arguments, refusal_text

_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class _Bringing:
    """An answer on its way through the gate."""

    task: "asyncio.Task[None]"
    presence: Presence


class HeldAnswers:
    """The held answers of the sessions that this process looks after. What is open when it leaves stays open."""

    def __init__(self, house: SessionRegistry, gate: Gate) -> None:
        self._house = house
        self._gate = gate
        self._bringing: dict[tuple[SessionId, MessageId], _Bringing] = {}

    def look_at(self, session: SessionId, state: SessionState) -> None:
        """Bring to the gate what is held and not there yet."""
        for message, answer in state.owed.items():
            if (session, message) not in self._bringing:
                settled = next(
                    (call for call, it in state.calls.items() if _is_about(it, message) and it.standing is CallStatus.ANSWERED), None
                )
                presence = Presence()
                work = self._bring(session, state.peers[message].team, answer, settled, presence)
                task = asyncio.create_task(work, name=f"answer to {message}")
                self._bringing[session, message] = _Bringing(task, presence)
                # Not in the task itself: one that is cancelled before its first step never comes to that.
                task.add_done_callback(lambda done, key=(session, message): self._forget(key, done))

    async def leave(self, session: SessionId) -> None:
        """Let go of a session; its asks stay open, and their answers are kept."""
        left = [bringing for (of, _), bringing in self._bringing.items() if of == session]
        for each in left:
            each.presence.leave()
            each.task.cancel()
        await asyncio.gather(*(each.task for each in left), return_exceptions=True)

    async def _bring(self, session: SessionId, team: str, answer: PeerAnswer, settled: CallId | None, presence: Presence) -> None:
        try:
            await self._ask(session, team, answer, settled, presence)
        except (CommandRefused, Undecided):
            # The session was closed meanwhile, somebody else has settled it, or will with what is kept for them.
            return
        except (TryLater, Broken, Conflict):
            # The disk is full, or worse, which may pass; nothing else would have the session looked at again.
            await asyncio.sleep(_LOOK_AGAIN)
            # Whoever is woken looks at what is not under way, and may begin it anew before this task has ended.
            self._bringing.pop((session, answer.message), None)
            self._house.wakes.wake(frozenset({session_stream(session)}))

    def _forget(self, key: tuple[SessionId, MessageId], done: "asyncio.Task[None]") -> None:
        bringing = self._bringing.get(key)
        if bringing is not None and bringing.task is done:
            del self._bringing[key]

    async def _ask(self, session: SessionId, team: str, answer: PeerAnswer, settled: CallId | None, presence: Presence) -> None:
        """Ask whether the answer may leave, or go on where that was answered while nobody was here."""
        if settled is None:
            request = CallRequest(tool=ANSWER, arguments=answer_arguments(team, answer), by_house=True)
            answered = await self._gate.request(session, request, presence=presence)
        else:
            answered = await self._gate.go_on(session, settled)
        if answered.result is None or not answered.result.ok:
            why = refusal_text(answered.verdict) if answered.result is None else str(answered.result.value)
            await self._house.send(session, WithholdAnswer(by=SYSTEM, message=answer.message, why=why))


def _is_about(call: OpenCall, message: MessageId) -> bool:
    return call.subject.tool == ANSWER and call.subject.raw.get("message") == message
