"""The head of a SKILL.md, as people write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.tools.skills import NoHead, split_front_matter

BODY = "# Do it\n\ntext\n"


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("name: a\ndescription: what it does", {"name": "a", "description": "what it does"}),
        ('name: "a"\ndescription: "it\'s \\"so\\""', {"name": "a", "description": 'it\'s "so"'}),
        ("name: 'it''s'", {"name": "it's"}),
        ("description: >\n  one\n  two\nname: a", {"description": "one two", "name": "a"}),
        ("description: |-\n  one\n\n  two", {"description": "one two"}),
        ("description: one\n  two", {"description": "one two"}),
        ("# a comment\nname: a\nname: b", {"name": "a"}),
        ("name: a\nmetadata:\n  author: ann\nallowed-tools: [x]", {"name": "a", "metadata": "author: ann", "allowed-tools": "[x]"}),
        ("description: a: b", {"description": "a: b"}),
        ("", {}),
    ],
)
def test_texts_of_the_head_are_read_in_every_usual_form(head: str, told: dict[str, str]) -> None:
    assert split_front_matter(f"---\n{head}\n---\n\n{BODY}") == (told, BODY)


def test_other_line_ends_and_a_byte_order_mark_are_passed_over() -> None:
    assert split_front_matter("\ufeff---\r\nname: a\r\n---\r\nbody") == ({"name": "a"}, "body")


@pytest.mark.parametrize("text", ["", "name: a", "# Skill", "---\nname: a\n", "---\n" + "x: y\n" * 500 + "---\n"])
def test_without_a_head_it_is_no_skill(text: str) -> None:
    with pytest.raises(NoHead):
        split_front_matter(text)


@given(st.text(max_size=300))
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    try:
        head, _ = split_front_matter(f"---\n{text}\n---\n")
    except NoHead:
        return
    assert all(isinstance(value, str) for value in head.values())
