"""The ports of every text channel: the desk, the feed, live text, and the clock."""

from curtainwall.model import ChangeSteps, Clock, Desk, Explainer, Feed, Knowledge, LiveFeed, MessageId, ordered_id, record


@record
class ChannelPorts:
    """A channel's access to the runtime; everything it does goes through here."""

    desk: Desk
    feed: Feed
    live: LiveFeed
    clock: Clock
    explainer: Explainer
    knowledge: Knowledge
    steps: ChangeSteps

    def new_message(self) -> MessageId:
        """Return a new id for a message that is about to be sent."""
        return MessageId(ordered_id(self.clock.now(), self.clock.entropy(5)))
