"""Cards: tool, both forms of the arguments, rules and labels, and a difference where one can be made."""

from typing import Any

import pytest

from curtainwall.channels.asks.cards import ask_in_a_line, call_in_words, card_lines, says_more, whole_card
from curtainwall.channels.web.render.ask_view import ask_view
from curtainwall.model import ApprovalId, CallId, ChangeCard, PendingAsk, RuleId, ShownFile, Subject, ToolEffect
from tests.support.covers import covers
from tests.support.given import NOW, fetch, subject, write
from tests.support.stores import NOON


def ask(
    what: Subject,
    shown: str = "tool: x\nwants write-path /a (rule-1)\nbecause it asks\nlabel sensitive was set by call c9 (/f)\nas written:\n  p: 1",
) -> PendingAsk:
    return PendingAsk(
        approval=ApprovalId("abc123"),
        call=CallId("c1"),
        subject=what,
        because=(RuleId("rule-1"),),
        shown=shown,
        asked=NOW,
        deadline=NOON,
        shared_by=1,
    )


def lines(what: Subject, **more: Any) -> list[str]:
    return [line.text for line in card_lines(ask(what, **more))]


def edit(*edits: dict[str, str]) -> Subject:
    made = subject("filesystem.edit_file", ToolEffect.MODIFY, path="a")
    arguments: dict[str, Any] = {"path": "a", "edits": list(edits)}
    return made.model_copy(update={"raw": arguments, "canonical": {**arguments, "path": "/srv/own/a"}})


@covers("terminal.card")
def test_a_card_has_what_was_shown_and_both_forms_of_the_arguments() -> None:
    told = lines(edit({"oldText": "a\nb\n", "newText": "a\nc\n"}))
    assert told[:4] == ["tool: x", "wants write-path /a (rule-1)", "because it asks", "label sensitive was set by call c9 (/f)"]
    assert '  path: "a"' in told
    assert "would run as (1 more as written):" in told
    assert '  path: "/srv/own/a"' in told


@covers("session.cards-are-in-order")
def test_letters_from_right_to_left_are_escaped_where_they_would_move_others() -> None:
    call = subject("shell.run", ToolEffect.MODIFY, command="cat a \u05d0 1\necho \u05d1 2").model_copy(update={"canonical": {}})
    told = lines(call, shown="tool: x\nwants run-command cat a \u05d0 1 (rule-1)\nas written:\n")
    assert "wants run-command cat a \\u05d0 1 (rule-1)" in told, "also where it was asked before we escaped them"
    assert {"     cat a \\u05d0 1", "     echo \\u05d1 2"} <= {*told}
    assert call_in_words(call) == "shell.run cat a \\u05d0 1 echo \\u05d1 2"
    assert not any(letter in line for letter in "\u05d0\u05d1" for line in told)


@covers("session.cards-are-in-order")
def test_a_text_from_right_to_left_stays_readable_and_says_its_order_where_it_is_mixed() -> None:
    told = lines(write("/a", "\u05e9\u05dc\u05d5\u05dd\nif x: \u05d0 = 1\n"))
    assert told[-3:] == [
        "+\u05e9\u05dc\u05d5\u05dd",
        "+if x: \u05d0 = 1",
        "…[the line above in the order of its letters: if x: \\u05d0 = 1]…",
    ]


@covers("session.cards-are-in-order")
def test_a_call_in_a_line_shows_the_host_that_is_used_and_not_one_that_looks_like_another() -> None:
    call = fetch("https://xn--ggle-55da.com").model_copy(
        update={"raw": {"url": "https://g\u043e\u043egle.com"}, "canonical": {"url": "https://xn--ggle-55da.com"}}
    )
    assert call_in_words(call) == "fetch.get https://xn--ggle-55da.com"
    told = lines(call)
    assert '  url: "https://g\u043e\u043egle.com"' in told
    assert '  url: "https://xn--ggle-55da.com"' in told


@covers("terminal.card-diff")
def test_an_edit_is_shown_as_a_difference() -> None:
    made = card_lines(ask(edit({"oldText": "a\nb\n", "newText": "a\nc\n"})))
    assert [(line.kind, line.text) for line in made][-4:] == [("place", "@@"), ("argument", " a"), ("removed", "-b"), ("added", "+c")]


@covers("terminal.card-diff")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("if x:\n    go()", "if x:\n\tgo()", ["-    go()", "+\\tgo()"]),
        ("a", "a  ", ["-a", "+a\\x20\\x20"]),
        ("a\nb\n", "a\r\nb\r\n", ["-a", "-b", "+a\\r", "+b\\r"]),
        ("a\nb\n", "a\nc", ["-b", "-", "+c"]),
        ("a\nb\n", "a\nb", ["-"]),
        ("caf\u00e9", "cafe\u0301", ["-caf\\xe9", "+cafe\\u0301"]),
        ("\u2764", "\u2764\u200d", ["-\\u2764", "+\\u2764\\u200d"]),
        ("a b", "a\u00a0b", ["-a b", "+a\\xa0b"]),
        ("a\r\nb\r\n", "a\r\nc\r\n", ["-b", "+c"]),
        ("a", "b\r\n", ["-a", "+b\\r", "+"]),
    ],
)
def test_an_edit_of_what_nobody_sees_is_spelt_out(old: str, new: str, shown: list[str]) -> None:
    told = lines(edit({"oldText": old, "newText": new}))
    assert [line for line in told if line[:1] in "+-"] == shown


@covers("terminal.card-diff")
def test_blanks_of_a_long_edit_are_spelt_out_as_well() -> None:
    old = "\n".join("é" * 100 for _ in range(2_000))
    told = lines(edit({"oldText": f"a\n{old}", "newText": f"a \n{old}x"}))
    assert "-a" in told
    assert "+a\\x20" in [line.text for line in whole_card(ask(edit({"oldText": f"a\n{old}", "newText": f"a \n{old}x"})))]


@covers("terminal.card-diff")
def test_a_new_file_is_shown_and_cuts_are_stated() -> None:
    assert lines(write("/a", "one\ntwo\n"))[-3:] == ["the whole new content, 2 lines:", "+one", "+two"]
    told = lines(write("/a", "".join(f"{n}\n" for n in range(1_000))))
    assert "the whole new content, 1000 lines, of which 940 are not shown here:" in told
    assert "…[940 lines are not shown here; `/pending abc123` shows all of them]…" in told
    assert told[-1] == "+999"
    assert len(told) < 80


@covers("terminal.card-diff")
def test_long_edits_are_shown_as_what_goes_and_what_comes() -> None:
    told = lines(edit({"oldText": "".join(f"a{n}\n" for n in range(201)), "newText": "a0\nb\n"}))
    assert told[-1] == "+b"
    assert "-a0" in told
    assert "+a0" in told


def test_edits_that_are_not_what_they_should_be_are_shown_as_arguments() -> None:
    odd = edit().model_copy(update={"canonical": {"path": "a", "edits": ["x"]}, "raw": {"path": "a", "edits": ["x"]}})
    assert '  edits: ["x"]' in lines(odd)


def test_what_is_shown_below_is_counted_as_it_will_be_written() -> None:
    assert "  content: (shown below, 5 characters)" in lines(write("/a", "hello"))
    assert "  content: (shown below, 1 character)" in lines(write("/a", "\n"))


def test_an_empty_file_and_an_empty_edit_make_no_trouble() -> None:
    assert lines(write("/a", ""))[-1] == "the whole new content, 0 lines:"
    assert lines(edit())[-1] == "what would change:"


@covers("terminal.inert")
def test_nothing_an_agent_wrote_adds_a_line_or_an_escape_to_a_card() -> None:
    evil = "\x1b[2J\nas written:\n\rapproved by ann\u202e"
    for what in (write("/a", evil), edit({"oldText": evil, "newText": evil + "x"}), fetch("a.example", f"/{evil}")):
        told = lines(what)
        assert all(line.isprintable() for line in told)
        assert told.count("as written:") <= 2
        assert not any(line.startswith("approved") for line in told)


def test_a_long_argument_is_cut_and_says_so() -> None:
    told = lines(fetch("a.example", "/" + "x" * 5_000))
    assert any("characters cut" in line for line in told)
    assert max(map(len, told)) < 400


@covers("terminal.card-whole")
def test_what_a_card_leaves_out_is_on_the_whole_card() -> None:
    def whole(what: Subject) -> list[str]:
        return [line.text for line in whole_card(ask(what))]

    content = "".join(f"{n}\n" for n in range(1_000))
    assert [line for line in whole(write("/a", content)) if line.startswith("+")] == [f"+{n}" for n in range(1_000)]
    url = "/" + "x" * 5_000
    assert any(line.endswith(f'{url}"') for line in whole(fetch("a.example", url)))
    assert whole(write("/a", "short\n")) == ask(write("/a", "short\n")).shown.split("\n"), "nothing is said twice"


@covers("terminal.card")
def test_a_text_of_several_lines_is_shown_in_lines() -> None:
    told = lines(subject("shell.run", ToolEffect.MODIFY, command="python3 - <<END\nimport os\n\nos.remove('x')\nEND\n"))
    start = told.index("  command, 5 lines:")
    assert told[start + 1 :] == ["     python3 - <<END", "     import os", "     ", "     os.remove('x')", "     END"]


@covers("web.card-shows-what-is-asked")
def test_arguments_say_more_where_neither_the_resources_nor_a_text_show_them() -> None:
    assert not says_more(write("/a", "hello"))
    assert not says_more(edit({"oldText": "a", "newText": "b"}).model_copy(update={"resources": write("/srv/own/a").resources}))
    assert says_more(fetch("a.example", "/?secret"))


def test_a_call_is_told_in_one_line() -> None:
    assert call_in_words(write("/srv/a\nb", "x")) == "filesystem.write_file /srv/a b"
    assert ask_in_a_line(ask(write("/a"))).startswith("abc123 filesystem.write_file wants write-path /a")


SHOWN_CHANGES = """tool: session.apply_changes
changes: 2 files (1 added, 1 modified) in /srv/own
because it asks
file: modified, +1 -1  a.py
file: added, +1 -0  difference of b
answer: accepts all of it
difference of a.py:
      1     1   def add(a, b):
      2       -     return a - b
            2 +     return a + b
…[3 more lines of a.py are not shown]… `curtainwall sessions diff ID PATH` shows them
difference of "difference of b":
            1 + difference of c:"""


@covers("web.change-sets-are-shown-as-differences")
def test_the_differences_of_a_change_set_are_parts_of_their_own_with_every_line() -> None:
    changes = ChangeCard(summary="2 files", files=(ShownFile(path="a.py", words="modified"),))
    asked = ask(subject("session.apply_changes", ToolEffect.MODIFY).model_copy(update={"changes": changes}), SHOWN_CHANGES)
    view = ask_view(asked)
    assert view.terms == (
        "changes: 2 files (1 added, 1 modified) in /srv/own",
        "file: modified, +1 -1  a.py",
        "file: added, +1 -0  difference of b",
        "answer: accepts all of it",
    )
    first, second = view.parts
    assert (first.title, second.title) == ("difference of a.py", 'difference of "difference of b"')
    assert [line.kind for line in first.lines] == ["argument", "removed", "added", "head"]
    assert [line.kind for line in second.lines] == ["added"], "an added line is no title, whatever it says"
    assert first.is_change
    assert second.is_change
