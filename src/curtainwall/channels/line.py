"""What a text channel is given by the house: the desk, the feed, what is said right now, the clock, and what can be explained."""

from dataclasses import dataclass

from curtainwall.model import Clock, Desk, Explaining, Feed, Knowledge, Listening, MessageId, ordered_id


@dataclass(frozen=True, slots=True)
class Line:
    """A channel's line to the house; everything it does goes through here."""

    desk: Desk
    feed: Feed
    listening: Listening
    clock: Clock
    explaining: Explaining
    knowledge: Knowledge

    def new_message(self) -> MessageId:
        """Return the id of a message that is about to be sent."""
        return MessageId(ordered_id(self.clock.now(), self.clock.entropy(5)))
