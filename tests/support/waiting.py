"""Waiting for what a test can only see from outside, always with a bound; and files that somebody else watches."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PAUSE = 0.005
BOUND = 90.0
"""Long, because a busy machine is no fault; whoever waits in vain fails anyway."""


def run(work: Coroutine[Any, Any, T], bound: float = 240) -> T:
    """Run one coroutine with a bound, so that a hang is a failure with a place."""
    return asyncio.run(asyncio.wait_for(work, bound))


def until(condition: Callable[[], T | None], bound: float = BOUND, pause: float = PAUSE) -> T:
    """Wait for something to be so, and return it; between two looks lies a pause, at least as long as a look takes."""
    end = (began := time.monotonic()) + bound
    while not (found := condition()):
        now = time.monotonic()
        assert now < end, f"it did not come about within {bound:g} seconds"
        time.sleep(max(pause, now - began))
        began = time.monotonic()
    return found


async def eventually(condition: Callable[[], T | None], bound: float = BOUND, pause: float = PAUSE) -> T:
    """Wait for something to be so while everything else in this loop goes on, and return it; looks take half of the time at the most."""
    end = (began := time.monotonic()) + bound
    while not (found := condition()):
        now = time.monotonic()
        assert now < end, f"it did not come about within {bound:g} seconds"
        await asyncio.sleep(max(pause, now - began))
        began = time.monotonic()
    return found


def replace(path: Path, text: str) -> None:
    """Write a file as an editor does: whoever watches it reads the old text or the new one, and never half of it."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.rename(path)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
