"""Answers to asks: what each one settles, and which grants it leaves."""

from collections.abc import Sequence
from datetime import UTC, datetime

from curtainwall.model import (
    ALL_GRANTS,
    AlreadyAnswered,
    AnswerApproval,
    AnyEvent,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalId,
    CallDenied,
    ChangeCard,
    CommandRefused,
    Cover,
    ExpireApprovals,
    Grant,
    GrantGiven,
    GrantRevoked,
    GrantScope,
    Millis,
    Moment,
    NotAllowed,
    NotFound,
    RevokeGrant,
    Role,
    Settlement,
    Subject,
    denial,
)
from curtainwall.session.card import lists_all, shows_all, shows_arguments
from curtainwall.session.open_work import OpenApproval
from curtainwall.session.rules import Rules
from curtainwall.session.standing_answers import ONE_TEXT, is_for_one_call, scope_of_answer
from curtainwall.session.state import SessionState


def answer(state: SessionState, command: AnswerApproval, moment: Moment) -> tuple[AnyEvent, ...]:
    """Settle an open approval if the sender may answer; the first valid answer wins, and the refusal of a later one names the winner."""
    approval = _open(state, command.approval)
    if _is_over(approval, moment):
        raise AlreadyAnswered(f"too late: the deadline of approval `{command.approval}` passed at {_clock(approval.asked.deadline or 0)}")
    covers = approval.asked.covers
    is_plan = any(state.calls[call].subject.steps for call in approval.calls)
    if command.granted and is_plan and command.scope is not GrantScope.ONCE:
        raise NotAllowed("a plan is approved as it is listed, each step once; approve it once, a grant would answer for more")
    # An automatic approver approves only what it saw, and nothing that comes later; a plan covers its list.
    scope = command.scope if is_plan or not command.by.is_human else scope_of_answer(command.scope, covers)
    _require_fitting_changes(command, state.calls[approval.calls[0]].subject.changes)
    if command.granted and scope is not GrantScope.ONCE:
        _require_grantable(command.approval, covers, scope)
        _require_shown_arguments(command.approval, state.calls[approval.calls[0]].subject, covers)
    answered = ApprovalAnswered(
        at=moment.at,
        approval=command.approval,
        granted=command.granted,
        by=command.by,
        scope=scope if command.granted else GrantScope.ONCE,
        reason=command.reason,
        only=command.only if command.granted else None,
        discard=command.discard and not command.granted,
    )
    if not command.granted:
        words = f"a human denied it: {command.reason}" if command.reason else "a human denied it"
        return (answered, *_deny_all(approval, "denied-by-human", words, moment))
    if scope is GrantScope.ONCE:
        return (answered,)
    # INVARIANT: an approval covers exactly what was shown.
    is_for_one = any(is_for_one_call(state.calls[call].subject.tool, covers) for call in approval.calls)
    digest = approval.asked.digest if is_for_one else None
    grant = Grant(id=moment.grant_id(command.approval), scope=scope, covers=covers, by=command.by, at=moment.at, digest=digest)
    return (answered, GrantGiven(at=moment.at, grant=grant))


def _require_fitting_changes(command: AnswerApproval, changes: ChangeCard | None) -> None:
    """Refuse an answer that does not fit a change set, or one about changes to anything else."""
    if changes is None:
        if command.only is not None or command.discard:
            raise CommandRefused(f"approval `{command.approval}` is not about a change set, so it is answered as a whole")
        return
    if not command.granted:
        return
    if command.scope is not GrantScope.ONCE:
        raise NotAllowed("a change set is accepted once, as it was shown; the next one asks again")
    if command.only is None:
        if not lists_all(changes):
            raise NotAllowed("the change set has too many files to be shown whole, so it can only be accepted file by file, by their paths")
        return
    if not command.only:
        raise CommandRefused("name the files that are accepted, or deny the change set")
    unknown = [path for path in command.only if path not in changes.paths]
    if unknown:
        raise CommandRefused(f"the change set does not change `{unknown[0]}`; name files as they are listed, relative to the project")


def _require_grantable(approval: ApprovalId, covers: Sequence[Cover], scope: GrantScope) -> None:
    """Refuse a lasting approval that would cover something that was never shown."""
    if not shows_all(covers):
        raise NotAllowed(f"approval `{approval}` was too long to be shown whole, so it can be granted once alone")
    if scope is GrantScope.PROJECT and any(cover.role is Role.USE_CREDENTIAL for cover in covers):
        raise NotAllowed(f"approval `{approval}` is about a credential, which is granted for one session at most")
    if any(cover.role is Role.RAISE_BUDGET for cover in covers):
        raise NotAllowed("a budget is raised once at a time; the grant would answer for any later amount")
    if any(cover.value in ONE_TEXT for cover in covers):
        raise NotAllowed("this is a yes to one text, which is given once at a time; the grant would answer for any later text")


def _require_shown_arguments(approval: ApprovalId, subject: Subject, covers: Sequence[Cover]) -> None:
    """Refuse a lasting approval of an exact call if the card left out a part of it."""
    if is_for_one_call(subject.tool, covers) and not shows_arguments(subject):
        raise NotAllowed(f"approval `{approval}` was too long to be shown whole, so it can be granted once alone")


def expire(state: SessionState, command: ExpireApprovals, moment: Moment) -> tuple[AnyEvent, ...]:
    """Settle the approvals that were not answered in time, and deny their calls."""
    events: list[AnyEvent] = []
    for id_, approval in state.approvals.items():
        if _is_over(approval, moment) or (id_ in command.overdue and approval.asked.deadline is not None):
            events.append(ApprovalExpired(at=moment.at, approval=id_))
            events += _deny_all(approval, "approval-expired", "nobody answered in time", moment)
    return tuple(events)


def revoke(state: SessionState, command: RevokeGrant, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Revoke a standing answer of this session."""
    rules.require_operator(command.by, "revoke")
    named = [grant.id for grant in state.grants.values() if command.grant in (grant.id, grant.plan, ALL_GRANTS)]
    if not named and command.grant == ALL_GRANTS:
        raise NotFound("there is no grant in this session")
    if not named:
        raise NotFound(f"there is no grant `{command.grant}` in this session")
    return tuple(GrantRevoked(at=moment.at, grant=grant, by=command.by) for grant in named)


def _open(state: SessionState, approval: ApprovalId) -> OpenApproval:
    open_approval = state.approvals.get(approval)
    if open_approval is not None:
        return open_approval
    settled = state.settled.get(approval)
    if settled is None:
        raise NotFound(f"there is no approval `{approval}` in this session")
    when = _clock(settled.at)
    match settled.how:
        case Settlement.GRANTED | Settlement.DENIED:
            raise AlreadyAnswered(f"already answered by `{settled.by}`: {settled.how} at {when}")
        case Settlement.EXPIRED:
            raise AlreadyAnswered(f"too late: approval `{approval}` expired at {when}")
        case Settlement.WITHDRAWN:
            raise AlreadyAnswered(f"too late: approval `{approval}` was withdrawn at {when} ({settled.by})")


def _clock(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _is_over(approval: OpenApproval, moment: Moment) -> bool:
    return approval.asked.deadline is not None and moment.at >= approval.asked.deadline


def _deny_all(approval: OpenApproval, rule: str, words: str, moment: Moment) -> list[AnyEvent]:
    return [CallDenied(at=moment.at, call=call, verdict=denial(rule, words)) for call in approval.calls]
