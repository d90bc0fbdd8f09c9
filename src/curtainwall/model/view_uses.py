"""Uses of a view: while a call works on one, a path of the project means what the view has there, and keeps its name."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from curtainwall.model.errors import ViewFailed
from curtainwall.model.subjects import is_beneath


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way into a mounted view: `root` is a descriptor of its directory, and `words` start a program that sees it at the project's path.

    The words are put before the program's own; `descriptors` must be passed to it under their numbers. All of them belong to the view and
    are closed when it is left. `words` change to the owner of the project where `words_as_us` do not. `directory` is where programs find
    the view that do not see our mounts, such as a container engine; empty if it is only in ours.
    """

    path: str
    root: int
    words: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()
    words_as_us: tuple[str, ...] = ()
    directory: str = ""


class ViewUse:
    """One use of a mounted view, which is not unmounted before all of its uses are closed."""

    def __init__(self, entrance: Entrance, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Take over a use that has begun; `begin` counts one more, and `end` one less."""
        self.entrance = entrance
        self._begin = begin
        self._end = end
        self._is_open = True

    def again(self) -> "ViewUse":
        """Return one more use, for work that may take longer than this one."""
        assert self._is_open
        self._begin()
        return ViewUse(self.entrance, self._begin, self._end)

    @property
    def is_open(self) -> bool:
        """Tell whether it has not ended yet."""
        return self._is_open

    def close(self) -> None:
        """End the use; calling it twice is harmless."""
        if self._is_open:
            self._is_open = False
            self._end()


_USE: ContextVar[ViewUse | None] = ContextVar("view_use", default=None)


@contextmanager
def working_in(use: ViewUse | None, *, closing: bool = True) -> Generator[None]:
    """Have everything inside the block, with the tasks and threads that it starts, work on a view; then end this use, if `closing`.

    Without a use, the block works on what is on this machine.
    """
    token = _USE.set(use)
    try:
        yield
    finally:
        _USE.reset(token)
        if use is not None and closing:
            use.close()


def view_use() -> ViewUse | None:
    """Return the use of the view that is worked on here, if any."""
    return _USE.get()


def inside_view(path: str) -> tuple[int, str] | None:
    """Return a descriptor of the view that has a real path, and the path relative to it; None if no view that is worked on has it."""
    use = _USE.get()
    if use is None or not is_beneath(path, use.entrance.path):
        return None
    if not use.is_open:
        # The number of the descriptor may mean another directory by now.
        raise ViewFailed("the view was left meanwhile")
    return use.entrance.root, path[len(use.entrance.path) + 1 :]


_DESCRIPTORS: Final = "/proc/self/fd"


def on_disk(path: str) -> str:
    """Return where this process finds what is at a real path: a path of a project whose view is worked on leads into the view.

    Nothing but the path's last name may be a link: what an absolute link in a view leads to is not in the view.
    """
    inside = inside_view(path)
    return path if inside is None else f"{_DESCRIPTORS}/{inside[0]}/{inside[1] or '.'}"
