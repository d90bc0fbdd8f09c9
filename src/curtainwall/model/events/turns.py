"""Messages, from people and from other teams, and the turns in which an agent takes them up."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from curtainwall.model.approvals import LabelSource
from curtainwall.model.events.event import Event
from curtainwall.model.ids import CallId, MessageId, Millis, SessionId, TurnId
from curtainwall.model.peers import Peer, PeerAnswer
from curtainwall.model.people import Who


class TurnStatus(StrEnum):
    """How a turn ended."""

    DONE = "done"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


def _is_so(value: bool) -> bool:
    # Most messages are proven, and what they write into the log stays as it was.
    return value


def _is_not_so(value: bool) -> bool:
    # As above: most messages are part of a conversation.
    return not value


class MessageAccepted(Event):
    """A channel took a message; it is queued durably and in order."""

    message: MessageId
    text: str
    by: Who
    role: Literal["human", "context"] = "human"
    peer: Peer | None = None
    expires: Millis | None = None
    proven: bool = Field(default=True, exclude_if=_is_so)
    """Whether the channel knows who wrote it, or only has somebody else's word for that, as a homeserver's."""
    once: bool = Field(default=False, exclude_if=_is_not_so)
    """It is a single task: the session ends when the task is done and nothing else is open."""


class TurnStarted(Event):
    """The agent took up messages from the queue."""

    turn: TurnId
    messages: tuple[MessageId, ...]


class TurnResumed(Event):
    """A turn that waited goes on."""

    turn: TurnId


class TextStreamed(Event):
    """About a second of the agent's text, kept so that neither an interrupt nor a crash loses what was shown."""

    turn: TurnId
    text: str


class AgentSpoke(Event):
    """The agent's whole message; for the model it replaces the streamed pieces."""

    turn: TurnId
    text: str
    ours: bool = False
    """It is a note of ours about the agent, and no answer of its own."""


class TurnEnded(Event):
    """The agent stopped: done, waiting for an answer, interrupted or failed."""

    turn: TurnId
    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of what went wrong, for programs; `failure` has it in words."""
    waits_for: tuple[CallId, ...] = ()


class InterruptAsked(Event):
    """Someone wants the running turn to stop."""

    turn: TurnId
    by: Who


class MessageWithdrawn(Event):
    """A message that still waited in the queue was taken back."""

    message: MessageId
    by: Who


MessageEvent = MessageAccepted | MessageWithdrawn
"""What waits for a turn."""

TurnEvent = TurnStarted | TurnResumed | TurnEnded | InterruptAsked
"""Where a turn is between its start and its end."""

SpeechEvent = TextStreamed | AgentSpoke
"""What the agent says."""


class PeerMessageSent(Event):
    """A message left for another team's session; written together with the row in that one's inbox."""

    message: MessageId
    to: SessionId
    team: str
    text: str
    peer: Peer
    labels: tuple[LabelSource, ...] = ()
    expires: Millis | None = None


class PeerAnswered(Event):
    """The answer to a team's message left for the session that had sent it; written together with the row in that one's inbox."""

    peer: Peer
    answer: PeerAnswer


class PeerAnswerHeld(Event):
    """An answer is ready and waits for a yes before it leaves."""

    answer: PeerAnswer


class PeerAnswerTaken(Event):
    """The answer to a message of this session came, with the labels of what it was written from and what it cost."""

    team: str
    answer: PeerAnswer


PeerEvent = PeerMessageSent | PeerAnswered | PeerAnswerHeld | PeerAnswerTaken
"""Messages to and from other teams."""
