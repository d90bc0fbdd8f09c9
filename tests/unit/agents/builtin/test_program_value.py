"""A program's value, told by the program itself: which expression is its last, and that nothing else of it changes."""

import pytest

from curtainwall.agents.builtin.program_output import with_value_printed
from tests.support.covers import covers


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("1 + 1", "1 + 1"),
        ("x = 1\nx", "x"),
        ("x = 1\nx\n# a note\n\n", "x\n# a note\n\n"),
        ("await f(\n    1,\n)", "await f(\n    1,\n)"),
        ("f('''\na\nb''')", "f('''\na\nb''')"),
        ("if a:\n    b\na, b", "a, b"),
        ("re.findall('\\d', x)", "re.findall('\\d', x)"),
        ("[1for i in x]", "[1for i in x]"),
    ],
)
def test_the_last_expression_is_handed_over_in_its_own_line(code: str, last: str) -> None:
    told = with_value_printed(code)
    assert told == f"{code[: -len(last)]}_told(({last}\n))\nNone\n"


def test_what_python_finds_odd_in_a_program_is_no_word_to_its_user(recwarn: pytest.WarningsRecorder) -> None:
    assert with_value_printed("'\\d', [1for i in x]").startswith("_told(")
    assert list(recwarn) == []


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "for i in x:\n    i",
        "x = 1 + \\\n2",
        "x = f(\n1\n)",
        "a = 1; a",
        "# nothing",
        "",
        "if",
        "(" * 3_000,
        "x" * 5_000,
    ],
)
@covers("agents.values-are-told-by-the-program")
def test_without_a_last_expression_nothing_of_the_program_changes_and_nothing_crosses(code: str) -> None:
    assert with_value_printed(code) == f"{code}\nNone\n"


def test_an_expression_that_may_be_too_deep_for_the_parser_is_told_or_left_as_it_is() -> None:
    deep = "-" * 3_990 + "1"
    assert with_value_printed(deep) in (f"{deep}\nNone\n", f"_told(({deep}\n))\nNone\n")
