"""Where people and systems talk to sessions; a channel sends commands and reads the feed, and nobody calls it back."""

from curtainwall.channels.rendezvous import Rendezvous, Send

__all__ = ["Rendezvous", "Send"]
