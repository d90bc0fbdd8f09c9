"""A wait for something that a connection brings: whoever waits goes on in the moment in which it comes, not in the loop's next round."""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class Wait(asyncio.Future[None]):
    """One wait of one task. A loop's round costs more than most of what is done with what came."""

    __slots__ = ("_then", "_within")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._then: Callable[[asyncio.Future[None]], object] | None = None
        self._within: Context | None = None

    def add_done_callback(self, fn: Callable[[asyncio.Future[None]], object], /, *, context: Context | None = None) -> None:
        """Keep the one that waits; it is a task, which does so once."""
        self._then, self._within = fn, context or copy_context()

    def cancel(self, msg: Any | None = None) -> bool:
        """End the wait without what it was for, in the loop's next round."""
        if not super().cancel(msg):
            return False
        self._later()
        return True

    def end(self) -> None:
        """End the wait in the loop's next round, as other futures do."""
        if not self.done():
            self.set_result(None)
            self._later()

    def end_now(self) -> None:
        """End the wait and let the task go on before this returns; while another task runs, in the loop's next round."""
        then, within = self._then, self._within
        if then is None or within is None or asyncio.current_task(self.get_loop()) is not None:
            self.end()
        elif not self.done():
            self.set_result(None)
            self._then = None
            within.run(then, self)

    def _later(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            self.get_loop().call_soon(then, self, context=self._within)
