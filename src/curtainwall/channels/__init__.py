"""Where people and systems talk to sessions. A channel sends commands and reads the feed; it is never called back."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.ask_files import Rendezvous as Rendezvous
    from curtainwall.channels.ask_files import Send as Send
    from curtainwall.channels.conversation import Utterance as Utterance
    from curtainwall.channels.conversation import utterances as utterances
    from curtainwall.channels.plain import short as short
else:
    __getattr__ = lazy_names(__name__)
