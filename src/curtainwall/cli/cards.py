"""Cards of asks as the program prints them, in rows that fit the terminal."""

from collections.abc import Iterable

from curtainwall.channels.asks.cards import card_rows
from curtainwall.cli.screen import room
from curtainwall.session import visible


def card(shown: str, indent: int = 0) -> str:
    """Return what a human is shown of an approval, line by line inert; it was cut when it was made and is not cut again."""
    return card_text(map(visible, shown.split("\n")), indent)


def card_text(lines: Iterable[str], indent: int = 0) -> str:
    """Return the lines of a card so far to the right, in rows that do not pass for lines of their own where a terminal is narrow."""
    most = room()
    return "\n".join(f"{' ' * indent}{row}" for row in card_rows(lines, None if most is None else most - indent))
