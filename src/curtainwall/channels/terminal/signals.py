"""The signals that end the program from outside, taken as a wish to stop in an orderly way."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED: Final = 130


def on_end_signal(do: Callable[[int], None]) -> None:
    """Have a signal that would end the process call this with the exit code instead, until the loop is closed.

    A signal that is ignored stays so, as `nohup` wants it. Outside of the main thread no signal arrives, and nothing is done.
    """
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError):
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, do, 128 + number)


def hold_interrupts() -> None:
    """Keep Ctrl-C from breaking into what is being closed, until the loop is closed; pressed twice more, it ends the process at once.

    Raised in the middle of closing, an interrupt can make the loop forget a task that others wait for, and the program would never end.
    Ending at once is safe: whatever is open then is taken up again as after any crash.
    """
    loop, presses = asyncio.get_running_loop(), 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            os._exit(_INTERRUPTED)

    with suppress(ValueError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, pressed)
