"""Lines of a growing file, gone through backwards."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.host.files.tail import lines_backwards

NUMBERS = st.lists(st.integers(0, 10**9), max_size=60).map(sorted)


def everything(line: bytes) -> bool:
    return True


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert list(lines_backwards(tmp_path / "none", everything)) == []


@pytest.mark.parametrize("size", [1, 30_000, 70_000, 200_000])
def test_lines_of_any_length_come_whole_and_last_first_and_a_torn_one_does_not(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    lines = [f"{number} {'ä' * size}" for number in range(7)]
    path.write_text("\n".join(lines) + "\nto")
    assert list(lines_backwards(path, everything)) == lines[::-1]


@given(numbers=NUMBERS, upto=st.integers(-1, 10**9 + 1))
def test_it_begins_at_the_last_line_that_is_wanted(tmp_path_factory: pytest.TempPathFactory, numbers: list[int], upto: int) -> None:
    path = tmp_path_factory.mktemp("wanted") / "file"
    path.write_text("".join(f"{number}\n" for number in numbers))
    found = lines_backwards(path, lambda line: int(line) <= upto)
    assert list(found) == [str(number) for number in reversed(numbers) if number <= upto]
