"""How far a running tool has come, told to whoever waits for it; nobody need listen."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Heard = Callable[[float, float | None, str | None], None]
"""Takes how far it is, how far it goes where that is known, and words."""

_LISTENER: ContextVar[Heard | None] = ContextVar("listener", default=None)


@contextmanager
def hearing(listener: Heard) -> Generator[None]:
    """Hear of the progress of every call that is made inside, by this task and those it starts."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def listener() -> Heard | None:
    """Return who hears of the present call's progress."""
    return _LISTENER.get()
