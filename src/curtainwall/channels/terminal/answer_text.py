"""The agent's text on stdout: drawn block by block as it comes on a terminal, otherwise whole and plain."""

import shutil

from curtainwall.channels.terminal.blocks import whole_blocks
from curtainwall.channels.terminal.outlet import Outlet
from curtainwall.channels.text.message import Saying
from curtainwall.channels.text.plain import plain


class Writing:
    """Text on its way to a stream, and everything that was said, for the document."""

    def __init__(self, out: Outlet | None, *, colour: bool) -> None:
        self._out = out
        self._is_drawn = out is not None and out.isatty()
        self._colour = colour
        self._saying = Saying()
        self._said: list[str] = []
        self._has_written = False
        self._held: list[str] | None = None

    @property
    def text(self) -> str:
        """Everything that was said, message by message."""
        return "\n\n".join(self._said)

    def heard(self, piece: str) -> None:
        """Take in what is said right now."""
        self._saying.heard(piece)
        self._write_blocks()

    def logged(self, piece: str) -> None:
        """Take in a piece that the log keeps."""
        self._saying.logged(piece)
        self._write_blocks()

    def spoke(self, whole: str) -> None:
        """End a message."""
        if whole.strip():
            self._said.append(whole)
        self._write(self._saying.spoke(whole))

    def broke_off(self) -> None:
        """End a message of which no more will come."""
        if self._saying.text.strip():
            self._said.append(self._saying.text)
        self._write(self._saying.broke_off())

    def _write_blocks(self) -> None:
        if self._is_drawn:
            self._write(self._saying.take(whole_blocks(self._saying.tail)))

    def hold(self) -> None:
        """Keep what is said from now on until `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Write what was kept, and from now on everything at once."""
        held, self._held = self._held or [], None
        for text in held:
            self._write(text)

    def _write(self, text: str) -> None:
        if self._out is None or not text.strip():
            return
        if self._held is not None:
            self._held.append(text)
            return
        gap = "\n" if self._has_written else ""
        if self._is_drawn:
            self._out.draw(f"{gap}{self._drawn(text)}")
        else:
            self._out.write(f"{gap}{plain(text).rstrip()}\n")
        self._has_written = True

    def _drawn(self, text: str) -> str:
        from curtainwall.channels.terminal.looks import Looks  # late: only a terminal needs the library that draws

        return Looks(shutil.get_terminal_size().columns - 1, self._colour).markdown(text)
