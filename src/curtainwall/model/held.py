"""Files of a project that were set aside because they run later by themselves, as a session's log tells of them."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue, ValidationError

from curtainwall.model.events import AnyEvent, ExtensionNoted
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Millis

HELD: Final = "held"


class HeldFile(Frozen):
    """One of them: where it was, where it is now (None where it could not be taken away), and what it was like then."""

    path: str
    aside: str | None
    likeness: str = ""
    is_replaced: bool = False
    """What was there before is in its place again."""


def held_noted(files: Sequence[HeldFile], at: Millis, *, is_told: bool = False) -> ExtensionNoted:
    """Return the event that remembers what was set aside; where people were told otherwise, nobody tells it again."""
    listed: list[JsonValue] = [file.model_dump(mode="json") for file in files]
    return ExtensionNoted(at=at, extension=HELD, data={"files": listed, "told": is_told})


def held_files(event: AnyEvent, *, untold: bool = False) -> tuple[HeldFile, ...]:
    """Return what an event says was set aside; with `untold`, only where it has to be told. Whatever else it is holds nothing."""
    if not isinstance(event, ExtensionNoted) or event.extension != HELD or (untold and event.data.get("told")):
        return ()
    listed = event.data.get("files")
    try:
        return tuple(HeldFile.model_validate(each) for each in listed) if isinstance(listed, list) else ()
    except ValidationError:
        return ()
