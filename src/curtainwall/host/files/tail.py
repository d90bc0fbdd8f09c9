"""Reads a growing file as `tail` does: only whole lines, from any position, forwards and backwards."""

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

_STEP = 64 * 1024


def has_reader(stream: TextIO) -> bool:
    """Tell whether a stream may still have a reader; false only for a pipe that is closed at the other end."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):
        # It has no descriptor, or none that can be polled.
        return True
    return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the last whole lines of a file, and the offset where they end."""
    try:
        with path.open("rb") as file:
            start = size = file.seek(0, 2)
            data = b""
            while start and data.count(b"\n") <= count:
                step = min(_STEP, start)
                start -= step
                file.seek(start)
                data = file.read(step) + data
    except FileNotFoundError:
        return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    end = size - (len(data) - len(whole))
    lines = whole.decode(errors="replace").split("\n")[:-1]
    return lines[len(lines) - min(count, len(lines)) :], end


def lines_backwards(path: Path, is_wanted: Callable[[bytes], bool]) -> Iterator[str]:
    """Yield the whole lines of a file backwards, from the last wanted one. All wanted lines must come before all others.

    The file is open only while a piece of it is read, so that many files can be read side by side.
    """
    try:
        with path.open("rb") as file:
            start = _end_of_wanted(file, is_wanted)
    except FileNotFoundError:
        return
    data = b""
    while start:
        step = min(_STEP, start)
        start -= step
        try:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read(step) + data
        except FileNotFoundError:
            return
        # The first line may have begun before this piece.
        first, *lines = data[:-1].split(b"\n")
        whole = lines if start else [first, *lines]
        for line in reversed(whole):
            yield line.decode(errors="replace")
        data = first + b"\n"


def _end_of_wanted(file: BinaryIO, is_wanted: Callable[[bytes], bool]) -> int:
    """Return the offset where the wanted lines end: every line that begins before `low` is wanted, and none from `high` on."""
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
    """Yield the lines that are written after an offset for as long as they are wanted, which is checked at least once a second."""
    import watchfiles

    for _ in watchfiles.watch(path.parent, step=20, debounce=50, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=True):
        if not is_wanted():
            return
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                after = after if after <= size else 0
                file.seek(after)
                data = file.read()
        except FileNotFoundError:
            continue
        whole = data[: data.rfind(b"\n") + 1]
        after += len(whole)
        yield from whole.decode(errors="replace").split("\n")[:-1]
