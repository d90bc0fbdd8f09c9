"""Suggestions for slash words, as prompt_toolkit takes them."""

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from curtainwall.channels.slash import Known, suggest
from curtainwall.model import CurtainwallError


class SlashCompleter(Completer):
    """Completes slash words and their arguments, and nothing in a message."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the library's name
        """Yield what the text before the cursor could go on with."""
        try:
            for it in suggest(document.text_before_cursor, self._known):
                yield Completion(it.text, start_position=-it.length, display_meta=it.meaning)
        except CurtainwallError:
            return
