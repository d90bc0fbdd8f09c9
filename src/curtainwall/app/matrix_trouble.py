"""What is wrong with the Matrix channel, as `serve` found it and remembered it for whoever looks from another process."""

from collections.abc import Iterator

from curtainwall.app.config import Config
from curtainwall.channels.counting import counted
from curtainwall.model import Index, Marks, SessionId, SessionQuery


def matrix_trouble(config: Config, marks: Marks, index: Index) -> Iterator[str]:
    """Yield what stands between people on Matrix and this house."""
    if config.matrix.homeserver is None or config.matrix.user is None:
        return
    # Start-up time: the library behind it is big.
    from curtainwall.channels.matrix import Memory

    memory = Memory(marks, config.matrix.user)
    if memory.not_let_in:
        yield memory.not_let_in
    for room, left in memory.left().items():
        if many := sum(_is_open(index, session) for session in left.sessions):
            which = f"asks of {counted(many, 'session')} are not shown there; invite `{config.matrix.user}` again, or answer them elsewhere"
            yield f"we are no longer in `{room}` ({left.why}): {which}"


def _is_open(index: Index, session: SessionId) -> bool:
    rows = index.sessions(SessionQuery(prefix=session, limit=1))
    return bool(rows) and rows[0].status != "closed"
