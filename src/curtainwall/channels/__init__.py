"""Where people and systems talk to sessions. A channel sends commands and reads the feed; it is never called back."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.ask_files import Rendezvous, Send
    from curtainwall.channels.conversation import Utterance, utterances
    from curtainwall.channels.plain import short
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Rendezvous",
    "Send",
    "Utterance",
    "short",
    "utterances",
]
