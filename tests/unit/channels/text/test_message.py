"""The agent's text comes up to three times and is shown once."""

from hypothesis import given
from hypothesis import strategies as st

from curtainwall.channels.conversation import StreamedMessage
from tests.support.covers import covers

WORDS = st.lists(st.text("ab \n", min_size=1, max_size=5), max_size=8)


def shown(saying: StreamedMessage) -> str:
    return saying.take(len(saying.tail))


@covers("terminal.text-once")
@given(WORDS, st.data())
def test_live_text_pieces_and_the_whole_are_shown_once(words: list[str], data: st.DataObject) -> None:
    saying, whole, seen = StreamedMessage(), "".join(words), ""
    logged = 0
    for count, word in enumerate(words, start=1):
        saying.add_live(word)
        seen += shown(saying)
        if data.draw(st.booleans()):
            text = "".join(words[:count])
            saying.logged(text[logged:])
            logged = len(text)
            seen += shown(saying)
    assert seen + saying.spoke(whole) == whole
    assert saying.tail == ""


@given(WORDS)
def test_without_live_text_the_log_is_enough(words: list[str]) -> None:
    saying, seen = StreamedMessage(), ""
    for word in words:
        saying.logged(word)
        seen += shown(saying)
    assert seen + saying.spoke("".join(words)) == "".join(words)


@given(WORDS, st.integers(0, 8))
def test_live_text_that_comes_after_the_whole_message_is_not_shown_again(words: list[str], late: int) -> None:
    saying = StreamedMessage()
    seen = ""
    for word in words[:late]:
        saying.add_live(word)
        seen += shown(saying)
    seen += saying.spoke("".join(words))
    for word in words[late:]:
        saying.add_live(word)
    assert (seen, saying.tail) == ("".join(words), "")


def test_live_text_that_runs_ahead_belongs_to_the_next_message() -> None:
    saying = StreamedMessage()
    saying.add_live("one")
    saying.add_live("two")
    assert saying.take(3) == "one"
    assert saying.spoke("one") == ""
    assert saying.tail == "two"
    assert saying.spoke("two, and more") == "two, and more"


def test_the_log_has_the_last_word() -> None:
    saying = StreamedMessage()
    saying.add_live("something else")
    assert saying.take(9) == "something"
    assert saying.spoke("the truth") == "the truth"


def test_text_that_breaks_off_is_kept() -> None:
    saying = StreamedMessage()
    saying.add_live("half a sen")
    assert saying.take(5) == "half "
    assert saying.broke_off() == "a sen"
    assert saying.tail == ""
