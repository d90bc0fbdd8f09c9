"""A session's conversation, read from the log only: a summary of its last turns, what waits, and all messages."""

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
    """Reads the events that are in the log now."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return the events after the cursor."""
        return [Recorded(stream, entry.seq, lift(entry)) for entry in self._log.read(stream, after)]


def utterances_in(log: Log, session: SessionId) -> Sequence[Utterance]:
    """Return all messages, oldest first, including those from before a fork."""
    return utterances(_LogReader(log), session)


def conversation_lines(conversation: Transcript, state: SessionState) -> Iterator[tuple[str, str]]:
    """Yield titled lines: the last turns, what the turn waits for, where that is shown, and the queued messages."""
    if len(conversation.turns) > LAST_TURNS:
        yield "before", f"{counted(len(conversation.turns) - LAST_TURNS, 'more turn')}; `sessions history` shows them"
    for turn in conversation.turns[-LAST_TURNS:]:
        for message in turn.asked:
            yield "asked", f"{when(message.at)}  {message.by}: {short(message.text, _ROOM)}"
        yield _how(turn), _answer(turn)
    if state.approvals:
        yield "shown at", ", ".join(_places(state)) or "no place: `curtainwall approve` answers"
    for id_, open_ in state.approvals.items():
        yield "waits", f"{id_}: {open_.asked.covers[0].role} {in_order(open_.asked.covers[0].value)}"
    assert state.opened is not None
    for kind in sorted(state.exhausted):
        yield "waits", f"the budget of {kind} is used up: `curtainwall sessions budget {state.opened.session} {kind} AMOUNT` allows more"
    for message in conversation.queued:
        yield "queued", f"{message.by}: {short(message.text, _ROOM)}"


def conversation_json(conversation: Transcript, state: SessionState) -> dict[str, object]:
    """Return the same as JSON, with nothing cut."""
    return {
        "conversation": [_turn_json(turn) for turn in conversation.turns[-LAST_TURNS:]],
        "queue": [{"message": it.message, "by": it.by, "text": it.text} for it in conversation.queued],
        "exhausted": sorted(state.exhausted),
        "shown_at": [f"{route.channel}:{route.reference}" if route.reference else route.channel for route in state.routes],
    }


def _places(state: SessionState) -> Iterator[str]:
    """Yield where the session's asks are shown."""
    for route in state.routes:
        place = {"terminal": "its terminal", "library": "its program"}.get(route.reference) if route.channel in HOUSE_CHANNELS else None
        yield place or (f"{route.channel}:{route.reference}" if route.reference else route.channel)


def _how(turn: TranscriptTurn) -> str:
    return "working" if turn.status is None else turn.status.value


def _answer(turn: TranscriptTurn) -> str:
    text = short(turn.partial or (turn.messages[-1] if turn.messages else ""), _ROOM)
    # Mark a message that was not shown completely.
    cut = (" [so far]" if turn.status is None else " [cut off]") if turn.partial else ""
    why = f"({short(turn.failure, _ROOM)})" if turn.failure else ""
    calls = f"[{counted(turn.calls, 'call')}]" if turn.calls else ""
    return " ".join(filter(None, (text + cut, why, calls))) or "nothing was said"


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
