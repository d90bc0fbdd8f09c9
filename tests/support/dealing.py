"""The order of the tests for workers that steal from each other: everyone begins with what takes long, and ends with what does not."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")


def dealt(tests: Sequence[T], workers: int, module_of: Callable[[T], str], takes_long: Callable[[T], bool]) -> list[T]:
    """Return the tests so that each worker's share, a piece of the list, begins with long ones of its own; modules stay together."""
    shares: list[list[T]] = [[] for _ in range(workers)]
    for number, (_, module) in enumerate(groupby(filter(takes_long, tests), module_of)):
        shares[number % workers].extend(module)
    short, left = [test for test in tests if not takes_long(test)], len(tests)
    for number, share in enumerate(shares):
        room = max(left // (workers - number) - len(share), 0)
        share.extend(short[:room])
        del short[:room]
        left -= len(share)
    return [test for share in shares for test in share]
