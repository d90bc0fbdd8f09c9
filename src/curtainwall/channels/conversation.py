"""A conversation as text: what was said in a session, also before it was forked, and the message of the agent that is still coming."""

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


class StreamedMessage:
    """What the agent is saying, and how much of it somebody has taken to show for good.

    The same text arrives up to three times: live, in the log's pieces, and whole. Live text may also run ahead of the log into the next
    message, or come late, when the whole message is known already.
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
        """What is known and was not taken yet."""
        return self.text.removeprefix(self._taken)

    def add_live(self, piece: str) -> None:
        """Take in live text."""
        if self._owed:
            if self._owed.startswith(piece):
                self._owed = self._owed[len(piece) :]
                return
            piece = piece.removeprefix(self._owed)
            self._owed = ""
        self._live += piece

    def logged(self, piece: str) -> None:
        """Take in a piece that the log keeps."""
        self._logged += piece

    def take(self, count: int) -> str:
        """Return so many characters of the tail; they are shown for good."""
        piece = self.tail[:count]
        self._taken += piece
        return piece

    def spoke(self, whole: str) -> str:
        """End with the whole message, and return what of it is still to be shown."""
        rest = whole.removeprefix(self._taken)
        ahead = self._live[len(whole) :] if self._live.startswith(whole) else ""
        self._owed = whole[len(self._live) :] if whole.startswith(self._live) else ""
        self._live, self._logged, self._taken = ahead, "", ""
        return rest

    def broke_off(self) -> str:
        """End where the text stands, because no more will come, and return what is still to be shown."""
        rest = self.tail
        self._live = self._logged = self._taken = self._owed = ""
        return rest
