"""After a crash: close what nobody will ever finish, and keep what still waits for an answer."""

from curtainwall.model import AnyEvent, CallDropped, CallLost, Millis, ModelFailed, TurnEnded, TurnStatus
from curtainwall.session.state import OpenCall, SessionState, Standing

_STILL_WAITS = (Standing.ASKED, Standing.ANSWERED)


def closers(state: SessionState, at: Millis) -> tuple[AnyEvent, ...]:
    """Return the events that close what a crash left open.

    A permitted call may have run or not. We record that we do not know, and never run it again by ourselves. An ask stays
    open, and so does the turn that waits for it.
    """
    events: list[AnyEvent] = [CallLost(at=at, call=call) for call, open_ in state.calls.items() if open_.standing is Standing.PERMITTED]
    dropped = {call: why for call, open_ in state.calls.items() if (why := _why_dropped(state, open_))}
    events += [CallDropped(at=at, call=call, why=why) for call, why in dropped.items()]
    events += [
        ModelFailed(at=at, turn=turn, request=request, failure="the process ended before the response came")
        for request, turn in state.requests.items()
    ]
    if state.turn is not None and not state.turn_waits:
        kept = (open_ for call, open_ in state.calls.items() if call not in dropped)
        waits = any(open_.turn == state.turn and open_.standing in _STILL_WAITS for open_ in kept)
        status = TurnStatus.WAITING if waits else TurnStatus.INTERRUPTED
        events.append(TurnEnded(at=at, turn=state.turn, status=status, failure="" if waits else "the process ended"))
    return tuple(events)


def _why_dropped(state: SessionState, call: OpenCall) -> str:
    """Return why nobody will ever go on with a call that did not run, or nothing."""
    if call.standing is Standing.REQUESTED:
        return "it was never decided"
    if call.standing is Standing.ASKED and call.approval not in state.approvals:
        return "the call it had joined is gone"
    return ""
