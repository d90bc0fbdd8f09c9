"""After a crash: close what nobody will ever finish, and keep what still waits for an answer."""

from curtainwall.model import AnyEvent, CallDropped, CallId, CallLost, Millis, ModelFailed, TurnEnded, TurnStatus
from curtainwall.session.open_work import CallStatus, OpenCall
from curtainwall.session.state import SessionState


def closers(state: SessionState, at: Millis) -> tuple[AnyEvent, ...]:
    """Return the events that close what a crash left open.

    A permitted call may have run or not. We record that we do not know, and never run it again by ourselves. An ask stays
    open, and the turn waits to be taken up.
    """
    events: list[AnyEvent] = [CallLost(at=at, call=call) for call, open_ in state.calls.items() if open_.standing is CallStatus.PERMITTED]
    firsts = state.firsts()
    for call, open_ in state.calls.items():
        first = firsts.get(open_.approval) if open_.approval is not None else None
        why = _why_dropped(state, open_, first)
        if open_.standing is CallStatus.ASKED and first is not None and state.calls[first].standing is CallStatus.PERMITTED:
            events.append(CallDropped(at=at, call=call, why="it had joined this call", shares=first))
        elif why:
            events.append(CallDropped(at=at, call=call, why=why))
    events += [
        ModelFailed(at=at, turn=turn, request=request, failure="the process ended before the response came")
        for request, turn in state.requests.items()
    ]
    if state.turn is not None and not state.turn_waits:
        # Whoever takes the turn up finds in the log how far it came; only one that somebody wanted to stop is over.
        status = TurnStatus.INTERRUPTED if state.interrupting else TurnStatus.WAITING
        events.append(TurnEnded(at=at, turn=state.turn, status=status, failure="the process ended"))
    return tuple(events)


def _why_dropped(state: SessionState, call: OpenCall, first: CallId | None) -> str:
    """Return why nobody will ever go on with a call that did not run, or nothing."""
    if call.standing is CallStatus.REQUESTED:
        return "it was never decided"
    if call.standing is CallStatus.ASKED and call.approval not in state.approvals and first is None:
        return "the call it had joined is gone"
    return ""
