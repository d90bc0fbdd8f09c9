"""A session's conversation from outside, read from the log alone: its last turns shortly, what waits, and all that was said."""

from collections.abc import Iterator, Sequence

from curtainwall.channels import Utterance, short, utterances
from curtainwall.channels.plain import counted
from curtainwall.cli.screen import timestamp
from curtainwall.host.user import when
from curtainwall.model import (
    HOUSE_CHANNELS,
    Log,
    Recorded,
    SessionId,
    StreamId,
    in_order,
)
from curtainwall.session import SessionState, Transcript, TranscriptTurn, lift

LAST_TURNS = 3
_ROOM = 160


class _LogReader:
    """The log as it stands now, for whoever looks back."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return what is there after the cursor."""
        return [Recorded(stream, entry.seq, lift(entry)) for entry in self._log.read(stream, after)]


def utterances_in(log: Log, session: SessionId) -> Sequence[Utterance]:
    """Return everything that was said, oldest first, also before the session was forked off another."""
    return utterances(_LogReader(log), session)


def conversation_lines(told: Transcript, state: SessionState) -> Iterator[tuple[str, str]]:
    """Yield the last turns, what the turn waits for and where that is shown, and the messages behind it, each with its title."""
    if len(told.turns) > LAST_TURNS:
        yield "before", f"{counted(len(told.turns) - LAST_TURNS, 'more turn')}; `sessions history` shows them"
    for turn in told.turns[-LAST_TURNS:]:
        for said in turn.asked:
            yield "asked", f"{when(said.at)}  {said.by}: {short(said.text, _ROOM)}"
        yield _how(turn), _answer(turn)
    if state.approvals:
        yield "shown at", ", ".join(_places(state)) or "no place: `curtainwall approve` answers"
    for id_, open_ in state.approvals.items():
        yield "waits", f"{id_}: {open_.asked.covers[0].role} {in_order(open_.asked.covers[0].value)}"
    assert state.opened is not None
    for kind in sorted(state.exhausted):
        yield "waits", f"the budget of {kind} is used up: `curtainwall sessions budget {state.opened.session} {kind} AMOUNT` allows more"
    for said in told.queued:
        yield "queued", f"{said.by}: {short(said.text, _ROOM)}"


def conversation_json(told: Transcript, state: SessionState) -> dict[str, object]:
    """Return the same for other programs, nothing cut."""
    return {
        "conversation": [_turn_json(turn) for turn in told.turns[-LAST_TURNS:]],
        "queue": [{"message": it.message, "by": it.by, "text": it.text} for it in told.queued],
        "exhausted": sorted(state.exhausted),
        "shown_at": [f"{route.channel}:{route.reference}" if route.reference else route.channel for route in state.routes],
    }


def _places(state: SessionState) -> Iterator[str]:
    """Yield where the session's asks are shown."""
    for route in state.routes:
        here = {"terminal": "its terminal", "library": "its program"}.get(route.reference) if route.channel in HOUSE_CHANNELS else None
        yield here or (f"{route.channel}:{route.reference}" if route.reference else route.channel)


def _how(turn: TranscriptTurn) -> str:
    return "working" if turn.status is None else turn.status.value


def _answer(turn: TranscriptTurn) -> str:
    words = short(turn.partial or (turn.messages[-1] if turn.messages else ""), _ROOM)
    # What was shown of a message that never came whole is told apart from one that did.
    cut = (" [so far]" if turn.status is None else " [cut off]") if turn.partial else ""
    why = f"({short(turn.failure, _ROOM)})" if turn.failure else ""
    calls = f"[{counted(turn.calls, 'call')}]" if turn.calls else ""
    return " ".join(filter(None, (words + cut, why, calls))) or "nothing was said"


def _turn_json(turn: TranscriptTurn) -> dict[str, object]:
    return {
        "asked": [{"by": it.by, "text": it.text, "at": timestamp(it.at)} for it in turn.asked],
        "status": _how(turn),
        "started": timestamp(turn.started),
        "ended": timestamp(turn.ended),
        "messages": list(turn.messages),
        "partial": turn.partial,
        "failure": turn.failure,
        "calls": turn.calls,
    }
