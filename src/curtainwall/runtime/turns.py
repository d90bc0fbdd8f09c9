"""Who lets agents work: queued messages become turns, answers take up turns that wait, and an interrupt ends one."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from curtainwall.model import (
    SYSTEM,
    Agent,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    Broken,
    Closed,
    CommandRefused,
    CompactionSkipped,
    Conflict,
    CurtainwallError,
    EndTurn,
    ExpireMessages,
    Gate,
    HookReply,
    Hooks,
    MessageAccepted,
    MessageId,
    Place,
    Presence,
    RecordProgress,
    ResumeTurn,
    SendMessage,
    SessionId,
    StartTurn,
    Stop,
    StopFailure,
    TryLater,
    TurnAt,
    TurnId,
    TurnResult,
    TurnStatus,
    inbox_of,
    session_of,
    session_stream,
)
from curtainwall.runtime.gate.held import HeldAnswers
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.runtime.sessions.decider import Follow
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import SessionState

AgentOf = Callable[[SessionState], Agent | None]
"""Finds the agent that a session has; None where this process has none that could work for it."""

LastWords = Callable[[SessionId], str]
"""Tells what a session's agent said last, for the hooks."""

_LOG = logging.getLogger(__name__)
_HOOKS_MAY_SEND_BACK = 3
_A_MOMENT, _LOOK_AGAIN = 0.05, 1.0
_INTERRUPTED = TurnResult(status=TurnStatus.INTERRUPTED, failure="interrupted")


class Lifetimes(Protocol):
    """Who hears of the beginning and of the end of sessions whose agents work here; hearing of one again changes nothing."""

    async def begun(self, place: Place) -> None:
        """Hear that a session is ready, before its agent works for the first time here."""
        ...

    async def ended(self, place: Place) -> None:
        """Hear that a session is closed."""
        ...


@dataclass(frozen=True, slots=True)
class _Attended:
    """A session that is looked after."""

    task: "asyncio.Task[None]"
    presence: Presence


class Turns:
    """One process's agents at work, at most one turn at a time in each session."""

    def __init__(
        self,
        house: SessionRegistry,
        agent_of: AgentOf,
        hooks: Hooks,
        last_words: LastWords,
        gate: Gate | None = None,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._house = house
        self._lifetimes = lifetimes
        self._held = None if gate is None else HeldAnswers(house, gate)
        self._agent_of = agent_of
        self._hooks = hooks
        self._last_words = last_words
        self._attended: dict[SessionId, _Attended] = {}
        self._begun: dict[SessionId, TurnId] = {}
        self._greeted: set[SessionId] = set()
        self._is_winding_down = False

    def attend(self, session: SessionId) -> None:
        """Look after a session from here on: whatever it can do by itself is done by this process."""
        attended = self._attended.get(session)
        if attended is None or attended.task.done():
            presence = Presence()
            task = asyncio.create_task(self._attend(session, presence), name=f"turns of {session}")
            self._attended[session] = _Attended(task, presence)
            task.add_done_callback(lambda done: self._forget(session, done))

    def begin_no_more(self) -> None:
        """Begin no turn from here on, nor take one up; those that work go on until they are left."""
        self._is_winding_down = True

    async def leave(self, session: SessionId) -> None:
        """Stop looking after a session; a turn that works is parked as a crash would park it."""
        attended = self._attended.pop(session, None)
        self._greeted.discard(session)
        if attended is not None:
            attended.presence.leave()
            attended.task.cancel()
            await asyncio.gather(attended.task, return_exceptions=True)
        if self._held is not None:
            await self._held.leave(session)

    def _forget(self, session: SessionId, done: "asyncio.Task[None]") -> None:
        """Look no longer after a session that has ended."""
        attended = self._attended.get(session)
        if attended is not None and attended.task is done:
            del self._attended[session]
            self._greeted.discard(session)
            self._begun.pop(session, None)

    async def close(self) -> None:
        """Leave every session, all at once."""
        await asyncio.gather(*(self.leave(session) for session in tuple(self._attended)))

    @property
    def attended(self) -> tuple[SessionId, ...]:
        """The sessions that are looked after here."""
        return tuple(self._attended)

    async def _attend(self, session: SessionId, presence: Presence) -> None:
        stream = session_stream(session)
        pause = _A_MOMENT
        with self._house.wakes.waiter(stream, inbox_of(stream)) as woken:
            while True:
                woken.clear()
                try:
                    async with self._house.hold(session) as actor:
                        if actor.state.opened is None:
                            # It was deleted.
                            return
                        await self._greet(session, actor)
                        if actor.state.closed is not None:
                            await self._part(actor)
                            return
                        while await self._step(session, actor, presence):
                            # What the step itself wrote is no news: it is looked at now.
                            woken.clear()
                        if actor.state.closed is not None:
                            # Closed in the meantime, of which nothing more will tell.
                            await self._part(actor)
                            return
                except Closed:
                    # Closed since it was held, which is told here as well.
                    await woken.wait()
                    continue
                except (TryLater, Broken, Conflict):
                    # Another process decides for it, and lets go where it does not let the agent work; or the disk is full, or worse.
                    if pause < _LOOK_AGAIN:
                        self._house.want(session)
                    await self._house.until_free(stream, pause)
                    pause = min(2 * pause, _LOOK_AGAIN)
                    continue
                except Exception:  # noqa: BLE001 - as said below
                    # A fault of ours in one turn must not leave the session without anybody.
                    _LOG.exception("session `%s` is looked after again in a moment", session)
                    await asyncio.sleep(_LOOK_AGAIN)
                    continue
                pause = _A_MOMENT
                with actor.followed_by(self._beginning(session)):
                    await self._wait_for_change(woken, actor.state)

    async def _wait_for_change(self, woken: asyncio.Event, state: SessionState) -> None:
        """Wait for news, at most until the time of a message that waits is over: whoever sent it is told then, whatever it waits behind."""
        over = [state.expiries[message] for message in state.queue if message in state.expiries]
        if not over:
            await woken.wait()
            return
        waits = (asyncio.create_task(woken.wait()), asyncio.create_task(self._house.clock.sleep_until(min(over))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _greet(self, session: SessionId, actor: Actor) -> None:
        """Have it told that the session has begun, before anything is done in it here."""
        if session in self._greeted or not actor.state.ready or actor.state.closed is not None:
            return
        if self._lifetimes is not None:
            await self._lifetimes.begun(actor.state.place)
        self._greeted.add(session)

    async def _part(self, actor: Actor) -> None:
        """Have it told that the session has ended."""
        if self._lifetimes is not None:
            await self._lifetimes.ended(actor.state.place)

    def _beginning(self, session: SessionId) -> Follow:
        """Return what begins a turn in the same commit as the message that it is about, while nothing else goes on there."""

        def begin(state: SessionState, events: Sequence[AnyEvent]) -> AnyCommand | None:
            is_new = any(isinstance(event, MessageAccepted) for event in events)
            if not is_new or session not in self._greeted or not self._can_begin(state):
                return None
            turn = self._begun[session] = TurnId(self._house.mint())
            return StartTurn(by=SYSTEM, turn=turn)

        return begin

    def _can_begin(self, state: SessionState) -> bool:
        if self._is_winding_down:
            return False
        is_free = state.ready and state.closed is None and state.turn is None and bool(state.queue) and not state.exhausted
        return is_free and not self._is_late(state) and state.compaction_asked is None and self._agent_of(state) is not None

    def _is_late(self, state: SessionState) -> bool:
        """Tell whether a message waits whose time is over."""
        return bool(state.expiries) and min(state.expiries.values()) <= self._house.clock.now()

    async def _step(self, session: SessionId, actor: Actor, presence: Presence) -> bool:
        """Do one thing that the session can do by itself, and tell whether there was one."""
        state = actor.state
        if self._held is not None:
            self._held.look_at(session, state)
        if self._is_late(state) and await actor.submit(ExpireMessages(by=SYSTEM)):
            return True
        agent = self._agent_of(state) if state.ready and state.closed is None else None
        if agent is None or self._is_winding_down:
            return False
        if state.turn is not None and state.turn == self._begun.pop(session, None) and not state.turn_waits:
            return await self._go(agent, actor, TurnAt(session=session, turn=state.turn, presence=presence))
        if state.turn is not None and state.can_go_on:
            at = TurnAt(session=session, turn=state.turn, resumed=True, presence=presence)
            return await self._go(agent, actor, at, ResumeTurn(by=SYSTEM, turn=at.turn))
        if state.turn is None and state.compaction_asked is not None:
            return await self._compact(agent, actor, session, state.compaction_asked)
        if state.turn is None and state.queue and not state.exhausted:
            at = TurnAt(session=session, turn=TurnId(self._house.mint()), presence=presence)
            return await self._go(agent, actor, at, StartTurn(by=SYSTEM, turn=at.turn))
        return False

    async def _compact(self, agent: Agent, actor: Actor, session: SessionId, instructions: str) -> bool:
        """Have older messages summarised; what waits is worked on afterwards, also where that could not be done."""
        try:
            await agent.compact(session, instructions)
        except (Closed, TryLater):
            raise
        except CurtainwallError as fault:
            skipped = CompactionSkipped(at=self._house.clock.now(), why=str(fault))
            await actor.submit(RecordProgress(by=SYSTEM, events=(skipped,)))
        return True

    async def _go(self, agent: Agent, actor: Actor, at: TurnAt, begin: AnyCommand | None = None) -> bool:
        """Let the agent work on a turn and write down how it ended; False where the turn could not begin."""
        try:
            if begin is not None:
                await actor.submit(begin)
        except CommandRefused:
            return False
        place = actor.state.place
        result = await self._worked(agent, at, actor)
        reply = await self._tell_hooks(result, at, place, is_again=False)
        for _ in range(_HOOKS_MAY_SEND_BACK):
            if reply.blocked is None:
                break
            if result.last:
                await actor.submit(RecordProgress(by=SYSTEM, events=result.last))
            message, words = MessageId(self._house.mint()), f"You are not done yet: {reply.blocked}"
            await actor.submit(SendMessage(by=SYSTEM, message=message, text=words, role="context"))
            at = replace(at, resumed=True)
            result = await self._worked(agent, at, actor)
            reply = await self._tell_hooks(result, at, place, is_again=True)
        end = EndTurn(
            by=SYSTEM,
            turn=at.turn,
            status=result.status,
            failure=result.failure,
            fault=result.fault,
            waits_for=result.waits_for,
            last=result.last,
        )
        await self._end(actor, end)
        return True

    async def _end(self, actor: Actor, end: EndTurn) -> None:
        """Write down how a turn ended, however long the disk takes for that: the agent must not work on it twice."""
        is_told = False
        while True:
            try:
                await actor.submit(end)
            except CommandRefused:
                # Somebody closed the session meanwhile, and the turn is over already.
                return
            except (TryLater, Broken) as fault:
                # Nothing more can be read in the log meanwhile, so whoever watches it would see a silence without a reason.
                if not is_told:
                    _LOG.warning("session `%s` waits until the end of its turn can be written down: %s", session_of(actor.stream), fault)
                is_told = True
                await asyncio.sleep(_LOOK_AGAIN)
            else:
                return

    async def _worked(self, agent: Agent, at: TurnAt, actor: Actor) -> TurnResult:
        """Let the agent work until it stops by itself or somebody wants it to."""
        loop, here, until = asyncio.get_running_loop(), asyncio.current_task(), asyncio.timeout(None)
        assert here is not None
        is_stopping = False

        def stop_where_wanted(state: SessionState) -> None:
            nonlocal is_stopping
            # Once: whatever it writes down while it stops must not stop it a second time. And one that leaves is not interrupted besides,
            # which would take back what it asked.
            if not is_stopping and (state.interrupting or state.turn != at.turn) and not here.cancelling():
                is_stopping = True
                # It comes about soon, not now: where the agent waits for this very commit, it hears of that first.
                until.reschedule(loop.time())

        try:
            async with until:
                with actor.observed_by(stop_where_wanted):
                    stop_where_wanted(actor.state)
                    return await agent.work(at)
        except asyncio.CancelledError:
            if here.cancelling():
                raise
            # The agent broke off by itself.
            return _INTERRUPTED
        except Exception as fault:  # noqa: BLE001 - whatever it was, the turn has ended by it
            is_stopped = until.expired() and isinstance(fault, TimeoutError)
            return _INTERRUPTED if is_stopped or isinstance(fault, Closed) else _failed(fault)

    async def _tell_hooks(self, result: TurnResult, at: TurnAt, place: Place, *, is_again: bool) -> HookReply:
        """Tell the hooks how the agent stopped; they may send it back to work where it thinks that it is done."""
        if result.status not in (TurnStatus.DONE, TurnStatus.FAILED):
            return HookReply()
        spoken = [event.text for event in result.last if isinstance(event, AgentSpoke)]
        words = spoken[-1] if spoken else self._last_words(at.session)
        if result.status is TurnStatus.DONE:
            return await self._hooks.tell(Stop(last_assistant_message=words, stop_hook_active=is_again), place)
        await self._hooks.tell(StopFailure(error=result.failure, last_assistant_message=words), place)
        return HookReply()


def _failed(fault: Exception) -> TurnResult:
    name = type(fault).__name__
    why = str(fault) if isinstance(fault, CurtainwallError) else f"a fault of ours: {name}: {fault}"
    return TurnResult(status=TurnStatus.FAILED, failure=why, fault=name)
