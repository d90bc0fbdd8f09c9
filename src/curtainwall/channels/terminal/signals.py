"""The signals that end the program from outside, taken as a wish to stop in an orderly way."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def on_end_signal(do: Callable[[int], None]) -> None:
    """Have a signal that would end the process call this with the exit code instead, until the loop is closed.

    A signal that is ignored stays so, as `nohup` wants it. Outside of the main thread no signal arrives, and nothing is done.
    """
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError):
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, do, 128 + number)
