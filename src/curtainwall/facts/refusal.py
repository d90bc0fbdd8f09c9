"""The error for an argument that does not have exactly one meaning."""

_MAX_LENGTH = 120


class Unclear(Exception):
    """An argument does not have exactly one meaning; `message` says why, for the agent and the log."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def quoted(value: object) -> str:
    """Quote an agent's text for a message: in backticks, on one line, printable, and shortened if long."""
    if not isinstance(value, str):
        return f"`{type(value).__name__}`"
    cut = value[:_MAX_LENGTH]
    escaped = "".join(
        letter if letter.isprintable() and letter not in "`\\" else ascii(letter)[1:-1].replace("`", "\\x60") for letter in cut
    )
    return f"`{escaped}`" if len(value) <= _MAX_LENGTH else f"`{escaped}…`"
