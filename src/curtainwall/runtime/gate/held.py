"""Answers to other teams that need approval before they are sent: each goes through the gate once, and is sent or withheld."""

import asyncio

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
    record,
    session_stream,
)
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import CallStatus, OpenCall, SessionState, answer_arguments, refusal_text

_LOOK_AGAIN = 1.0


@record
class _Bringing:
    """An answer that is going through the gate."""

    task: "asyncio.Task[None]"
    presence: Presence


class HeldAnswers:
    """The held answers of the sessions that this process looks after. Asks that are open when it leaves stay open."""

    def __init__(self, registry: SessionRegistry, gate: Gate) -> None:
        self._registry = registry
        self._gate = gate
        self._bringing: dict[tuple[SessionId, MessageId], _Bringing] = {}

    def look_at(self, session: SessionId, state: SessionState) -> None:
        """Start the gate for each held answer that is not there yet."""
        for message, answer in state.owed.items():
            if (session, message) not in self._bringing:
                settled = next(
                    (call for call, it in state.calls.items() if _is_about(it, message) and it.standing is CallStatus.ANSWERED), None
                )
                presence = Presence()
                work = self._bring(session, state.peers[message].team, answer, settled, presence)
                task = asyncio.create_task(work, name=f"answer to {message}")
                self._bringing[session, message] = _Bringing(task, presence)
                # Not in the task itself: a task that is cancelled before its first step would never reach it.
                task.add_done_callback(lambda done, key=(session, message): self._forget(key, done))

    async def leave(self, session: SessionId) -> None:
        """Stop looking after a session. Its asks stay open, and their answers are kept."""
        leaving = [bringing for (owner, _), bringing in self._bringing.items() if owner == session]
        for each in leaving:
            each.presence.leave()
            each.task.cancel()
        await asyncio.gather(*(each.task for each in leaving), return_exceptions=True)

    async def _bring(self, session: SessionId, team: str, answer: PeerAnswer, settled: CallId | None, presence: Presence) -> None:
        try:
            await self._ask(session, team, answer, settled, presence)
        except (CommandRefused, Undecided):
            # The session was closed meanwhile, or another process has settled this or will, with the command that is kept for it.
            return
        except (TryLater, Broken, Conflict):
            # The disk is full or failing, which may pass. Nothing else would cause another look at the session.
            await asyncio.sleep(_LOOK_AGAIN)
            # Remove this first: the woken session may start the answer again before this task has ended.
            self._bringing.pop((session, answer.message), None)
            self._registry.wakes.wake(frozenset({session_stream(session)}))

    def _forget(self, key: tuple[SessionId, MessageId], done: "asyncio.Task[None]") -> None:
        bringing = self._bringing.get(key)
        if bringing is not None and bringing.task is done:
            del self._bringing[key]

    async def _ask(self, session: SessionId, team: str, answer: PeerAnswer, settled: CallId | None, presence: Presence) -> None:
        """Ask whether the answer may be sent, or continue if that was answered while nobody was here."""
        if settled is None:
            request = CallRequest(tool=ANSWER, arguments=answer_arguments(team, answer), by_house=True)
            answered = await self._gate.request(session, request, presence=presence)
        else:
            answered = await self._gate.resume(session, settled)
        if answered.result is None or not answered.result.ok:
            why = refusal_text(answered.verdict) if answered.result is None else str(answered.result.value)
            await self._registry.send(session, WithholdAnswer(by=SYSTEM, message=answer.message, why=why))


def _is_about(call: OpenCall, message: MessageId) -> bool:
    return call.subject.tool == ANSWER and call.subject.raw.get("message") == message
