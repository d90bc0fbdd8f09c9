"""Where people and systems talk to sessions; a channel sends commands and reads the feed, and nobody calls it back."""

from curtainwall.channels.history import Utterance, utterances
from curtainwall.channels.plain import short
from curtainwall.channels.rendezvous import Rendezvous, Send

__all__ = ["Rendezvous", "Send", "Utterance", "short", "utterances"]
