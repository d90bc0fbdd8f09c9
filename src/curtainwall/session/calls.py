"""The pure half of the gate: judge, stop at the breaker, apply standing answers, ask, judge again, permit."""

from collections.abc import Sequence
from typing import Final

from curtainwall import policy
from curtainwall.model import (
    APPLY_CHANGES,
    BY_HOOK,
    SYSTEM,
    AnyCommand,
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    CommandRefused,
    Cover,
    DropCall,
    Effect,
    Finding,
    FinishCall,
    Grant,
    GrantGiven,
    GrantScope,
    GrantUsed,
    HookSays,
    Label,
    LabelSource,
    LoopDetected,
    Moment,
    NotFound,
    OverBudget,
    ProceedCall,
    ProgramSaved,
    RefuseCall,
    RequestCall,
    RuleId,
    SavedProgram,
    Subject,
    ToolEffect,
    Verdict,
    Who,
    denial,
    may_change_files,
    record,
)
from curtainwall.session.card import LONGEST_PLAN, card_text, plan_text, step_grants
from curtainwall.session.limits import count_asks, count_repeats
from curtainwall.session.open_work import CallStatus, OpenCall
from curtainwall.session.rules import Rules
from curtainwall.session.standing_answers import covers_of, standing_answer, still_covers
from curtainwall.session.state import SessionState

MANY_RESOURCES = 256
MANY_CHANGES: Final = 10_000
"""How many paths a change set may write or delete."""


@record
class _Case:
    """One call, with everything that its decision depends on."""

    state: SessionState
    call: CallId
    subject: Subject
    rules: Rules
    moment: Moment

    def deny(self, verdict: Verdict) -> CallDenied:
        return CallDenied(at=self.moment.at, call=self.call, verdict=verdict)


def request(state: SessionState, command: RequestCall, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Decide about one subject at the gate: permit it, ask about it, or deny it."""
    _within_budget(state, command.call, rules, moment)
    requested = CallRequested(at=moment.at, call=command.call, subject=command.subject, turn=command.turn)
    events = _decide_on(_Case(state, command.call, command.subject, rules, moment), command.hook)
    decided = (requested, *events)
    return decided if command.program is None else with_program(command, decided, command.program)


def needs_program(command: AnyCommand, events: Sequence[AnyEvent]) -> bool:
    """Tell whether a decision may be written only together with the calling program, which it does not contain yet.

    This is required before a wait, and before any action that must not happen twice.
    """
    if not isinstance(command, RequestCall) or command.turn is None or not command.of_program or command.program is not None:
        return False
    return _waits_or_acts(command, events)


def with_program(command: RequestCall, events: tuple[AnyEvent, ...], program: SavedProgram) -> tuple[AnyEvent, ...]:
    """Return the events of a call, with the saved program if it has to be stored."""
    if command.turn is None or not _waits_or_acts(command, events):
        return events
    return (*events, ProgramSaved(at=events[0].at, turn=command.turn, call=command.call, program=program))


def _waits_or_acts(command: RequestCall, events: Sequence[AnyEvent]) -> bool:
    waits = any(isinstance(event, ApprovalAsked | ApprovalJoined) for event in events)
    return waits or (command.subject.effect is not ToolEffect.INSPECT and any(isinstance(event, CallPermitted) for event in events))


def refuse(state: SessionState, command: RefuseCall, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Record and deny a call that never became a subject."""
    _within_budget(state, command.call, rules, moment)
    if command.verdict.effect is not Effect.DENY:
        raise CommandRefused("a call without a meaning can only be denied")
    return (
        CallRequested(at=moment.at, call=command.call, subject=command.subject, turn=command.turn),
        CallDenied(at=moment.at, call=command.call, verdict=command.verdict),
    )


def proceed(state: SessionState, command: ProceedCall, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Judge a call again after a wait: the answer counts only for the same subject and for the rules that were shown."""
    call = _open(state, command.call)
    if call.standing is not CallStatus.ANSWERED:
        raise CommandRefused(f"call `{command.call}` has no answer to proceed on: it is {call.standing}")
    if command.subject.digest != call.subject.digest:
        why = "it means something else than when it was approved"
        return tuple(CallDropped(at=moment.at, call=each, why=why) for each in (command.call, *_joined_to(state, command.call)))
    verdict = policy.judge(rules.policy, command.subject, state.facts)
    if verdict.effect is Effect.DENY:
        return tuple(CallDenied(at=moment.at, call=each, verdict=verdict) for each in (command.call, *_joined_to(state, command.call)))
    case = _Case(state, command.call, command.subject, rules, moment)
    asked = covers_of(verdict, command.subject)
    if verdict.effect is Effect.ALLOW or still_covers(command.subject, asked, call.covers):
        steps = step_grants(command.subject, verdict, call.answered_by or SYSTEM, command.call, moment)
        return (_permit(case, verdict, (str(call.approval),), call.answered_by, state.only.get(command.call)), *steps)
    events = _answer_or_ask(case, verdict, asked)
    return (*events, *_followed(events, _joined_to(state, command.call)))


def finish(state: SessionState, command: FinishCall, moment: Moment) -> tuple[AnyEvent, ...]:
    """Record the outcome of a permitted call; calls that had joined its approval share it."""
    call = _open(state, command.call)
    if call.standing is not CallStatus.PERMITTED or call.permit != command.permit:
        raise CommandRefused(f"call `{command.call}` holds no such permit")
    finished = CallFinished(
        at=moment.at, call=command.call, permit=command.permit, ok=command.ok, result=command.result, shown=command.shown
    )
    sharing = _joined_to(state, command.call)
    return (
        finished,
        *(CallDropped(at=moment.at, call=other, why="it had joined this call", shares=command.call) for other in sharing),
    )


def drop(state: SessionState, command: DropCall, moment: Moment) -> tuple[AnyEvent, ...]:
    """Drop a call that is no longer awaited. Its answer goes to a call that had joined it, or is kept for the same subject, once."""
    call = _open(state, command.call)
    if call.standing is CallStatus.PERMITTED:
        raise CommandRefused(f"call `{command.call}` is permitted and may be running; finish it instead")
    events: list[AnyEvent] = [CallDropped(at=moment.at, call=command.call, why=command.why)]
    approval = state.approvals.get(call.approval) if call.approval is not None else None
    if approval is not None and approval.calls == (command.call,):
        events.append(ApprovalWithdrawn(at=moment.at, approval=approval.asked.approval, why=command.why))
    # INVARIANT: an answer for some changes of a set is never kept as one for all of them.
    keeps = command.keep_answer and command.call not in state.only
    if call.standing is CallStatus.ANSWERED and keeps and not _joined_to(state, command.call):
        kept = Grant(
            id=moment.grant_id(command.call),
            scope=GrantScope.ONCE,
            covers=call.covers,
            by=call.answered_by or SYSTEM,
            at=moment.at,
            digest=call.subject.digest,
        )
        events.append(GrantGiven(at=moment.at, grant=kept))
    return tuple(events)


def _decide_on(case: _Case, hook: HookSays | None) -> tuple[AnyEvent, ...]:
    verdict = _tighten(_judged(case), hook, case.subject)
    if verdict.effect is Effect.DENY:
        return (case.deny(verdict),)
    at, limits = case.moment.at, case.rules.breaker
    repeats = count_repeats(case.state.repeats, case.subject.digest, at, limits)
    if repeats >= limits.repeats:
        stop = denial("repeated-call", f"the same call was made {repeats} times within a minute; change it or wait")
        return (LoopDetected(at=at, call=case.call, what="repeat", count=repeats), case.deny(stop))
    if verdict.effect is Effect.ALLOW:
        return (_permit(case, verdict, ()),)
    return _answer_or_ask(case, verdict, covers_of(verdict, case.subject))


def _judged(case: _Case) -> Verdict:
    # The tool itself is a resource, too.
    most = MANY_CHANGES + 1 if case.subject.tool == APPLY_CHANGES else MANY_RESOURCES
    if sum(len(each.resources) for each in (case.subject, *case.subject.steps)) > most:
        return denial("too-many-resources", f"one call may touch at most {most} resources; split it")
    return policy.judge(case.rules.policy, case.subject, case.state.facts)


def _tighten(verdict: Verdict, hook: HookSays | None, subject: Subject) -> Verdict:
    """Return the verdict made stricter by a hook. A hook asks about the whole call, so a grant has to cover every resource."""
    if hook is None or verdict.effect is Effect.DENY:
        return verdict
    rule = RuleId(f"{BY_HOOK}{hook.hook}")
    if hook.effect == "deny":
        return denial(rule, hook.reason)
    asking = {it.resource: it.because for it in verdict.findings if it.effect is Effect.ASK and it.step is None}
    own = (Finding(resource=place, effect=Effect.ASK, because=(*asking.get(place, ()), rule)) for place in range(len(subject.resources)))
    findings = (*own, *(finding for finding in verdict.findings if finding.step is not None))
    if verdict.effect is Effect.ALLOW:
        return Verdict(effect=Effect.ASK, because=(rule,), reason=hook.reason, findings=findings)
    reason = f"{verdict.reason}; {hook.reason}"
    return Verdict(effect=Effect.ASK, because=(*verdict.because, rule), reason=reason, findings=findings)


def _answer_or_ask(case: _Case, verdict: Verdict, asked: tuple[Cover, ...]) -> tuple[AnyEvent, ...]:
    at, state = case.moment.at, case.state
    answer = standing_answer(state, case.subject, asked, case.rules)
    if answer is not None:
        once = [grant for grant in state.grants.values() if grant.id == answer and grant.scope is GrantScope.ONCE]
        # Only a human's approval of this very plan, kept while its agent was gone, approves its steps; no other standing answer does.
        steps = (given for grant in once for given in step_grants(case.subject, verdict, grant.by, case.call, case.moment))
        # Every other standing answer was given for another call.
        kept = next((grant.by for grant in once if grant.digest == case.subject.digest), None)
        return (*(GrantUsed(at=at, grant=grant.id) for grant in once), _permit(case, verdict, (answer,), kept), *steps)
    if any(each.masked and not each.hidden for each in case.subject.steps or (case.subject,)):
        # INVARIANT: people are never asked about something that cannot be shown to them, at least in outline.
        unseen = "it needs a human's answer and holds a part that no human would be shown; leave that part to the human"
        return (case.deny(denial("masked-arguments", unseen)),)
    is_plan = bool(case.subject.steps)
    read_only = not may_change_files(state.workspace, state.mode)
    if is_plan:
        shown = plan_text(case.subject, verdict, state.labels, state.mode, read_only=read_only)
    else:
        shown = card_text(case.subject, asked, verdict.reason, state.labels, read_only=read_only)
    if is_plan and len(shown) > LONGEST_PLAN:
        words = f"the plan is too long to be shown whole: {len(shown):,} letters, at most {LONGEST_PLAN:,}; propose less at once"
        return (case.deny(denial("plan-too-long", words)),)
    open_ = _same_ask(state, case.subject, asked)
    if open_ is not None:
        return (ApprovalJoined(at=at, approval=open_, call=case.call),)
    asks = count_asks(state.recent_asks, at, case.rules.breaker)
    if asks >= case.rules.breaker.asks:
        stop = denial("ask-storm", f"{asks} asks within a minute; no human can judge that, slow down")
        return (LoopDetected(at=at, call=case.call, what="ask-storm", count=asks), case.deny(stop))
    if case.rules.unrouted == "deny" and not state.routes:
        return (case.deny(denial("no-route", "nobody can be asked from this session")),)
    deadline = case.rules.deadline
    return (
        ApprovalAsked(
            at=at,
            approval=_free_id(case),
            call=case.call,
            digest=case.subject.digest,
            covers=asked,
            shown=shown,
            policy=case.rules.policy.version,
            deadline=None if deadline is None else at + deadline,
        ),
    )


def _permit(
    case: _Case, verdict: Verdict, answered_by: tuple[str, ...], approved_by: Who | None = None, only: tuple[str, ...] | None = None
) -> CallPermitted:
    brought = dict[Label, LabelSource]()
    for label, place in policy.labels_of(case.rules.policy, case.subject, case.state.facts):
        brought.setdefault(label, LabelSource(label=label, call=case.call, origin=case.subject.origin_of(place)))
    return CallPermitted(
        at=case.moment.at,
        call=case.call,
        permit=case.moment.permit_id(case.call),
        digest=case.subject.digest,
        verdict=verdict,
        answered_by=answered_by,
        labels=tuple(brought.values()),
        approved_by=approved_by,
        only=only,
    )


def _same_ask(state: SessionState, subject: Subject, asked: tuple[Cover, ...]) -> ApprovalId | None:
    for approval, open_ in state.approvals.items():
        if open_.asked.digest == subject.digest and open_.calls and still_covers(subject, asked, open_.asked.covers):
            return approval
    return None


def _joined_to(state: SessionState, call: CallId) -> tuple[CallId, ...]:
    approval = state.calls[call].approval
    if approval is None:
        return ()
    return tuple(
        other for other, open_ in state.calls.items() if other != call and open_.approval == approval and open_.standing is CallStatus.ASKED
    )


def _followed(events: tuple[AnyEvent, ...], joined: tuple[CallId, ...]) -> list[AnyEvent]:
    """Return the events of the calls that had joined one that is asked about again, or denied."""
    followed: list[AnyEvent] = []
    for event in events:
        match event:
            case ApprovalAsked() | ApprovalJoined():
                followed += (ApprovalJoined(at=event.at, approval=event.approval, call=other) for other in joined)
            case CallDenied():
                followed += (event.model_copy(update={"call": other}) for other in joined)
            case _:
                continue
    return followed


def _open(state: SessionState, call: CallId) -> OpenCall:
    open_call = state.calls.get(call)
    if open_call is None:
        raise NotFound(f"there is no open call `{call}`")
    return open_call


def _within_budget(state: SessionState, call: CallId, rules: Rules, moment: Moment) -> None:
    if call in state.calls:
        raise CommandRefused(f"call `{call}` was requested before")
    if state.totals.calls >= rules.calls:
        raise OverBudget(f"this session has made {state.totals.calls} calls, as many as it may")
    if moment.logged >= rules.logged_bytes:
        raise OverBudget(f"this session's log holds {moment.logged} bytes, as many as it may")


def _free_id(case: _Case) -> ApprovalId:
    for attempt in range(100):
        approval = case.moment.approval_id(f"{case.call}:{attempt}")
        if approval not in case.state.approvals and approval not in case.state.settled:
            return approval
    raise CommandRefused("no free approval id")
