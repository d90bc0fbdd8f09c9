"""A file that grows, as `tail` reads it: whole lines alone, from any place on, forwards and back."""

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

_STEP = 64 * 1024


def has_reader(stream: TextIO) -> bool:
    """Tell whether whoever reads what is written to a stream may be there still; of a pipe that is closed at the other end, it is known."""
    try:
        looks = select.poll()
        looks.register(stream.fileno(), 0)
    except (OSError, ValueError):
        # It has no descriptor, or none that can be looked at.
        return True
    return not any(events & (select.POLLERR | select.POLLHUP) for _, events in looks.poll(0))


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the last whole lines of a file, and where they end."""
    try:
        with path.open("rb") as file:
            start = size = file.seek(0, 2)
            held = b""
            while start and held.count(b"\n") <= count:
                step = min(_STEP, start)
                start -= step
                file.seek(start)
                held = file.read(step) + held
    except FileNotFoundError:
        return [], 0
    whole = held[: held.rfind(b"\n") + 1]
    end = size - (len(held) - len(whole))
    lines = whole.decode(errors="replace").split("\n")[:-1]
    return lines[len(lines) - min(count, len(lines)) :], end


def lines_backwards(path: Path, is_wanted: Callable[[bytes], bool]) -> Iterator[str]:
    """Go back through the whole lines of a file from the last one that is wanted, where none is wanted behind one that is not.

    The file is open only while a piece of it is read, so that many can be gone through side by side.
    """
    try:
        with path.open("rb") as file:
            start = _end_of_wanted(file, is_wanted)
    except FileNotFoundError:
        return
    held = b""
    while start:
        step = min(_STEP, start)
        start -= step
        try:
            with path.open("rb") as file:
                file.seek(start)
                held = file.read(step) + held
        except FileNotFoundError:
            return
        # What stands before the first line's end may have begun earlier.
        first, *lines = held[:-1].split(b"\n")
        whole = lines if start else [first, *lines]
        for line in reversed(whole):
            yield line.decode(errors="replace")
        held = first + b"\n"


def _end_of_wanted(file: BinaryIO, is_wanted: Callable[[bytes], bool]) -> int:
    """Return where the wanted lines end: every line that begins before `low` is wanted, and none from `high` on."""
    low, high = 0, file.seek(0, 2)
    while low < high:
        middle = (low + high) // 2
        file.seek(max(middle - 1, 0))
        if middle:
            file.readline()
        start = file.tell()
        line = file.readline()
        if start < high and line.endswith(b"\n") and is_wanted(line):
            low = file.tell()
        else:
            high = middle
    return low


def lines_as_they_come(path: Path, after: int, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[str]:
    """Go on with the lines that are written after a place, for as long as somebody wants them, which is looked at once a second."""
    import watchfiles

    for _ in watchfiles.watch(path.parent, step=20, debounce=50, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=True):
        if not is_wanted():
            return
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                after = after if after <= size else 0
                file.seek(after)
                held = file.read()
        except FileNotFoundError:
            continue
        whole = held[: held.rfind(b"\n") + 1]
        after += len(whole)
        yield from whole.decode(errors="replace").split("\n")[:-1]
