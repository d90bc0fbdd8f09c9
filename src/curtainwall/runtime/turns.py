"""Runs agents: queued messages become turns, answers resume turns that wait, and an interrupt ends one."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Protocol

from curtainwall.model import (
    SYSTEM,
    Agent,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    Broken,
    CallId,
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
    Millis,
    Notification,
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
    record,
    session_of,
    session_stream,
    works_on_view,
)
from curtainwall.runtime.gate.held import HeldAnswers
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.runtime.sessions.decider import Follow
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import SessionState

LastWords = Callable[[SessionId], str]
"""Returns the last words of a session's agent, for the hooks."""

_LOG = logging.getLogger(__name__)
_HOOKS_MAY_SEND_BACK = 3
_A_MOMENT, _LOOK_AGAIN = 0.05, 1.0
_INTERRUPTED = TurnResult(status=TurnStatus.INTERRUPTED, failure="interrupted")
_IDLE = Notification(message="The session waits for the next message", title="Idle", notification_type="idle_prompt")


class Lifetimes(Protocol):
    """Receives the start and end of sessions whose agents work here. Repeated calls change nothing."""

    @property
    def idle_after(self) -> float:
        """After how many seconds without a message hooks hear that a session is idle."""
        ...

    async def begun(self, place: Place, reopened: int) -> None:
        """Called when a session is ready, before its agent first works here; it was opened again so many times."""
        ...

    async def ended(self, place: Place, reopened: int) -> None:
        """Called when a session is closed."""
        ...


class ChangeReviews(Protocol):
    """Presents what a session changed in its view of a project, and applies what is accepted."""

    async def present(self, at: TurnAt) -> TurnResult | None:
        """Present the changes after the agent is done; return how the turn ends, or None if the agent has to work on."""
        ...

    async def settle(self, at: TurnAt) -> TurnResult | None:
        """Carry out the answer to what was presented before a wait; return how the turn ends, or None if the agent has to work on."""
        ...

    async def finish(self, session: SessionId, call: CallId) -> None:
        """Apply accepted changes that a process left half applied."""
        ...

    async def leave(self, session: SessionId) -> None:
        """Called when a turn ends, and when the session is let go: nothing works in its view any more."""
        ...


@record
class _Attended:
    """A session that is looked after."""

    task: "asyncio.Task[None]"
    presence: Presence


class Turns:
    """Runs one process's agents, at most one turn at a time in each session. Without an agent, messages only wait."""

    def __init__(  # noqa: PLR0913 - each is one thing that `compose` decides
        self,
        registry: SessionRegistry,
        agent: Agent | None,
        hooks: Hooks,
        last_words: LastWords,
        gate: Gate | None = None,
        lifetimes: Lifetimes | None = None,
        reviews: ChangeReviews | None = None,
    ) -> None:
        self._registry = registry
        self._reviews = reviews
        self._lifetimes = lifetimes
        self._held = None if gate is None else HeldAnswers(registry, gate)
        self._agent = agent
        self._hooks = hooks
        self._last_words = last_words
        self._attended: dict[SessionId, _Attended] = {}
        self._begun: dict[SessionId, TurnId] = {}
        self._announced: dict[SessionId, int] = {}
        """How often the sessions whose start was announced had been opened again by then."""
        self._is_winding_down = False

    def attend(self, session: SessionId) -> None:
        """Look after a session from here on: this process does whatever the session can do without a command."""
        attended = self._attended.get(session)
        if attended is None or attended.task.done():
            presence = Presence()
            task = asyncio.create_task(self._attend(session, presence), name=f"turns of {session}")
            self._attended[session] = _Attended(task, presence)
            task.add_done_callback(lambda done: self._forget(session, done))

    def begin_no_more(self) -> None:
        """Neither begin nor resume turns from here on. Running turns continue until their session is left."""
        self._is_winding_down = True

    async def leave(self, session: SessionId) -> None:
        """Stop looking after a session. A running turn is parked as a crash would park it."""
        attended = self._attended.pop(session, None)
        self._announced.pop(session, None)
        if attended is not None:
            attended.presence.leave()
            attended.task.cancel()
            await asyncio.gather(attended.task, return_exceptions=True)
        if self._held is not None:
            await self._held.leave(session)
        if self._reviews is not None:
            await self._reviews.leave(session)

    def _forget(self, session: SessionId, done: "asyncio.Task[None]") -> None:
        """Forget a session whose task has ended."""
        attended = self._attended.get(session)
        if attended is not None and attended.task is done:
            del self._attended[session]
            self._announced.pop(session, None)
            self._begun.pop(session, None)

    async def close(self) -> None:
        """Leave every session, all at once."""
        await asyncio.gather(*(self.leave(session) for session in tuple(self._attended)))

    def attends(self, session: SessionId) -> bool:
        """Tell whether a session is looked after here."""
        return session in self._attended

    @property
    def attended(self) -> tuple[SessionId, ...]:
        """The sessions that are looked after here."""
        return tuple(self._attended)

    async def _attend(self, session: SessionId, presence: Presence) -> None:
        stream = session_stream(session)
        pause = _A_MOMENT
        reported_turns: int | None = None
        with self._registry.wakes.waiter(stream, inbox_of(stream)) as woken:
            while True:
                woken.clear()
                try:
                    async with self._registry.hold(session) as actor:
                        if actor.state.opened is None:
                            # It was deleted.
                            return
                        # A session that was idle before it was looked after here is not reported.
                        reported_turns = actor.state.totals.turns if reported_turns is None else reported_turns
                        await self._announce_start(session, actor)
                        if await self._has_ended(actor):
                            return
                        while await self._step(session, actor, presence):
                            # Events of this step are not news: the next step looks at them anyway.
                            woken.clear()
                        # It may have been closed in the meantime, and nothing would wake us again.
                        if await self._has_ended(actor):
                            return
                except Closed:
                    # Closed since it was held; the waiter is woken for that too.
                    await woken.wait()
                    continue
                except (TryLater, Broken, Conflict):
                    # Another process owns the session and releases it unless its agent works there; or the disk is full or failing.
                    if pause < _LOOK_AGAIN:
                        self._registry.want(session)
                    await self._registry.until_free(stream, pause)
                    pause = min(2 * pause, _LOOK_AGAIN)
                    continue
                except Exception:  # noqa: BLE001 - see below
                    # A fault of ours in one turn must not leave the session unattended.
                    _LOG.exception("session `%s` is looked after again in a moment", session)
                    await asyncio.sleep(_LOOK_AGAIN)
                    continue
                pause, state = _A_MOMENT, actor.state
                with actor.followed_by(self._beginning(session)):
                    if self._lifetimes is not None and state.totals.turns != reported_turns and state.is_at_rest:
                        idle_at = self._registry.clock.now() + Millis(self._lifetimes.idle_after * 1000)
                        if not await self._wait_for_change(woken, state, idle_at):
                            reported_turns = state.totals.turns
                            await self._hooks.tell(_IDLE, state.place)
                    else:
                        await self._wait_for_change(woken, state)

    async def _wait_for_change(self, woken: asyncio.Event, state: SessionState, at_most: Millis | None = None) -> bool:
        """Wait for news and return whether there is any, at most until a time or until a queued message expires.

        The sender of that message is notified then, whatever the message waits behind.
        """
        expiries = [state.expiries[message] for message in state.queue if message in state.expiries]
        ends = [*expiries, *(() if at_most is None else (at_most,))]
        if not ends:
            return await woken.wait()
        waits = (asyncio.create_task(woken.wait()), asyncio.create_task(self._registry.clock.sleep_until(min(ends))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return woken.is_set()

    async def _announce_start(self, session: SessionId, actor: Actor) -> None:
        """Announce that the session has begun, before anything is done in it here."""
        state = actor.state
        if self._is_announced(session, state) or not state.ready or state.closed is not None:
            return
        if self._lifetimes is not None:
            await self._lifetimes.begun(state.place, state.reopened)
        self._announced[session] = state.reopened

    def _is_announced(self, session: SessionId, state: SessionState) -> bool:
        return self._announced.get(session) == state.reopened

    async def _has_ended(self, actor: Actor) -> bool:
        """Announce the end of a session that is closed, and tell whether it still is: somebody may open it again meanwhile."""
        while (ended := actor.state).closed is not None:
            if self._lifetimes is not None:
                await self._lifetimes.ended(ended.place, ended.reopened)
            if actor.state.closed is not None and actor.state.reopened == ended.reopened:
                return True
        return False

    def _beginning(self, session: SessionId) -> Follow:
        """Return a callback that begins a turn in the same commit as its message, while the session is free."""

        def begin(state: SessionState, events: Sequence[AnyEvent]) -> AnyCommand | None:
            is_new = any(isinstance(event, MessageAccepted) for event in events)
            if not is_new or not self._is_announced(session, state) or not self._can_begin(state):
                return None
            turn = self._begun[session] = TurnId(self._registry.mint())
            return StartTurn(by=SYSTEM, turn=turn)

        return begin

    def _can_begin(self, state: SessionState) -> bool:
        if self._is_winding_down:
            return False
        is_free = state.ready and state.closed is None and state.turn is None and bool(state.queue) and not state.exhausted
        return is_free and not self._has_expired(state) and state.compaction_asked is None and self._agent is not None

    def _has_expired(self, state: SessionState) -> bool:
        """Tell whether a queued message has expired."""
        return bool(state.expiries) and min(state.expiries.values()) <= self._registry.clock.now()

    async def _step(self, session: SessionId, actor: Actor, presence: Presence) -> bool:
        """Do one thing that the session can do without a command, and return whether there was one."""
        state = actor.state
        if self._held is not None:
            self._held.look_at(session, state)
        if self._has_expired(state) and await actor.submit(ExpireMessages(by=SYSTEM)):
            return True
        agent = self._agent if state.ready and state.closed is None else None
        if agent is None or self._is_winding_down:
            return False
        if self._reviews is not None and state.applying is not None:
            await self._reviews.finish(session, state.applying)
            return True
        if state.turn is not None and state.turn == self._begun.pop(session, None) and not state.turn_waits:
            return await self._run_turn(agent, actor, TurnAt(session=session, turn=state.turn, presence=presence))
        if state.turn is not None and state.can_go_on:
            at = TurnAt(session=session, turn=state.turn, resumed=True, presence=presence)
            return await self._run_turn(agent, actor, at, ResumeTurn(by=SYSTEM, turn=at.turn))
        if state.turn is None and state.compaction_asked is not None:
            return await self._compact(agent, actor, session, state.compaction_asked)
        if state.turn is None and state.queue and not state.exhausted:
            at = TurnAt(session=session, turn=TurnId(self._registry.mint()), presence=presence)
            return await self._run_turn(agent, actor, at, StartTurn(by=SYSTEM, turn=at.turn))
        return False

    async def _compact(self, agent: Agent, actor: Actor, session: SessionId, instructions: str) -> bool:
        """Have older messages summarised. Queued messages are handled afterwards, even if this fails."""
        try:
            await agent.compact(session, instructions)
        except (Closed, TryLater):
            raise
        except CurtainwallError as fault:
            skipped = CompactionSkipped(at=self._registry.clock.now(), why=str(fault))
            await actor.submit(RecordProgress(by=SYSTEM, events=(skipped,)))
        return True

    async def _run_turn(self, agent: Agent, actor: Actor, at: TurnAt, begin: AnyCommand | None = None) -> bool:
        """Let the agent work on a turn and record how it ended; return False if the turn could not begin."""
        try:
            if begin is not None:
                await actor.submit(begin)
        except CommandRefused:
            return False
        reviews = self._reviews_of(actor.state)
        result = None if reviews is None or not at.resumed else await self._settled(reviews, at)
        while result is None:
            at, result = await self._work_to_end(agent, actor, at)
            # Its mode may have changed meanwhile.
            reviews = reviews or self._reviews_of(actor.state)
            if reviews is not None and result.status is TurnStatus.DONE:
                if result.last:
                    await actor.submit(RecordProgress(by=SYSTEM, events=result.last))
                result = await _or_failed(reviews.present(at))
                at = replace(at, resumed=True)
        if reviews is not None:
            await reviews.leave(at.session)
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

    def _reviews_of(self, state: SessionState) -> ChangeReviews | None:
        """Return who presents a session's changes if it may have a view. Others end their turns without a pause, in one commit."""
        may_have_view = state.proposal is not None or works_on_view(state.workspace, state.mode)
        return self._reviews if may_have_view else None

    async def _settled(self, reviews: ChangeReviews, at: TurnAt) -> TurnResult | None:
        """Carry out the answer to what was presented, however long the disk takes: it was given, and counts."""
        while True:
            try:
                return await _or_failed(reviews.settle(at))
            except TryLater as fault:
                _LOG.warning("session `%s` waits until the answer to its changes can be carried out: %s", at.session, fault)
                await asyncio.sleep(_LOOK_AGAIN)

    async def _work_to_end(self, agent: Agent, actor: Actor, at: TurnAt) -> tuple[TurnAt, TurnResult]:
        """Let the agent work until it stops and no hook sends it back."""
        place = actor.state.place
        result = await self._work(agent, at, actor)
        reply = await self._tell_hooks(result, at, place, is_again=False)
        for _ in range(_HOOKS_MAY_SEND_BACK):
            if reply.blocked is None:
                break
            if result.last:
                await actor.submit(RecordProgress(by=SYSTEM, events=result.last))
            message, text = MessageId(self._registry.mint()), f"You are not done yet: {reply.blocked}"
            await actor.submit(SendMessage(by=SYSTEM, message=message, text=text, role="context"))
            at = replace(at, resumed=True)
            result = await self._work(agent, at, actor)
            reply = await self._tell_hooks(result, at, place, is_again=True)
        return at, result

    async def _end(self, actor: Actor, end: EndTurn) -> None:
        """Record how a turn ended, however long the disk takes: the agent must not work on it twice."""
        is_logged = False
        while True:
            try:
                await actor.submit(end)
            except CommandRefused:
                # The session was closed meanwhile, and the turn is already over.
                return
            except (TryLater, Broken) as fault:
                # The log shows nothing meanwhile, so anyone who watches it would see an unexplained silence.
                if not is_logged:
                    _LOG.warning("session `%s` waits until the end of its turn can be written down: %s", session_of(actor.stream), fault)
                is_logged = True
                await asyncio.sleep(_LOOK_AGAIN)
            else:
                _LOG.info("session `%s`: the turn ended: %s", session_of(actor.stream), end.status.value)
                return

    async def _work(self, agent: Agent, at: TurnAt, actor: Actor) -> TurnResult:
        """Let the agent work until it stops or someone interrupts it."""
        loop, task, timeout = asyncio.get_running_loop(), asyncio.current_task(), asyncio.timeout(None)
        assert task is not None
        is_stopping = False

        def stop_if_asked(state: SessionState) -> None:
            nonlocal is_stopping
            # Only once: what the agent writes while stopping must not stop it again. A turn that is being left is not interrupted as well,
            # because that would withdraw its asks.
            if not is_stopping and (state.interrupting or state.turn != at.turn) and not task.cancelling():
                is_stopping = True
                # Takes effect soon, not now: if the agent waits for this very commit, it gets the result first.
                timeout.reschedule(loop.time())

        try:
            async with timeout:
                with actor.observed_by(stop_if_asked):
                    stop_if_asked(actor.state)
                    return await agent.work(at)
        except asyncio.CancelledError:
            if task.cancelling():
                raise
            # The agent cancelled itself.
            return _INTERRUPTED
        except Exception as fault:  # noqa: BLE001 - any failure ends the turn
            is_stopped = timeout.expired() and isinstance(fault, TimeoutError)
            return _INTERRUPTED if is_stopped or isinstance(fault, Closed) else _failed_result(fault)

    async def _tell_hooks(self, result: TurnResult, at: TurnAt, place: Place, *, is_again: bool) -> HookReply:
        """Notify the hooks how the agent stopped. If it considers itself done, they may send it back to work."""
        if result.status not in (TurnStatus.DONE, TurnStatus.FAILED):
            return HookReply()
        texts = [event.text for event in result.last if isinstance(event, AgentSpoke)]
        last_text = texts[-1] if texts else self._last_words(at.session)
        if result.status is TurnStatus.DONE:
            return await self._hooks.tell(Stop(last_assistant_message=last_text, stop_hook_active=is_again), place)
        await self._hooks.tell(StopFailure(error=result.failure, error_details=result.fault, last_assistant_message=last_text), place)
        return HookReply()


async def _or_failed(work: Coroutine[None, None, TurnResult | None]) -> TurnResult | None:
    """Return the result of presenting changes or carrying out an answer; if that fails, the turn does."""
    try:
        return await work
    except TryLater:
        raise
    except Closed:
        return _INTERRUPTED
    except Exception as fault:  # noqa: BLE001 - any failure ends the turn
        return _failed_result(fault)


def _failed_result(fault: Exception) -> TurnResult:
    name = type(fault).__name__
    why = str(fault) if isinstance(fault, CurtainwallError) else f"a fault of ours: {name}: {fault}"
    return TurnResult(status=TurnStatus.FAILED, failure=why, fault=name)
