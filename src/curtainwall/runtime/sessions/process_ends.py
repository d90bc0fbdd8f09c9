"""The end of another process, for whoever waits for it."""

import asyncio
import os


class EndOf:
    """Sets an event when a process ends."""

    def __init__(self, pid: int | None, ended: asyncio.Event) -> None:
        self._pid = pid
        self._ended = ended
        self._fd = -1

    def __enter__(self) -> None:
        if self._pid is None or self._pid == os.getpid():
            return
        try:
            self._fd = os.pidfd_open(self._pid)
        except OSError:
            # It has ended already, or is unknown: whoever waits has tried, and tries again.
            return
        asyncio.get_running_loop().add_reader(self._fd, self._fire)

    def __exit__(self, *_: object) -> None:
        self._close()

    def _fire(self) -> None:
        self._close()
        self._ended.set()

    def _close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
