"""A process that owns a session and is stopped there, as by Ctrl-Z, a debugger or a frozen container."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from curtainwall.model import StreamId
from tests.support.stores import line_from, process


@contextmanager
def stopped_owner(home: Path, stream: StreamId) -> Generator[int]:
    """Have another process own a session as soon as nobody does, and stop it there; yield its id, and kill it at the end."""
    for _ in range(30):
        with process("hold", str(home), stream) as child:
            if line_from(child) == "held":
                child.send_signal(signal.SIGSTOP)
                yield child.pid
                return
    raise AssertionError("the session was never let go of")
