"""Explains a session's verdicts, from its log and the rules in force."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from curtainwall.host.user import when
from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    DecidingRule,
    NotFound,
    RuleStatus,
    SessionId,
    Subject,
    VerdictReport,
    session_stream,
)
from curtainwall.operations.sessions import Sessions
from curtainwall.policy import Policy, explain, judge
from curtainwall.session import SessionState, label_words, lift, rules_in_force


class Explanations:
    """Explains the rules and verdicts of sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def rules(self, session: SessionId) -> Sequence[RuleStatus]:
        """Return every rule with its status in the session; raise `NotFound`."""
        state = self._sessions.state(session)
        return rules_in_force(state, self._policy(state), self._events_of(session))

    def why(self, session: SessionId, about: str = "") -> VerdictReport:
        """Return why a call, or the call of an open or settled approval, was judged as it was; by default the last call."""
        state = self._sessions.state(session)
        policy = self._policy(state)
        call, subject = self._find_call(session, about)
        verdict = judge(policy, subject, state.facts)
        explanation = explain(policy, subject, state.facts, verdict)
        return VerdictReport(
            call=call,
            tool=subject.tool,
            then=tuple(_history_of(self._events_of(session), call)),
            now=explanation.effect,
            rules=tuple(DecidingRule(rule=card.id, source=card.source, reason=card.reason or card.title) for card in explanation.rules),
            facts=explanation.facts,
            labels=(*map(label_words, state.labels.values()),),
            changes=explanation.changes,
        )

    def _policy(self, state: SessionState) -> Policy:
        """Return the rules for a session: the general ones, and those of its team, job or webhook."""
        return self._sessions.terms().rules.of_session(state.opened).policy

    def _events_of(self, session: SessionId) -> Iterator[AnyEvent]:
        for entry in self._sessions.store.log.read(session_stream(session)):
            yield lift(entry)

    def _find_call(self, session: SessionId, about: str) -> tuple[CallId, Subject]:
        subjects: dict[CallId, Subject] = {}
        call: CallId | None = None
        for event in self._events_of(session):
            if isinstance(event, CallRequested):
                subjects[event.call] = event.subject
                call = event.call if about in ("", event.call) else call
            elif isinstance(event, ApprovalAsked) and event.approval == about:
                call = event.call
        if call is None or call not in subjects:
            raise NotFound(f"there is no approval and no call `{about}` here" if about else "there was no call here yet")
        return call, subjects[call]


def _history_of(events: Iterator[AnyEvent], call: CallId) -> Iterator[str]:
    """Yield what happened to a call, in order."""
    approvals: set[ApprovalId] = set()
    for event in events:
        if isinstance(event, CallEvent):
            if event.call == call:
                yield from _call_lines(event)
        elif isinstance(event, ApprovalEvent):
            yield from _approval_lines(event, call, approvals)


def _approval_lines(event: ApprovalEvent, call: CallId, approvals: set[ApprovalId]) -> Iterator[str]:
    """Yield what happened to an approval of a call; `approvals` collects the approvals of the call."""
    match event:
        case ApprovalAsked() | ApprovalJoined():
            if event.call == call:
                approvals.add(event.approval)
                rules = {rule for cover in event.covers for rule in cover.rules} if isinstance(event, ApprovalAsked) else ()
                because = f" because of {', '.join(sorted(rules))}" if rules else ""
                yield f"{when(event.at)} asked as {event.approval}{because}"
        case ApprovalAnswered():
            if event.approval in approvals:
                why = f" ({event.reason})" if event.reason else ""
                yield f"{when(event.at)} {'granted' if event.granted else 'denied'} by {event.by}, for {event.scope}{why}"
        case ApprovalExpired() | ApprovalWithdrawn():
            if event.approval in approvals:
                yield f"{when(event.at)} {'nobody answered in time' if isinstance(event, ApprovalExpired) else f'withdrawn: {event.why}'}"
        case _:
            assert_never(event)


def _call_lines(event: CallEvent) -> Iterator[str]:
    """Yield what a call's event says."""
    match event:
        case CallRequested():
            return
        case CallPermitted():
            by = f", answered by {', '.join(event.answered_by)}" if event.answered_by else ""
            labels = f"; it set {', '.join(str(source.label) for source in event.labels)}" if event.labels else ""
            words = f"permitted because of {', '.join(event.verdict.because)}{by}{labels}"
        case CallDenied():
            words = f"denied because of {', '.join(event.verdict.because)}: {event.verdict.reason}"
        case CallFinished():
            words = "ran" if event.ok else "ran and failed"
        case CallLost():
            words = "it is unknown whether it ran"
        case CallDropped():
            words = f"let go: {event.why}"
        case _:
            assert_never(event)
    yield f"{when(event.at)} {words}"
