"""Asking the human at the terminal, one ask after the other, while a task runs."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from curtainwall.channels.terminal.keys import KEYS
from curtainwall.model import ApprovalId

if TYPE_CHECKING:
    from prompt_toolkit.input import Input

STOP = "c-c"


@asynccontextmanager
async def keypresses(source: "Input | None") -> AsyncGenerator[asyncio.Queue[str]]:
    """Give the keys that are pressed while the context is open; the terminal echoes none of them."""
    from prompt_toolkit.input import create_input  # late: only a terminal needs the library
    from prompt_toolkit.keys import Keys

    terminal = create_input() if source is None else source
    pressed: asyncio.Queue[str] = asyncio.Queue()

    def take() -> None:
        for key in terminal.read_keys():
            if key.key == Keys.ControlC:
                pressed.put_nowait(STOP)
            elif key.key == key.data:
                # What was pasted has another key than its text: a paste is no answer, however short.
                pressed.put_nowait(key.data)

    with terminal.raw_mode(), terminal.attach(take):
        yield pressed


class Asking:
    """The one ask that is before the human, and the key that is waited for."""

    def __init__(self, source: "Input | None", press: Callable[[str, ApprovalId | None], Awaitable[bool]]) -> None:
        self._source = source
        self._press = press
        self._about: ApprovalId | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def about(self) -> ApprovalId | None:
        """The ask that is before the human."""
        return self._about

    def ask(self, approval: ApprovalId) -> None:
        """Wait for a key about an ask."""
        self._about = approval
        self._task = asyncio.create_task(self._wait(approval))

    async def end(self) -> None:
        """Wait for no key any more."""
        self._about = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _wait(self, approval: ApprovalId) -> None:
        async with keypresses(self._source) as pressed:
            while True:
                key = await pressed.get()
                if key == STOP:
                    await self._press(key, None)
                elif key in KEYS and await self._press(key, approval):
                    return
