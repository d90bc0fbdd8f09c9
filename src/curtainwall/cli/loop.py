"""The event loop of a command that needs one."""

from collections.abc import Coroutine
from typing import Any, TypeVar

_Done = TypeVar("_Done")


def run(work: Coroutine[Any, Any, _Done]) -> _Done:
    """Run work on a loop, and return its result."""
    # Start-up time: a listing needs no loop, but other commands of its group do.
    import asyncio

    return asyncio.run(work)
