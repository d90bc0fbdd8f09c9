"""What was set aside in a project: told so that it can be recognised, and put back where somebody says that it was theirs."""

import os

from curtainwall.host.files.beneath import move_entry
from curtainwall.host.files.later import Later, likeness_of, renamed
from curtainwall.model import CommandRefused, HeldFile


def told_of(held: tuple[tuple[str, str | None], ...], before: Later) -> tuple[HeldFile, ...]:
    """Return what was set aside, with what each is like now: its new name is no name that anybody is kept from writing to."""
    return tuple(_told(path, aside, before) for path, aside in held)


def _told(path: str, aside: str | None, before: Later) -> HeldFile:
    if aside is None:
        return HeldFile(path=_storable(path), aside=None)
    is_replaced = path in before.configs and os.path.lexists(path)
    return HeldFile(path=_storable(path), aside=_storable(aside), likeness=likeness_of(aside) or "", is_replaced=is_replaced)


def put_back(file: HeldFile) -> str | None:
    """Give a file its own name again, and return where what stood there instead is now; raise `CommandRefused`.

    INVARIANT: only what was set aside comes back. Whatever changed since, an agent may have written.
    """
    if file.aside is None:
        raise CommandRefused(f"`{file.path}` could not be set aside, so it is still there")
    now = likeness_of(file.aside)
    if now is None:
        raise CommandRefused(f"`{file.aside}` is not there any more")
    if now != file.likeness:
        raise CommandRefused(f"`{file.aside}` was changed since it was set aside; look at it, and rename it yourself")
    instead = None
    if os.path.lexists(file.path):
        if not file.is_replaced:
            raise CommandRefused(f"there is another `{file.path}` by now; look at both, and choose yourself")
        instead = renamed(file.path)
    try:
        move_entry(file.aside, file.path)
    except (OSError, ValueError) as fault:
        why = (getattr(fault, "strerror", None) or str(fault)).lower()
        raise CommandRefused(f"`{file.aside}` cannot be put back: {why}") from None
    return instead


def _storable(path: str) -> str:
    """Return a path as the log can hold it; one with bytes that are no text is named, and cannot be put back by us."""
    return path.encode("utf-8", "backslashreplace").decode()
