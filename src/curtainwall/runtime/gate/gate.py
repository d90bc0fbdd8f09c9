"""The only way out: every subject passes the same ten steps, in this order.

The tools check that the tool exists (1) and that the arguments fit (2), and work out what they mean (3). Hooks run before the call (4).
The session decides by policy (5), breaker (6) and existing answers, or has someone asked (7). After a wait everything is checked again (8).
The permit is durable before the call runs (9). Its outcome is logged, and hooks are notified (10).
"""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import field, replace
from functools import partial
from typing import Final, assert_never, cast
from weakref import WeakValueDictionary

from pydantic import JsonValue

from curtainwall.model import (
    APPLY_CHANGES,
    LOAD_SKILL,
    MOVE_FILE,
    PROPOSE_PLAN,
    SET_WORKING_DIR,
    SYSTEM,
    Answer,
    AnswerApproval,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    Approver,
    BadCall,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequest,
    CallRequested,
    CommandRefused,
    CountDenials,
    CurtainwallError,
    DropCall,
    Effect,
    FinishCall,
    HookReply,
    Hooks,
    NotFound,
    Notification,
    OverBudget,
    Payload,
    PeerMessageSent,
    Place,
    Prepared,
    Presence,
    ProceedCall,
    RequestCall,
    Role,
    Save,
    SessionId,
    Subject,
    ToolEffect,
    ToolHost,
    ToolResult,
    TryLater,
    TurnId,
    Verdict,
    Who,
    denial,
    record,
    stricter,
    works_on_view,
)
from curtainwall.runtime.gate.human_words import human_words
from curtainwall.runtime.gate.modes import within_mode
from curtainwall.runtime.gate.outcomes import finish_call, record_outcome, refusal, write_outcome
from curtainwall.runtime.gate.waits import OrphanedAsks, WaitingCalls
from curtainwall.runtime.no_hooks import NoHooks
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import CallStatus, OpenCall, inert, is_application


class CallsUnderWay:
    """Counts the calls under way; each is wrapped in `async with`."""

    def __init__(self) -> None:
        self._count = 0
        self._is_ending = False
        self._none = asyncio.Event()

    async def __aenter__(self) -> None:
        """Begin a call. During shutdown, block until cancelled."""
        if self._is_ending:
            await asyncio.get_running_loop().create_future()
        self._count += 1

    async def __aexit__(self, *_: object) -> None:
        """End a call."""
        self._done()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Count a call as done while it waits for a human. What follows the answer may still finish."""
        self._done()
        try:
            yield
        finally:
            self._count += 1

    async def finish(self, within: float) -> None:
        """Let no call begin, and wait until all are done, but at most `within` seconds."""
        self._is_ending = True
        self._none.clear()
        if self._count:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._none.wait()

    def _done(self) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()


_LONG: Final = 100_000
_A_WORD: Final = 500
# These may name many paths in few characters, or need a repository, all skills or big files to be read. A thread costs little beside that.
_SLOW: Final = ("shell.", "git.", PROPOSE_PLAN, LOAD_SKILL, MOVE_FILE, APPLY_CHANGES)
# We know what these do with a directory, and no server can have these names.
_OURS: Final = ("filesystem.", "session.", "teams.", "fetch.")


class CallPreparer:
    """Turns calls into subjects, in a thread if that may take long."""

    def __init__(self, tools: ToolHost) -> None:
        self._tools = tools
        self._turns: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Return what a call means; raise `BadCall`."""
        # The first call on a view mounts it.
        is_slow = tool.startswith(_SLOW) or works_on_view(place.workspace, place.mode)
        if not is_slow and not _is_long(arguments) and not self._looks_into(tool):
            return self._tools.prepare(tool, arguments, place)
        turn = self._turns.setdefault(place.session, asyncio.Lock())
        await turn.acquire()
        read = partial(self._tools.prepare, tool, arguments, place)
        try:
            reading = asyncio.get_running_loop().run_in_executor(None, copy_context().run, read)
        except RuntimeError as fault:
            turn.release()
            raise TryLater("no thread can be started to read this call; try again") from fault
        # A thread cannot be stopped: even if nobody waits for it any more, it keeps the session's turn until it ends.
        reading.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(reading)

    def _looks_into(self, tool: str) -> bool:
        """Tell whether preparing a call may search a directory: what a server does there is unknown."""
        spec = None if tool.startswith(_OURS) else self._tools.find(tool)
        return spec is not None and any(Role.READ_PATH in meaning.roles for meaning in spec.meanings)


def _is_long(arguments: JsonValue) -> bool:
    """Tell whether masking, checking and resolving arguments would block others for too long; stops counting as soon as that is clear."""
    waiting, size = [arguments], 0
    while waiting and size <= _LONG:
        value = waiting.pop()
        size += 1
        if isinstance(value, str):
            size += len(value) + _A_WORD
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return size > _LONG


_LOG = logging.getLogger(__name__)
_COUNT_EVERY = 100
_KNOWN_WITHIN = 10.0
_NOT_IN_LOG = "the log does not keep a value in it that looks like a secret; make the same call again, and the answer counts for it"


@record
class _PendingCall:
    """One call that is going through the gate."""

    call: CallId
    tool: str
    arguments: JsonValue
    turn: TurnId | None
    place: Place
    save: Save | None = None
    by_house: bool = False
    server: str = ""
    unclear: str = ""
    presence: Presence = field(default_factory=Presence)


class SessionGate:
    """The gate for the sessions of one registry."""

    def __init__(self, registry: SessionRegistry, tools: ToolHost, hooks: Hooks | None = None, approver: Approver | None = None) -> None:
        self._registry = registry
        self._tools = tools
        self._preparer = CallPreparer(tools)
        self._hooks = hooks or NoHooks()
        self._approver = approver
        self._orphans = OrphanedAsks(registry)
        self._waiting = WaitingCalls(registry)
        self._under_way = CallsUnderWay()
        self._applying: dict[CallId, asyncio.Event] = {}

    async def finish(self, within: float) -> None:
        """Let no call begin, and let running calls end if they do so in time."""
        await self._under_way.finish(within)

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Pass a call through the ten steps. If a human is asked, wait for the answer, or return at once with `waiting`."""
        async with self._under_way, self._registry.hold(session) as actor:
            place = actor.state.place
            pending = _PendingCall(
                request.call or CallId(self._registry.mint()),
                request.tool,
                request.arguments,
                request.turn,
                place,
                save,
                request.by_house,
                request.server,
                request.unclear,
                presence or Presence(),
            )
            try:
                return await self._walk(actor, pending, wait=wait)
            except OverBudget as spent:
                self._count(actor)
                return Answer(call=pending.call, verdict=denial("call-budget", str(spent)))

    async def resume_answered(self, session: SessionId) -> Sequence[Answer]:
        """Continue the calls that were answered while nobody was there to run them."""
        answers: list[Answer] = []
        async with self._under_way, self._registry.hold(session) as actor:
            # The caller has seen the answer in the log, where it appears a moment before it is here.
            try:
                async with asyncio.timeout(_KNOWN_WITHIN):
                    await actor.catch_up(self._registry.stores.log.head(actor.stream))
            except TimeoutError:
                raise TryLater(f"session `{session}` does not know its own log; try again") from None
            place = actor.state.place
            for call, open_ in tuple(actor.state.calls.items()):
                if open_.standing is CallStatus.ANSWERED:
                    pending = _resumed_call(call, open_, place)
                    kept_answer = await self._keep_answer(actor, call) if open_.subject.masked else None
                    answers.append(kept_answer or await self._look_again(actor, pending, wait=False))
        return answers

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Continue a call that needed approval. If its meaning has changed it is dropped, and the agent may request it again."""
        async with self._under_way, self._registry.hold(session) as actor:
            open_ = actor.state.calls.get(call)
            if open_ is None:
                raise NotFound(f"there is no open call `{call}`")
            approval = actor.state.approvals.get(open_.approval) if open_.approval is not None else None
            if open_.standing is CallStatus.ASKED and approval is not None:
                return Answer(call=call, verdict=_ask_verdict(approval.asked), waiting=True)
            place = actor.state.place
            pending = _resumed_call(call, open_, place, arguments)
            if is_application(open_):
                if (running := self._applying.get(call)) is not None:
                    # It is applied right now, outside of a turn.
                    await running.wait()
                    return Answer(call=call, verdict=denial("call-finished", "these changes were being applied already"))
                return await self._apply_again(actor, pending)
            with self._waiting.on(call):
                try:
                    await self._waiting.take_over(actor, call)
                    if open_.subject.masked and arguments is None:
                        return await self._keep_answer(actor, call)
                    return await self._look_again(actor, pending, wait=False, anew=False)
                except asyncio.CancelledError:
                    await asyncio.shield(self._let_go(actor, pending, has_left=False))
                    raise

    async def _apply_again(self, actor: Actor, pending: _PendingCall) -> Answer:
        """Apply accepted changes whose outcome is unknown: whoever did it before ended, and applying may be repeated."""
        recorded = (it.event for it in self._registry.feed.read(actor.stream))
        permit = next(event for event in recorded if isinstance(event, CallPermitted) and event.call == pending.call)
        try:
            prepared = await self._preparer.prepare(pending.tool, pending.arguments, pending.place)
            # INVARIANT: what is applied again is exactly what was permitted; what the paths mean by now decides nothing.
            subject = prepared.subject.model_copy(update={"digest": permit.digest})
        except BadCall as bad:
            result = ToolResult(ok=False, value=f"the changes were accepted, and cannot be applied any more: {bad}")
            shown = await record_outcome(actor, permit, result, self._registry.stores.blobs, inspects=False)
            return Answer(call=pending.call, verdict=permit.verdict, result=ToolResult(ok=False, value=shown))
        return await self._run(actor, pending, replace(prepared, subject=subject), permit)

    async def _keep_answer(self, actor: Actor, call: CallId) -> Answer:
        """Drop a call whose real arguments are gone. The answer counts for the agent's next call with the same ones.

        INVARIANT: a mask never runs in place of the value behind it.
        """
        await actor.submit(DropCall(by=SYSTEM, call=call, why=_NOT_IN_LOG))
        return Answer(call=call, verdict=denial("call-dropped", _NOT_IN_LOG))

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Drop a call that nobody waits for any more; does nothing if it has ended."""
        async with self._registry.hold(session) as actor:
            with suppress(CommandRefused):
                await actor.submit(DropCall(by=SYSTEM, call=call, why=why))

    async def _walk(self, actor: Actor, pending: _PendingCall, *, wait: bool) -> Answer:
        try:
            return await self._walk_through(actor, pending, wait=wait)
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(actor, pending, has_left=pending.presence.has_left))
            raise

    async def _let_go(self, actor: Actor, pending: _PendingCall, *, has_left: bool) -> None:
        """Close a call that nobody waits for any more, at any step. An ask whose agent has only left stays open."""
        open_ = actor.state.calls.get(pending.call)
        approval = actor.state.approvals.get(open_.approval) if open_ is not None and open_.approval is not None else None
        if approval is not None and has_left and approval.calls == (pending.call,):
            is_kept = self._orphans.keep(pending.place.session, pending.call, approval.asked.approval, actor.seq)
            if is_kept:
                return
        with suppress(CurtainwallError):
            try:
                await actor.submit(DropCall(by=SYSTEM, call=pending.call, why="the agent no longer waits for it"))
            except CommandRefused:
                # It has ended, or the session has, or it holds a permit.
                open_ = actor.state.calls.get(pending.call)
                if open_ is None or open_.permit is None or is_application(open_):
                    # Accepted changes are finished by whoever takes the session over.
                    return
                payload = Payload(inline="interrupted before it ran")
                await write_outcome(actor, FinishCall(by=SYSTEM, call=pending.call, permit=open_.permit, ok=False, result=payload))

    async def _walk_through(self, actor: Actor, pending: _PendingCall, *, wait: bool) -> Answer:
        try:
            spec = self._tools.find(pending.tool)
            if spec is not None and spec.for_house and not pending.by_house:
                raise BadCall("unknown-tool", f"there is no tool `{pending.tool}` for agents")
            if pending.server and pending.tool.partition(".")[0] != pending.server:
                raise BadCall("unknown-tool", f"there is no tool `{pending.tool}` for whoever comes for those of `{pending.server}`")
            if pending.unclear:
                raise BadCall("invalid-arguments", pending.unclear)
            prepared = await self._preparer.prepare(pending.tool, pending.arguments, pending.place)
            reply = await self._hooks.before_call(prepared.subject, pending.place)
            if reply.arguments is not None:
                # Prepared again, once. From here on this is the call, including when it is checked again after a wait.
                pending = replace(pending, arguments=_rewritten(reply.arguments, prepared))
                prepared = await self._preparer.prepare(pending.tool, pending.arguments, pending.place)
        except BadCall as bad:
            return await self._refuse(actor, pending, bad)
        cursor = actor.seq
        command = RequestCall(
            by=SYSTEM,
            call=pending.call,
            subject=prepared.subject,
            turn=pending.turn,
            hook=reply.says,
            of_program=pending.save is not None,
            along=prepared.along,
        )
        events = await actor.submit(command, save=pending.save)
        return _with_context(await self._go_on(actor, pending, prepared, events, cursor, wait=wait), reply)

    async def _refuse(self, actor: Actor, pending: _PendingCall, bad: BadCall) -> Answer:
        """Log a call that never became a subject."""
        command = refusal(self._tools, pending.call, pending.tool, pending.arguments, pending.turn, bad)
        await actor.submit(command)
        return Answer(call=pending.call, verdict=command.verdict)

    async def _go_on(
        self, actor: Actor, pending: _PendingCall, prepared: Prepared, events: Sequence[AnyEvent], cursor: int, *, wait: bool
    ) -> Answer:
        for event in events:
            if not isinstance(event, CallEvent | ApprovalEvent):
                continue
            match event:
                case CallPermitted():
                    return await self._run(actor, pending, _as_written(prepared, events), event)
                case CallDenied(call=pending.call, verdict=verdict):
                    return Answer(call=pending.call, verdict=verdict)
                case ApprovalAsked():
                    await self._try_approver(actor, prepared.subject, event.approval)
                    if event.approval in actor.state.approvals:
                        await self._hooks.tell(_ask_notification(event, prepared.subject), pending.place)
                    return await self._wait(actor, pending, event.approval, cursor, wait=wait)
                case ApprovalJoined(call=pending.call, approval=approval):
                    return await self._wait(actor, pending, approval, cursor, wait=wait)
                case CallDropped(call=pending.call):
                    # The meaning of the approved subject has changed, so this is a new call.
                    return await self._walk(actor, replace(pending, call=CallId(self._registry.mint())), wait=wait)
                case CallRequested() | CallDenied() | CallFinished() | CallLost() | CallDropped():
                    continue
                case ApprovalJoined() | ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                    continue
                case _:
                    assert_never(event)
        raise CommandRefused(f"the gate cannot go on with call `{pending.call}`")

    async def _try_approver(self, actor: Actor, subject: Subject, approval: ApprovalId) -> None:
        """Step 7, if configured: an automatic approver can only approve; otherwise the ask goes to humans."""
        if self._approver is None or subject.steps or subject.masked or subject.changes is not None:
            # A plan is approved for later, an approver does not see what a mask hides, and reviews are for humans.
            return
        try:
            words = human_words(self._registry.feed, actor.stream, self._registry.rules())
            name = cast("object", await self._approver.approves(subject, words))
            if name is not None and not isinstance(name, str):
                raise TypeError(f"it returned {type(name).__name__}, neither its name nor None")
        except Exception as fault:  # noqa: BLE001 - whatever an approver does wrong, a human is asked
            _LOG.warning("the automatic approver failed, and the ask is left to humans: %s", type(fault).__name__)
            return
        if name:
            # A human may have been faster; then that answer counts.
            with suppress(CommandRefused):
                await actor.submit(AnswerApproval(by=Who(name=name, channel=SYSTEM.channel), approval=approval, granted=True))

    async def _wait(self, actor: Actor, pending: _PendingCall, approval: ApprovalId, cursor: int, *, wait: bool) -> Answer:
        """Wait until the ask ends, or return at once that a human is asked."""
        open_ = actor.state.approvals.get(approval)
        if not wait and open_ is not None:
            return Answer(call=pending.call, verdict=_ask_verdict(open_.asked), waiting=True)
        with self._waiting.on(pending.call):
            with self._under_way.waiting():
                ended = await self._waiting.until_settled(actor, pending.call, cursor)
            return ended or await self._look_again(actor, pending, wait=wait)

    async def _look_again(self, actor: Actor, pending: _PendingCall, *, wait: bool, anew: bool = True) -> Answer:
        """Step 8: determine facts and verdict again. If the meaning has changed, it is a new call, unless `anew` is off."""
        try:
            prepared = await self._preparer.prepare(pending.tool, pending.arguments, pending.place)
        except BadCall as bad:
            # The approval was for something that can no longer be resolved, so it must not count for anything else.
            await actor.submit(DropCall(by=SYSTEM, call=pending.call, why=str(bad), keep_answer=False))
            return await self._refuse(actor, replace(pending, call=CallId(self._registry.mint())), bad)
        cursor = actor.seq
        events = await actor.submit(ProceedCall(by=SYSTEM, call=pending.call, subject=prepared.subject))
        if not anew and any(isinstance(event, CallDropped) and event.call == pending.call for event in events):
            return Answer(call=pending.call, verdict=denial("call-dropped", "it means something else than when it was approved"))
        return await self._go_on(actor, pending, prepared, events, cursor, wait=wait)

    async def _run(self, actor: Actor, pending: _PendingCall, prepared: Prepared, permit: CallPermitted) -> Answer:
        """Steps 9 and 10: the permit is durable, so run the call with its canonical arguments and log its outcome."""
        if actor.state.mode is not pending.place.mode:
            # The mode changed while a human or a hook decided. Use the stricter of what was shown and what holds now.
            pending = replace(pending, place=replace(pending.place, mode=stricter(pending.place.mode, actor.state.mode)))
        applies = prepared.subject.tool == APPLY_CHANGES
        if not applies:
            return await self._run_to_end(actor, pending, prepared, permit)
        ended = self._applying[pending.call] = asyncio.Event()
        try:
            return await self._run_to_end(actor, pending, prepared, permit)
        finally:
            del self._applying[pending.call]
            ended.set()

    async def _run_to_end(self, actor: Actor, pending: _PendingCall, prepared: Prepared, permit: CallPermitted) -> Answer:
        applies = prepared.subject.tool == APPLY_CHANGES
        try:
            running = self._tools.run(prepared, permit, pending.place)
            # What was accepted is applied as a whole, also if the mode changes meanwhile.
            result = await (running if applies else within_mode(actor, prepared.subject.effect, pending.place.mode, running))
        except asyncio.CancelledError:
            if applies:
                raise
            cut = ToolResult(ok=False, value="interrupted: the call may have had its effect, in part or whole")
            # Even if the outcome cannot be written, the cancellation must reach its caller.
            with suppress(CurtainwallError):
                await asyncio.shield(finish_call(actor, permit, cut, self._registry.stores.blobs))
            raise
        except Exception as error:  # noqa: BLE001 - a tool's failure is an outcome, whatever it raised
            result = ToolResult(ok=False, value=self._tools.masked(f"the tool failed: {type(error).__name__}: {error}"))
        # The meaning of the next call depends on the working directory, so a change of it must be durable first.
        inspects = prepared.subject.effect is ToolEffect.INSPECT and prepared.subject.tool != SET_WORKING_DIR
        shown = await record_outcome(actor, permit, result, self._registry.stores.blobs, inspects=inspects)
        reply = await self._hooks.after_call(prepared.subject, result, pending.place)
        is_whole = shown is result.value
        answer = Answer(
            call=pending.call,
            verdict=permit.verdict,
            result=result if is_whole else ToolResult(ok=result.ok, value=shown),
            by_human=permit.is_approved_by_human,
            complete=None if is_whole else result.value,
        )
        return _with_context(answer, reply)

    def _count(self, actor: Actor) -> None:
        """Count a denial past the budget of logged calls: one event stands for many."""
        actor.uncounted += 1
        if actor.uncounted >= _COUNT_EVERY:
            actor.owe(CountDenials(by=SYSTEM, count=actor.uncounted))
            actor.uncounted = 0


def _resumed_call(call: CallId, open_: OpenCall, place: Place, arguments: Mapping[str, JsonValue] | None = None) -> _PendingCall:
    """Return an open call as it was first made. `arguments` come from its agent, in case the log has them masked."""
    # If nothing is masked, the log is right: a hook may have changed what the agent wrote.
    written = arguments if arguments is not None and open_.subject.masked else open_.subject.raw
    return _PendingCall(call, open_.subject.tool, dict(written), open_.turn, place)


def _rewritten(arguments: Mapping[str, JsonValue], prepared: Prepared) -> dict[str, JsonValue]:
    """Return the arguments as hooks changed them. Hooks see masked values; those left unchanged keep the agent's real value."""
    shown, real = prepared.subject.canonical, prepared.arguments
    return {key: real[key] if key in real and shown.get(key) == value else value for key, value in arguments.items()}


def _as_written(prepared: Prepared, events: Sequence[AnyEvent]) -> Prepared:
    """Return the call without its accompanying message if that was not sent with the permit."""
    if prepared.along is None or any(isinstance(event, PeerMessageSent) for event in events):
        return prepared
    return replace(prepared, along=None)


def _with_context(answer: Answer, reply: HookReply) -> Answer:
    """Return the answer with the context that hooks add for the agent; hooks that ran before the call come first."""
    if not reply.context and reply.stopped is None:
        return answer
    context = "\n".join(filter(None, (reply.context, answer.context)))
    return replace(answer, context=context, stopped=answer.stopped or reply.stopped)


def _ask_verdict(asked: ApprovalAsked) -> Verdict:
    rules = dict.fromkeys(rule for cover in asked.covers for rule in cover.rules)
    return Verdict(effect=Effect.ASK, because=tuple(rules), reason="a human is asked")


_LONGEST_NOTICE: Final = 300


def _ask_notification(asked: ApprovalAsked, subject: Subject) -> Notification:
    """Return the text of an ask for hooks; the agent's words in it are escaped and cut."""
    about = ", ".join(f"{cover.role} {cover.value}" for cover in asked.covers)
    words = inert(f"{subject.tool} waits for an answer to ask {asked.approval}: {about}")
    message = words if len(words) <= _LONGEST_NOTICE else f"{words[: _LONGEST_NOTICE - 1]}…"
    return Notification(message=message, title="Approval needed", notification_type="permission_prompt")
