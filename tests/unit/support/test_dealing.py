"""Tests are dealt to workers, the long ones first."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.dealing import dealt

MODULES = st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=12)


def module_of(test: str) -> str:
    return test.partition("::")[0]


def takes_long(test: str) -> bool:
    return test.startswith("long")


def suite_of(modules: list[tuple[bool, int]]) -> list[str]:
    return [f"{'long' if is_long else 'short'}-{number}::{test}" for number, (is_long, size) in enumerate(modules) for test in range(size)]


def shares_of(tests: list[str], workers: int) -> list[list[str]]:
    """Return what each worker gets at the beginning, as xdist divides a list among those who steal."""
    shares = []
    for left in range(workers, 0, -1):
        shares.append(tests[: len(tests) // left])
        tests = tests[len(tests) // left :]
    return shares


def test_every_worker_begins_with_long_tests_and_has_short_ones_to_be_stolen() -> None:
    tests = suite_of([(False, 10), (True, 2), (True, 3), (False, 20), (True, 1)])
    shares = shares_of(dealt(tests, 3, module_of, takes_long), 3)
    assert [[test for test in share if takes_long(test)] for share in shares] == [
        ["long-1::0", "long-1::1"],
        ["long-2::0", "long-2::1", "long-2::2"],
        ["long-4::0"],
    ]
    assert all(takes_long(share[0]) and not takes_long(share[-1]) for share in shares)


@given(MODULES, st.integers(1, 5))
def test_none_is_lost_or_doubled_and_a_module_of_long_ones_stays_together_in_its_order(
    modules: list[tuple[bool, int]], workers: int
) -> None:
    tests = suite_of(modules)
    found = dealt(tests, workers, module_of, takes_long)
    assert sorted(found) == sorted(tests)
    for module in {module_of(test) for test in tests if takes_long(test)}:
        own = [test for test in tests if module_of(test) == module]
        at = found.index(own[0])
        assert found[at : at + len(own)] == own


def test_one_worker_has_them_all() -> None:
    assert dealt(["short::1", "long::1", "short::2"], 1, module_of, takes_long) == ["long::1", "short::1", "short::2"]
