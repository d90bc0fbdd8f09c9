"""The files of a workspace that changed while an external agent worked in it, as a note in the session's log."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.model.events import AnyEvent
from curtainwall.model.events.work import ExtensionNoted
from curtainwall.model.ids import Millis, TurnId

CHANGED_FILES: Final = "changed-files"
"""The extension under which the changes are noted."""


def changes_noted(turn: TurnId, paths: Sequence[str], at: Millis, *, more: int = 0) -> ExtensionNoted:
    """Return the event for files that changed in a turn; `more` counts those past the limit of the list."""
    listed: list[JsonValue] = [*paths]
    data: dict[str, JsonValue] = {"turn": turn, "paths": listed}
    return ExtensionNoted(at=at, extension=CHANGED_FILES, data={**data, "more": more} if more else data)


def changed_files(event: AnyEvent) -> tuple[str, ...]:
    """Return the paths of the changed files that an event lists; empty for any other event.

    These files exist afterwards; deleted ones are not listed. A file may also have been changed by another process at the same time.
    """
    if not isinstance(event, ExtensionNoted) or event.extension != CHANGED_FILES:
        return ()
    paths = event.data.get("paths")
    return tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else ()


def unlisted_changes(event: AnyEvent) -> int:
    """Return how many changed files an event counts without listing them."""
    if not isinstance(event, ExtensionNoted) or event.extension != CHANGED_FILES:
        return 0
    more = event.data.get("more")
    return more if type(more) is int and more > 0 else 0
