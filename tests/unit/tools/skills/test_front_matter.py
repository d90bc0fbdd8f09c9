"""The head of a SKILL.md, as people write it, and as someone would who wants us to fail."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.tools.skills import Unusable, split_front_matter

BODY = "# Do it\n\ntext\n"


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("name: a\ndescription: what it does", {"name": "a", "description": "what it does"}),
        ('name: "a"\ndescription: "it\'s \\"so\\""', {"name": "a", "description": 'it\'s "so"'}),
        ("name: 'it''s'", {"name": "it's"}),
        ("description: >\n  one\n  two\nname: a", {"description": "one two", "name": "a"}),
        ("description: |-\n  one\n\n  two", {"description": "one two"}),
        ("description: one\n  two", {"description": "one two"}),
        ("description: see https://example.org/a#b", {"description": "see https://example.org/a#b"}),
        ("# a comment\nname: a # and another", {"name": "a"}),
        ("{name: a, description: b}", {"name": "a", "description": "b"}),
        ("name: a\nmetadata:\n  author: ann\nallowed-tools: [x, y]\nlicense: MIT", {"name": "a"}),
        ("name: a\nhooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - type: command\n", {"name": "a"}),
        # Nothing but text: YAML would make a truth value, a number and nothing of these.
        ("name: no\ndescription: 1.10", {"name": "no", "description": "1.10"}),
        ("name: ~\ndescription:", {"name": "~", "description": ""}),
        ("description: äöü 日本 🎉", {"description": "äöü 日本 🎉"}),
        ("description: 'a\u0085b'", {"description": "a b"}),
        ("<<: {name: b}\nname: a", {"name": "a"}),
        ("", {}),
        ("# only a comment", {}),
    ],
)
def test_the_fields_are_read_in_every_usual_form(head: str, fields: dict[str, str]) -> None:
    assert split_front_matter(f"---\n{head}\n---\n\n{BODY}") == (fields, BODY)


def test_other_line_ends_and_a_byte_order_mark_are_passed_over() -> None:
    assert split_front_matter("\ufeff---\r\nname: a\r\n---\r\nbody") == ({"name": "a"}, "body")


@pytest.mark.parametrize("text", ["", "name: a", "# Skill", "---\nname: a\n", "--- \n...\n"])
def test_without_a_head_it_is_no_skill(text: str) -> None:
    with pytest.raises(Unusable, match=r"does not begin|has no end"):
        split_front_matter(text)


LAUGHS = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True))

HOSTILE: dict[str, tuple[str, str]] = {
    "a colon in a plain text": (
        "name: a\ndescription: Use when: always",
        "line 3: mapping values are not allowed here; put the text in quotes",
    ),
    "a key twice": ("name: a\ndescription: b\nname: c", "line 4: `name` is there twice"),
    "an unknown key twice": ("x: a\n'x': b", "line 3: `x` is there twice"),
    "a very long key twice": (f"{'x' * 900}: a\n{'x' * 900}: b", "line 3: `xxx"),
    "a list": ("- name: a", "line 2: expected `key: value`"),
    "a text": ("name", "line 2: expected `key: value`"),
    "a list as a name": ("name: [a]", "line 2: `name` must be a text"),
    "a map as a description": ("name: a\ndescription:\n  en: b", "line 4: `description` must be a text"),
    "a list as a key": ("? [a]\n: b", "line 2: a key must be a word"),
    "an anchor": ("name: &a b", "line 2: anchors and aliases"),
    "an alias": ("name: a\ndescription: *a", "line 3: anchors and aliases"),
    "an alias as a key": ("*a : b", "line 2: anchors and aliases"),
    "an alias to what holds it": ("x: &x [*x]", "line 2: anchors and aliases"),
    "a billion laughs": (LAUGHS, "line 2: anchors and aliases"),
    "a merge": ("x: 1\n<<: *x", "line 3: anchors and aliases"),
    "a tag that makes an object": ("name: !!python/object/apply:os.system [id]", "line 2: tags are not allowed"),
    "a tag for a text": ("name: !!str a", "line 2: tags are not allowed"),
    "a tag deep inside": ("x:\n  - y:\n    - !z a", "line 4: tags are not allowed"),
    "a tag without a name": ("name: ! a", "line 2: tags are not allowed"),
    "a tag of an unknown handle": (f"name: !{'h' * 3000}!a b", "line 2: "),
    "two documents": ("name: a\n...\n--- {name: b}", "line 4: "),
    "a directive alone": ("%YAML 1.1\nname: a", "line 3: "),
    "an escape beyond Unicode": ('name: "\\UFFFFFFFF"', "out of range"),
    "an escape just beyond Unicode": ('name: "\\U00110000"', "out of range"),
    "half of a surrogate pair": ('description: "\\uD800"', "out of range"),
    "an unknown escape": ('name: "\\q"', "line 2: found unknown escape character"),
    "a quote without an end": ('x: y\nname: "a', "line 3: found unexpected end of stream"),
    "a tab for an indent": ("description: >\n\tone", "line 3: "),
    "a control character": ("name: a\nx: \x1b[31m", "line 3: a character that YAML does not allow"),
    "a NUL": ("name: \0", "line 2: a character that YAML does not allow"),
    "lists in lists": ("x: " + "[" * 4_000, "line 2: nested deeper"),
    "maps in maps": ("x: " + "{a: " * 1_000, "line 2: nested deeper"),
    "maps in maps, by indents": ("\n".join(" " * depth + "x:" for depth in range(60)), "nested deeper"),
    "questions in questions": ("? " * 2_000, "line 2: nested deeper"),
    "dashes in dashes": ("- " * 2_000, "line 2: nested deeper"),
    "too many fields": ("\n".join(f"k{number}: v" for number in range(300)), "too many fields"),
    "too long a head": ("x: y\n" * 1_000, "longer than 4096 characters"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_plain_head_is_refused_with_its_line(case: str) -> None:
    head, why = HOSTILE[case]
    with pytest.raises(Unusable) as refusal:
        split_front_matter(f"---\n{head}\n---\n{BODY}")
    assert why in str(refusal.value)
    assert len(str(refusal.value)) < 200, "a stranger's words are not repeated at length"


SLOW = {
    "many short keys": "\n".join(f"k{number}: v" for number in range(500)),
    "one list": f"x: [{'a,' * 2_000}]",
    "short lists": f"x: [{'[],' * 1_300}]",
    "lists as keys": f"x: {{{'[[[[]]]]: a, ' * 300}}}",
    "words": "x: " + "a " * 2_000,
    "quotes": "x: " + "''" * 2_000,
    "comments": "#\n" * 2_000,
    "blank lines in a block": "x: |\n" + "\n" * 4_000,
    "a block of many lines": "x: |\n" + " a\n" * 1_300,
    "escapes": 'x: "' + "\\x41" * 1_000 + '"',
    "open lists on one line": "x: " + "[" * 4_000,
    "open lists and maps": "x: " + "[{" * 2_000,
    "closed lists": "[]" * 2_000,
    "colons": ":" * 4_000,
    "question marks": "?\n" * 2_000,
}


@pytest.mark.parametrize("case", SLOW)
def test_no_head_takes_long(case: str) -> None:
    """A workspace may have 192 of them, and they are read before each turn."""
    head = SLOW[case]
    assert len(head) <= 4_096
    began = time.process_time()
    with contextlib.suppress(Unusable):
        split_front_matter(f"---\n{head}\n---\n")
    assert time.process_time() - began < 0.5


PIECES = (
    *"abc:-?,[]{}#&*!|>'\"%@` \n\t\\~.=",
    *("\n  ", ": ", "- ", "? ", "name: ", "description: ", "---", "...", "<<: ", "\\x", "\\u12", "\\U0011", "!!", "%TAG ", "%YAML "),
    *("\x85", "\u2028", "\ufeff", "\0", "é"),
)


@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=120).map("".join)))
def test_every_head_is_read_or_refused(head: str) -> None:
    with contextlib.suppress(Unusable):
        fields, _ = split_front_matter(f"---\n{head}\n---\n")
        assert fields.keys() <= {"name", "description"}
        for value in fields.values():
            assert value == " ".join(value.split())
            value.encode()
