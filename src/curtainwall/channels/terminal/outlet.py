"""A stream that whoever reads it may leave: what is written afterwards is dropped, and that they have left is remembered."""

from typing import TextIO


class Outlet:
    """One stream of a task."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_left = False

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self._stream.isatty()

    def write(self, text: str) -> None:
        """Write at once, while somebody reads."""
        if self.is_left:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self.is_left = True
