"""Messages between teams."""

from curtainwall.model.approvals import LabelSource
from curtainwall.model.events.event import Event
from curtainwall.model.ids import MessageId, Millis, SessionId
from curtainwall.model.peers import Peer, PeerAnswer


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
