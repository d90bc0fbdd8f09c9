"""A terminal that cannot move its cursor (`TERM=dumb`): whole lines in, whole lines out. Knows nothing of sessions."""

import asyncio
import codecs
import os
import re
import signal
import sys

from curtainwall.channels.terminal.prompt import ExitPressed, PromptView, StopPressed, TextSubmitted, UserAction
from curtainwall.model import Millis

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_MOST_BYTES = 65_536
_USUAL_COLUMNS = 80
"""The width of a terminal that says 0, as those of some editors and containers do."""


class LineScreen:
    """Takes the place of `PromptScreen` where nothing can be redrawn; the terminal itself lets the user edit a line.

    We see a line only once it is finished, not what its writer had read when they began it. So no line is ever about the ask on the
    screen: `/approve` and `/deny` need its id, which is printed with it.
    """

    def __init__(self, view: PromptView) -> None:
        self.actions: asyncio.Queue[UserAction] = asyncio.Queue()
        self._view = view
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._end: asyncio.Future[int] | None = None
        self._shown: str | None = None

    @property
    def columns(self) -> int:
        """The width to draw in, as the terminal itself says: rows that it had to fold could begin with an agent's words."""
        return max((os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_COLUMNS) - 1, 10)

    async def run(self) -> int:
        """Run until `leave`, and return the code given there."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        loop.add_reader(sys.stdin.fileno(), self._read)
        loop.add_signal_handler(signal.SIGINT, lambda: self.actions.put_nowait(StopPressed(self._view.works())))
        try:
            return await self._end
        finally:
            loop.remove_reader(sys.stdin.fileno())

    def leave(self, code: int) -> None:
        """End the run."""
        if self._end is not None and not self._end.done():
            self._end.set_result(code)

    def show(self, text: str) -> None:
        """Print text without its styles."""
        sys.stdout.write(_STYLE.sub("", text))
        sys.stdout.flush()

    def refresh(self) -> None:
        """Do nothing: what is printed stays."""

    def clear(self) -> None:
        """Do nothing: what is printed stays."""

    def put_back(self, text: str) -> None:
        """Say that a text was not sent; it cannot be put into the terminal's own line."""
        self.show(f"not sent: {text.splitlines()[0] if text else ''}\n")

    def settle(self, elapsed: Millis) -> None:  # noqa: ARG002 - keys that count after a while are not offered here
        """Print how to answer an ask, once."""
        offer = self._view.offer()
        about = None if offer is None else offer.about
        if about is not None and about != self._shown:
            self.show(f"/approve {about} or /deny {about} answers this\n")
        self._shown = about

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), _MOST_BYTES)
        except OSError:
            data = b""
        *lines, self._partial = (self._partial + self._decoder.decode(data, final=not data)).split("\n")
        for line in lines:
            if line.strip():
                self.actions.put_nowait(TextSubmitted(line))
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.actions.put_nowait(ExitPressed())
