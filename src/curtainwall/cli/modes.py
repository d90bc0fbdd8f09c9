"""The mode of a session on the command line, where `ask` is another word for `default`."""

import typer

from curtainwall.model import Mode


def parse_mode(text: str) -> Mode:
    """Return the mode that a word means."""
    try:
        return Mode(text)
    except ValueError:
        words = ", ".join(f"`{mode}`" for mode in Mode)
        raise typer.BadParameter(f"`{text}` is not one of {words}") from None
