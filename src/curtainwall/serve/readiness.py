"""Notifies the service manager that `serve` is ready, alive or stopping, in systemd's protocol but without its libraries."""

import asyncio
import os
import socket
from collections.abc import MutableMapping

_MICROSECONDS = 1_000_000


class NotifySocket:
    """The socket that the service manager listens on; without one, nothing is sent.

    INVARIANT: the variables are taken out of the environment, so that no child can speak in our name.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_ours = pid in ("", str(os.getpid()))
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = int(watchdog) / _MICROSECONDS if watchdog.isdecimal() and is_ours else 0.0

    def send(self, *lines: str) -> None:
        """Send one message; a manager that does not listen must not stop us."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return

    def ready(self, status: str) -> None:
        """Say that everything is served."""
        self.send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """Say that what runs is being parked."""
        self.send("STOPPING=1", "STATUS=parking what runs")

    async def keep_alive(self) -> None:
        """Show twice in each interval that the event loop still runs, if the manager wants that."""
        while self._address and self._watchdog > 0:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 2)
