"""Repair after a crash: close the work that can never finish, and keep what still waits for an answer."""

from curtainwall.model import AnyEvent, CallDropped, CallId, CallLost, Millis, ModelFailed, TurnEnded, TurnStatus
from curtainwall.session.open_work import CallStatus, OpenCall
from curtainwall.session.state import SessionState, is_application


def closers(state: SessionState, at: Millis) -> tuple[AnyEvent, ...]:
    """Return the events that close what a crash left open.

    A permitted call may or may not have run. We record that this is unknown and never rerun it automatically. Asks stay open, and the turn
    waits to be resumed. Accepted changes stay permitted: applying them may be repeated, so whoever takes the session over finishes that.
    """
    events: list[AnyEvent] = [
        CallLost(at=at, call=call)
        for call, open_ in state.calls.items()
        if open_.standing is CallStatus.PERMITTED and not is_application(open_)
    ]
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
        # The log shows the next owner how far the turn got, so it is over only if someone asked it to stop.
        status = TurnStatus.INTERRUPTED if state.interrupting else TurnStatus.WAITING
        events.append(TurnEnded(at=at, turn=state.turn, status=status, failure="the process ended"))
    return tuple(events)


def _why_dropped(state: SessionState, call: OpenCall, first: CallId | None) -> str:
    """Return why a call that did not run can never continue, or None."""
    if call.standing is CallStatus.REQUESTED:
        return "it was never decided"
    if call.standing is CallStatus.ASKED and call.approval not in state.approvals and first is None:
        return "the call it had joined is gone"
    return ""
