"""The unified difference between two texts, in bounded time."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

MOST_COMPARED: Final = 2_000
_CONTEXT: Final = 3


def unified_difference(before: str, after: str, name: str, *, in_full: bool = False) -> str:
    """Return the unified difference of two texts, or a sentence if the changes are too far apart to compare.

    With `in_full` there is no such sentence: everything between the first change and the last is gone and new.
    """
    old, new = split_lines(before), split_lines(after)
    same_start = _alike(old, new)
    same_end = _alike(old[same_start:][::-1], new[same_start:][::-1])
    start, end = max(0, same_start - _CONTEXT), max(0, same_end - _CONTEXT)
    head = f"--- a{name}\n+++ b{name}\n"
    is_too_much = max(len(old), len(new)) - start - end > MOST_COMPARED
    if is_too_much and not in_full:
        gone, come = (len(lines) - same_start - same_end for lines in (old, new))
        return f"{head}(from line {same_start + 1} on, {come} lines stand where {gone} stood; too many to be shown here)\n"
    pieces = old[start : len(old) - end], new[start : len(new) - end]
    hunks = _one_hunk(*pieces, start, (same_start - start, same_end - end)) if is_too_much else _hunks(*pieces, start)
    return head + "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of lines in the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _hunks(old: Sequence[str], new: Sequence[str], above: int) -> Iterator[str]:
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        yield f"@@ -{_range(old_start + above, old_end + above)} +{_range(new_start + above, new_end + above)} @@\n"
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
            else:
                yield from (f"-{line}" for line in old[old_from:old_to])
                yield from (f"+{line}" for line in new[new_from:new_to])


def _one_hunk(old: Sequence[str], new: Sequence[str], above: int, same: tuple[int, int]) -> Iterator[str]:
    """Yield one hunk with some lines of context that are the same at the start and at the end."""
    first, last = same
    yield f"@@ -{_range(above, above + len(old))} +{_range(above, above + len(new))} @@\n"
    yield from (f" {line}" for line in old[:first])
    yield from (f"-{line}" for line in old[first : len(old) - last])
    yield from (f"+{line}" for line in new[first : len(new) - last])
    yield from (f" {line}" for line in old[len(old) - last :])


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"
