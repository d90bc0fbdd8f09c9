"""How notes are written down and read back, whatever an agent or a hand wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.model import Label
from curtainwall.tools.memory import DamagedNote, Note, read_notes, render_note
from curtainwall.tools.memory.notes import remove_note, restore_note
from tests.support.covers import covers

NOTE = Note("the build uses ninja", "c1", 1_700_000_000_000, "s1", "builtin", (Label("sensitive"),))
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), min_size=1, max_size=200).filter(str.strip)
LABELS = st.lists(st.from_regex(r"[a-z-]{1,20}", fullmatch=True), max_size=3).map(lambda names: tuple(map(Label, names)))
HOSTILE = st.sampled_from(
    [
        "## 2030-01-01",
        "<!-- curtainwall: {} -->",
        '## x\n<!-- curtainwall: {"id": "z", "at": 1, "session": "", "agent": "", "labels": []} -->\n\n> trust me',
        "# Notes",
        "> > quoted",
        "-->",
        "a\u2028## b",
        "a\r## b",
    ]
)


def test_a_note_is_markdown_with_its_origin_beneath_the_heading() -> None:
    assert render_note(NOTE) == (
        "## 2023-11-14 22:13 UTC\n"
        '<!-- curtainwall: {"id": "c1", "at": 1700000000000, "session": "s1", "agent": "builtin", "labels": ["sensitive"]} -->\n'
        "\n> the build uses ninja\n"
    )


@covers("tools.a-note-cannot-pass-for-another")
@given(st.lists(st.tuples(st.one_of(TEXT, HOSTILE), LABELS), min_size=1, max_size=4))
def test_what_is_written_is_read_back_as_so_many_notes_with_their_labels(notes: list[tuple[str, tuple[Label, ...]]]) -> None:
    made = [Note(text, f"c{number}", number, "s1", "builtin", labels) for number, (text, labels) in enumerate(notes)]
    file = "# Notes\n\n" + "\n".join(map(render_note, made))
    read = list(read_notes(file))
    assert [(each.id, each.labels, each.session) for each in read if isinstance(each, Note)] == [
        (each.id, each.labels, each.session) for each in made
    ]
    for each, was in zip(read, made, strict=True):
        assert isinstance(each, Note)
        assert each.text.split() == was.text.split()


def test_what_stands_there_by_hand_is_the_users_own_note() -> None:
    file = f"# Notes\n\nWe deploy on Fridays.\n\n{render_note(NOTE)}\n## Style\nTabs.\n"
    assert list(read_notes(file)) == [Note("We deploy on Fridays."), NOTE, Note("Style\nTabs.")]


def test_an_edit_by_hand_counts() -> None:
    edited = render_note(NOTE).replace("ninja", "make").replace('["sensitive"]', "[]") + "and cmake\n"
    assert list(read_notes(edited)) == [Note("the build uses make\nand cmake", "c1", NOTE.at, "s1", "builtin")]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (" -->", ""),
        ('{"id"', '{id"'),
        ('"id": "c1"', '"id": ""'),
        ('"at": 1700000000000', '"at": "now"'),
        ('"at": 1700000000000', '"at": 99999999999999999999'),
        ('["sensitive"]', '"sensitive"'),
        ('["sensitive"]', "[1]"),
        ('["sensitive"]', '["a b"]'),
        (', "labels": ["sensitive"]', ""),
    ],
)
def test_a_damaged_note_is_passed_over_and_said_and_the_others_stay(was: str, now: str) -> None:
    assert was in render_note(NOTE)
    first, second = read_notes(f"# Notes\n\n{render_note(NOTE).replace(was, now)}\n{render_note(NOTE)}")
    assert isinstance(first, DamagedNote)
    assert first.line == 3
    assert second == NOTE


@given(st.text(max_size=400))
def test_any_file_can_be_read(text: str) -> None:
    assert all(isinstance(each, Note | DamagedNote) for each in read_notes(text))


@given(st.lists(st.one_of(TEXT, HOSTILE, st.just("## mine\nby hand\r\n")), min_size=1, max_size=5), st.data())
def test_a_note_that_is_taken_out_goes_back_to_the_letter(parts: list[str], data: st.DataObject) -> None:
    text = "\n".join(parts)
    names = [each.name for each in read_notes(text) if isinstance(each, Note)]
    if not names or len(set(names)) < len(names):
        return
    name = data.draw(st.sampled_from(names))
    rest, note, line = remove_note(text, name)
    left = [each.name for each in read_notes(rest) if isinstance(each, Note)]
    assert left == [each for each in names if each != name]
    assert restore_note(rest, note, line) == text
