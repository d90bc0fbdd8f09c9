"""What every text channel is given: the desk, the feed, live text, and the clock."""

from dataclasses import dataclass

from curtainwall.model import Clock, Desk, Explainer, Feed, Knowledge, LiveFeed, MessageId, ordered_id


@dataclass(frozen=True, slots=True)
class ChannelPorts:
    """A channel's line to the house; everything it does goes through here."""

    desk: Desk
    feed: Feed
    listening: LiveFeed
    clock: Clock
    explaining: Explainer
    knowledge: Knowledge

    def new_message(self) -> MessageId:
        """Return the id of a message that is about to be sent."""
        return MessageId(ordered_id(self.clock.now(), self.clock.entropy(5)))
