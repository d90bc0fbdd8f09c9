"""The one way in which facts say no: an argument that cannot be read in exactly one way."""

_LONGEST = 120


class Unclear(Exception):
    """An argument that cannot be read in exactly one way; `message` says why, for the agent and the log."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def quoted(value: object) -> str:
    """Return what an agent wrote as it may stand in a message: in backticks, on one line, printable, and cut where long."""
    if not isinstance(value, str):
        return f"`{type(value).__name__}`"
    cut = value[:_LONGEST]
    inert = "".join(letter if letter.isprintable() and letter not in "`\\" else ascii(letter)[1:-1].replace("`", "\\x60") for letter in cut)
    return f"`{inert}`" if len(value) <= _LONGEST else f"`{inert}…`"
