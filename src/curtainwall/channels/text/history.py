"""What was said in a session, also before it was forked off another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from curtainwall.model import (
    AgentSpoke,
    HistoryInherited,
    InterruptAsked,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Recorded,
    SessionId,
    SpeechEvent,
    StreamId,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    session_stream,
)

QUEUED, SO_FAR = "queued", "so far"
_DEPTH = 20
_ENDS = {TurnStatus.INTERRUPTED: "interrupted", TurnStatus.FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something that somebody said; the agent has no name. `end` says how a turn ended that did not end well."""

    by: str
    text: str
    end: str = ""


class Readable(Protocol):
    """The half of a feed that looks back."""

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return what is there after the cursor."""
        ...


def utterances(feed: Readable, session: SessionId) -> Sequence[Utterance]:
    """Return the conversation, oldest first."""
    return _read(feed, session, None, _DEPTH)


def _read(feed: Readable, session: SessionId, upto: int | None, depth: int) -> list[Utterance]:
    recorded = [it for it in feed.read(session_stream(session)) if upto is None or it.seq <= upto]
    said: list[Utterance] = []
    for it in recorded:
        if isinstance(it.event, HistoryInherited) and it.event.how == "fork" and depth:
            said += _read(feed, it.event.parent, it.event.upto, depth - 1)
    return said + _own(recorded)


def _own(recorded: Sequence[Recorded]) -> list[Utterance]:
    said: list[Utterance] = []
    waiting: dict[MessageId, MessageAccepted] = {}
    pieces = ""
    for it in recorded:
        event = it.event
        if not isinstance(event, MessageEvent | TurnEvent | SpeechEvent | ModelEvent):
            continue
        match event:
            case MessageAccepted():
                if event.role == "human":
                    waiting[event.message] = event
            case MessageWithdrawn():
                waiting.pop(event.message, None)
            case TurnStarted():
                taken = [waiting.pop(message) for message in event.messages if message in waiting]
                said += [Utterance(str(message.by), message.text) for message in taken]
            case TextStreamed():
                pieces += event.text
            case AgentSpoke():
                said.append(Utterance("", event.text))
                pieces = ""
            case ModelFailed():
                if pieces:
                    said.append(Utterance("", pieces))
                pieces = ""
            case TurnEnded():
                end = _ENDS.get(event.status, "")
                if pieces or end:
                    said.append(Utterance("", pieces, f"{end}: {event.failure}" if end and event.failure else end))
                pieces = ""
            case TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)
    if pieces:
        said.append(Utterance("", pieces, SO_FAR))
    return said + [Utterance(str(message.by), message.text, QUEUED) for message in waiting.values()]
