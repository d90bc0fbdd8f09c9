"""A program as the checker is given it never runs there, and complaints point at the program's own lines and columns."""

import ast

import pytest

from curtainwall.agents.builtin.checkers import as_function, relocate_complaints

TRICKS = [
    "x = 1\nprint(x)",
    "",
    "\n\n\n",
    'text = """\nnot indented\n"""\nprint(text)',
    "# only words",
    "x = 1 + \\\n2",
    "if x:\n\ty = 1\n\n\tz = 2",
    "x = 1\r\ny = 2\r\n",
    "x = '\u2028'\ny = 2",
    "def f():\n    return 1\nf()",
    "return\nprint('after')",
]


@pytest.mark.parametrize("code", TRICKS)
def test_a_program_is_checked_as_the_body_of_a_function_that_nobody_calls(code: str) -> None:
    [only] = ast.parse(as_function(code)).body
    assert isinstance(only, ast.AsyncFunctionDef)


def test_a_program_that_is_no_python_stays_inside_as_well() -> None:
    for code in ("def (", ")\nprint(1)", '"""', "    x = 1\ny = 2", "x = (\n"):
        lines = as_function(code).splitlines()
        assert lines[0] == "async def _program():"
        assert all(line.startswith("    ") or not line.strip() for line in lines[1:])


def test_a_complaint_names_the_line_and_column_of_the_program() -> None:
    code = "a = 1\nb = missing"
    line, column = next((n, text.index("missing") + 1) for n, text in enumerate(as_function(code).splitlines(), 1) if "missing" in text)
    told = relocate_complaints(f"main.py:{line}:{column}: error[unresolved-reference] Name `missing` used when not defined\n")
    assert told == "line 2, column 5: Name `missing` used when not defined [unresolved-reference]"


def test_a_complaint_about_where_the_program_ends_has_a_place_in_it() -> None:
    told = relocate_complaints("main.py:4:1: error[invalid-syntax] unexpected EOF while parsing")
    assert told == "line 2, column 1: unexpected EOF while parsing [invalid-syntax]"


def test_of_many_complaints_the_first_are_told_and_the_rest_counted() -> None:
    told = relocate_complaints("".join(f"main.py:{n + 3}:5: error[x] wrong {n}\n" for n in range(25))).splitlines()
    assert len(told) == 11
    assert told[0] == "line 1, column 1: wrong 0 [x]"
    assert told[-1] == "… and 15 more"


def test_what_has_another_form_is_told_as_it_is() -> None:
    assert relocate_complaints("  the checker stumbled\n") == "the checker stumbled"
