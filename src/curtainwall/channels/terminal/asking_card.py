"""A card between lines that a terminal prints one after the other: with a bar at its side, also where a line goes on below."""

import shutil
from collections.abc import Iterator
from typing import TextIO

from curtainwall.channels.cards import card_lines, card_rows
from curtainwall.channels.terminal.outlet import Outlet
from curtainwall.model import PendingAsk

_BAR = "| "


def card_beside_bar(ask: PendingAsk, screen: TextIO | Outlet) -> Iterator[str]:
    """Yield the card of an ask for whatever it is printed on."""
    width = shutil.get_terminal_size().columns - len(_BAR) if screen.isatty() else None
    yield from (f"{_BAR}{row}" for row in card_rows((line.text for line in card_lines(ask)), width))
