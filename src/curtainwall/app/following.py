"""A file that grows, as `tail` reads it: whole lines alone, from any place on."""

from collections.abc import Iterator
from pathlib import Path

_STEP = 64 * 1024


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


def lines_as_they_come(path: Path, after: int) -> Iterator[str]:
    """Go on for ever with the lines that are written after a place."""
    import watchfiles

    for _ in watchfiles.watch(path.parent, step=20, debounce=50, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=True):
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
