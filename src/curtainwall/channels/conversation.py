"""A conversation as text: a session's messages, including those from before a fork, and the message that is still streaming."""

from collections.abc import Sequence
from typing import Protocol, assert_never

from curtainwall.model import (
    AgentSpoke,
    Feed,
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
    record,
    session_stream,
)

QUEUED, SO_FAR = "queued", "so far"
_DEPTH = 20
_WINDOW = 500
_ENDS = {TurnStatus.INTERRUPTED: "interrupted", TurnStatus.FAILED: "failed"}


@record
class Utterance:
    """One message; `by` is empty for the agent. `end` says how a turn ended that did not end well."""

    by: str
    text: str
    end: str = ""


class Readable(Protocol):
    """The part of a feed that reads past events."""

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return the events after the cursor."""
        ...


def utterances(feed: Readable, session: SessionId) -> Sequence[Utterance]:
    """Return the conversation, oldest first."""
    return _read(feed, session, None, _DEPTH)


def recent_utterances(feed: Feed, session: SessionId, count: int) -> Sequence[Utterance]:
    """Return the end of the conversation, at least `count` whole messages if there are so many, without reading a long log."""
    stream = session_stream(session)
    end, window = feed.head(stream), _WINDOW
    while window < end:
        messages = _own(_whole_turns(feed.read(stream, end - window)))
        if sum(message.end not in (QUEUED, SO_FAR) for message in messages) >= count:
            return messages
        window *= 4
    return utterances(feed, session)


def _whole_turns(recorded: Sequence[Recorded]) -> Sequence[Recorded]:
    """Return the part of a window in which every turn is whole and has its messages, and the messages that are queued before it."""
    accepted: set[MessageId] = set()
    begin: int | None = None
    for place, event in enumerate(entry.event for entry in recorded):
        if isinstance(event, MessageAccepted):
            accepted.add(event.message)
        elif isinstance(event, TurnStarted) and not accepted.issuperset(event.messages):
            begin = None
        elif isinstance(event, TurnEnded) and begin is None:
            begin = place + 1
    if begin is None:
        return ()
    taken = {message for entry in recorded[:begin] if isinstance(entry.event, TurnStarted) for message in entry.event.messages}
    queued = [entry for entry in recorded[:begin] if isinstance(entry.event, MessageEvent) and entry.event.message not in taken]
    return [*queued, *recorded[begin:]]


def _read(feed: Readable, session: SessionId, upto: int | None, depth: int) -> list[Utterance]:
    recorded = [entry for entry in feed.read(session_stream(session)) if upto is None or entry.seq <= upto]
    messages: list[Utterance] = []
    for entry in recorded:
        if isinstance(entry.event, HistoryInherited) and entry.event.how == "fork" and depth:
            messages += _read(feed, entry.event.parent, entry.event.upto, depth - 1)
    return messages + _own(recorded)


def _own(recorded: Sequence[Recorded]) -> list[Utterance]:
    messages: list[Utterance] = []
    waiting: dict[MessageId, MessageAccepted] = {}
    pieces = ""
    for entry in recorded:
        event = entry.event
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
                messages += [Utterance(str(message.by), message.text) for message in taken]
            case TextStreamed():
                pieces += event.text
            case AgentSpoke():
                messages.append(Utterance("", event.text))
                pieces = ""
            case ModelFailed():
                if pieces:
                    messages.append(Utterance("", pieces))
                pieces = ""
            case TurnEnded():
                end = _ENDS.get(event.status, "")
                if pieces or end:
                    messages.append(Utterance("", pieces, f"{end}: {event.failure}" if end and event.failure else end))
                pieces = ""
            case TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)
    if pieces:
        messages.append(Utterance("", pieces, SO_FAR))
    return messages + [Utterance(str(message.by), message.text, QUEUED) for message in waiting.values()]


class StreamedMessage:
    """The agent's message as it streams, and how much of it has been shown permanently.

    The same text arrives up to three times: live, in pieces from the log, and whole. Live text may run ahead of the log into the next
    message, or arrive late, after the whole message.
    """

    def __init__(self) -> None:
        self._live = ""
        self._logged = ""
        self._owed = ""
        self._taken = ""

    @property
    def text(self) -> str:
        """The message as far as it is known."""
        return self._live if len(self._live) >= len(self._logged) else self._logged

    @property
    def tail(self) -> str:
        """The known text that was not taken yet."""
        return self.text.removeprefix(self._taken)

    def add_live(self, piece: str) -> None:
        """Add live text."""
        if self._owed:
            if self._owed.startswith(piece):
                self._owed = self._owed[len(piece) :]
                return
            piece = piece.removeprefix(self._owed)
            self._owed = ""
        self._live += piece

    def logged(self, piece: str) -> None:
        """Add a piece from the log."""
        self._logged += piece

    def take(self, count: int) -> str:
        """Return this many characters of the tail; they count as shown."""
        piece = self.tail[:count]
        self._taken += piece
        return piece

    def spoke(self, whole: str) -> str:
        """End with the whole message, and return the part that is still to be shown."""
        rest = whole.removeprefix(self._taken)
        ahead = self._live[len(whole) :] if self._live.startswith(whole) else ""
        self._owed = whole[len(self._live) :] if whole.startswith(self._live) else ""
        self._live, self._logged, self._taken = ahead, "", ""
        return rest

    def broke_off(self) -> str:
        """End the message where it is, because no more will come; return the part that is still to be shown."""
        rest = self.tail
        self._live = self._logged = self._taken = self._owed = ""
        return rest
