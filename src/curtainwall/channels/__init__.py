"""Where people and systems talk to sessions; a channel sends commands and reads the feed, and nobody calls it back."""

from curtainwall.channels.ask_files.rendezvous import Rendezvous, Send
from curtainwall.channels.text.history import Utterance, utterances
from curtainwall.channels.text.plain import short

__all__ = ["Rendezvous", "Send", "Utterance", "short", "utterances"]
