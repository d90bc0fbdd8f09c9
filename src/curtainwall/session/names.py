"""What people may call a session: something, and not so much that it fills every list."""

from typing import Final

from curtainwall.model import CommandRefused

MOST_LETTERS: Final = 200


def see_name(name: str) -> None:
    """Refuse a name that is longer than any list could show."""
    if len(name) > MOST_LETTERS:
        raise CommandRefused(f"a name has {MOST_LETTERS} letters at most, and this one has {len(name):,}; choose a shorter one")
