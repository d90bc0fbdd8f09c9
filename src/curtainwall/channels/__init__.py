"""Where people and systems talk to sessions; a channel sends commands and reads the feed, and nobody calls it back."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.ask_files.rendezvous import Rendezvous, Send
    from curtainwall.channels.text.history import Utterance, utterances
    from curtainwall.channels.text.plain import short
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Rendezvous",
    "Send",
    "Utterance",
    "short",
    "utterances",
]
