"""Messages from people and other teams, and the turns in which an agent works on them."""

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
    # Left out for most messages, whose author is verified, so that these are stored as by earlier versions.
    return value


def _is_not_so(value: bool) -> bool:
    # Left out likewise: most messages are part of a conversation.
    return not value


class MessageAccepted(Event):
    """A channel accepted a message; it is queued durably and in order."""

    message: MessageId
    text: str
    by: Who
    role: Literal["human", "context"] = "human"
    peer: Peer | None = None
    expires: Millis | None = None
    proven: bool = Field(default=True, exclude_if=_is_so)
    """Whether the channel itself verified the author, or relies on a third party such as a homeserver."""
    once: bool = Field(default=False, exclude_if=_is_not_so)
    """This is a single task: the session ends when the task is done and nothing else is open."""


class TurnStarted(Event):
    """The agent started to work on messages from the queue."""

    turn: TurnId
    messages: tuple[MessageId, ...]


class TurnResumed(Event):
    """A waiting turn continued."""

    turn: TurnId


class TextStreamed(Event):
    """About a second of the agent's text, recorded so that neither an interrupt nor a crash loses what was shown."""

    turn: TurnId
    text: str


class AgentSpoke(Event):
    """The agent's whole message; in the model's history it replaces the streamed pieces."""

    turn: TurnId
    text: str
    ours: bool = False
    """The text is our note about the agent and not its answer."""


class TurnEnded(Event):
    """The agent stopped: done, waiting for an answer, interrupted or failed."""

    turn: TurnId
    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of the fault, for programs; `failure` describes it in words."""
    waits_for: tuple[CallId, ...] = ()


class InterruptAsked(Event):
    """The running turn was asked to stop."""

    turn: TurnId
    by: Who


class MessageWithdrawn(Event):
    """A queued message was withdrawn."""

    message: MessageId
    by: Who


MessageEvent = MessageAccepted | MessageWithdrawn
"""The messages that wait for a turn."""

TurnEvent = TurnStarted | TurnResumed | TurnEnded | InterruptAsked
"""The life of a turn from its start to its end."""

SpeechEvent = TextStreamed | AgentSpoke
"""The agent's text."""


class PeerMessageSent(Event):
    """A message was sent to another team's session; written together with the row in that session's inbox."""

    message: MessageId
    to: SessionId
    team: str
    text: str
    peer: Peer
    labels: tuple[LabelSource, ...] = ()
    expires: Millis | None = None


class PeerAnswered(Event):
    """The answer to a team's message was sent to that team's session; written together with the row in its inbox."""

    peer: Peer
    answer: PeerAnswer


class PeerAnswerHeld(Event):
    """An answer is ready and waits for approval before it leaves."""

    answer: PeerAnswer


class PeerAnswerTaken(Event):
    """The answer to a message of this session arrived, with the labels of its sources and its cost."""

    team: str
    answer: PeerAnswer


PeerEvent = PeerMessageSent | PeerAnswered | PeerAnswerHeld | PeerAnswerTaken
"""Messages to and from other teams."""
