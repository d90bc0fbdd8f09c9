"""Lines on their way to one peer: those of one turn of the loop leave together, and a peer that does not read is cut."""

import asyncio
import select
import socket
from typing import cast

from curtainwall.tools.mcp_in.bounds import Bounds

_PAUSE_AT = 1024 * 1024


class Replies:
    """The writing half of a connection."""

    def __init__(self, transport: asyncio.Transport, bounds: Bounds) -> None:
        self._transport = transport
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._cutter: asyncio.TimerHandle | None = None
        self._hangs_up: select.epoll | None = None
        self.is_paused = False
        transport.set_write_buffer_limits(high=min(_PAUSE_AT, bounds.unread))

    def send(self, line: bytes) -> None:
        """Send a line soon."""
        if not self._lines:
            self._loop.call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Send what there is now; a peer that left too much unread is cut."""
        lines, self._lines = self._lines, []
        if lines and not self._transport.is_closing():
            self._transport.write(b"".join(lines))
            if self._transport.get_write_buffer_size() > self._bounds.unread:
                self._transport.abort()

    def pause(self) -> None:
        """Note that the peer does not read; it has a while to catch up."""
        self.is_paused = True
        self._cut_later()

    def resume(self) -> None:
        """Note that it reads again."""
        self.is_paused = False
        self.forget()

    def close(self) -> None:
        """Send what is left and end; a peer that does not take it is cut."""
        self.flush()
        self._transport.close()
        self._cut_later()

    def forget(self) -> None:
        """Stop the clock."""
        if self._cutter is not None:
            self._cutter.cancel()
            self._cutter = None

    def watch(self) -> None:
        """Cut the connection as soon as the peer closes the other way as well, so that nobody will read what we send.

        After its last word there is nothing to read any more, so the loop would not hear of that.
        """
        peer = cast("socket.socket | None", self._transport.get_extra_info("socket"))
        if self._hangs_up is None and peer is not None and peer.fileno() >= 0:
            self._hangs_up = select.epoll()
            # Of no event but those that are always told: that it hung up, or failed.
            self._hangs_up.register(peer.fileno(), 0)
            self._loop.add_reader(self._hangs_up.fileno(), self._transport.abort)

    def unwatch(self) -> None:
        """Stop looking for the peer's end."""
        if self._hangs_up is not None:
            self._loop.remove_reader(self._hangs_up.fileno())
            self._hangs_up.close()
            self._hangs_up = None

    def _cut_later(self) -> None:
        if self._cutter is None:
            self._cutter = self._loop.call_later(self._bounds.patience, self._transport.abort)
