"""Why things were judged as they were in a session, from its log and the rules in force."""

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
    """Rules and verdicts of every session, for whoever wants to know why."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def rules(self, session: SessionId) -> Sequence[RuleStatus]:
        """Return every rule with its standing in the session; raise `NotFound`."""
        state = self._sessions.state(session)
        return rules_in_force(state, self._policy(state), self._events_of(session))

    def why(self, session: SessionId, about: str = "") -> VerdictReport:
        """Return why a call, or that of an approval, open or settled, was judged as it was; without one, the last call."""
        state = self._sessions.state(session)
        policy = self._policy(state)
        call, subject = self._wanted(session, about)
        verdict = judge(policy, subject, state.facts)
        told = explain(policy, subject, state.facts, verdict)
        return VerdictReport(
            call=call,
            tool=subject.tool,
            then=tuple(_then(self._events_of(session), call)),
            now=told.effect,
            rules=tuple(DecidingRule(rule=card.id, source=card.source, reason=card.reason or card.title) for card in told.rules),
            facts=told.facts,
            labels=(*map(label_words, state.labels.values()),),
            changes=told.changes,
        )

    def _policy(self, state: SessionState) -> Policy:
        """Return the rules that hold for a session: the house's, with those of its team, job or webhook where that has some."""
        return self._sessions.terms().rules.of_session(state.opened).policy

    def _events_of(self, session: SessionId) -> Iterator[AnyEvent]:
        for entry in self._sessions.store.log.read(session_stream(session)):
            yield lift(entry)

    def _wanted(self, session: SessionId, about: str) -> tuple[CallId, Subject]:
        subjects: dict[CallId, Subject] = {}
        named: CallId | None = None
        for event in self._events_of(session):
            if isinstance(event, CallRequested):
                subjects[event.call] = event.subject
                named = event.call if about in ("", event.call) else named
            elif isinstance(event, ApprovalAsked) and event.approval == about:
                named = event.call
        if named is None or named not in subjects:
            raise NotFound(f"there is no approval and no call `{about}` here" if about else "there was no call here yet")
        return named, subjects[named]


def _then(events: Iterator[AnyEvent], call: CallId) -> Iterator[str]:
    """Yield what happened to a call, in order."""
    approvals: set[ApprovalId] = set()
    for event in events:
        if isinstance(event, CallEvent):
            if event.call == call:
                yield from _happened(event)
        elif isinstance(event, ApprovalEvent):
            yield from _asked(event, call, approvals)


def _asked(event: ApprovalEvent, call: CallId, approvals: set[ApprovalId]) -> Iterator[str]:
    """Yield what happened to an approval of a call; `approvals` are those that it has had."""
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


def _happened(event: CallEvent) -> Iterator[str]:
    """Yield what became of a call."""
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
