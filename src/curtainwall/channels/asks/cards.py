"""An open ask as people see it: what `shown` says, both forms of the arguments, and a difference where one can be made."""

import difflib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.channels.plain import TAB, counted, plain_line, rows, short
from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    LOAD_SKILL,
    REMEMBER,
    ApprovalId,
    PendingAsk,
    Subject,
    has_leftward,
    in_order,
)

Kind = Literal["head", "rule", "argument", "title", "added", "removed", "place", "note"]

_ARGUMENTS_START = "as written:"
_TEXTS: Mapping[str, str] = {"filesystem.write_file": "content", FOLLOW_INSTRUCTIONS: "content", LOAD_SKILL: "text", REMEMBER: "text"}
"""Tools of which one argument is a text that people read line by line."""
_MOST_COMPARED = 200
# Characters of an edit; what a screen makes of each takes too long in longer ones, and only blanks are looked at there.
_MOST_LOOKED_AT = 100_000
_CUTS = ("characters cut]…", "more are not shown]…")
_MARKS: Mapping[Kind, str] = {"added": "+", "removed": "-", "argument": " ", "place": "@@"}

# What kind of line it is, and the line as the agent wrote it.
_Raw = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class CardLine:
    """One line of a card; the kind says how it may be coloured, never what it means."""

    kind: Kind
    text: str

    @property
    def is_cut(self) -> bool:
        """Tell whether something is left out here; an agent can make us believe so, and then more is shown than need be."""
        return self.kind == "note" or any(cut in self.text for cut in _CUTS)


@dataclass(frozen=True, slots=True)
class Space:
    """How much a card may show: lines of a text, letters of a line; and where the rest is."""

    lines: int = 60
    letters: int = 300
    rest: str = "`/pending ID` shows all of them"


SMALL: Final = Space()
WHOLE: Final = Space(lines=5_000, letters=200_000, rest="no card holds them")


def card_lines(ask: PendingAsk, space: Space = SMALL) -> tuple[CardLine, ...]:
    """Return the card of an ask, every line inert; that of a plan has every step in its head."""
    subject, space = ask.subject, replace(space, rest=space.rest.replace("ID", ask.approval))
    return tuple(_head(ask)) if subject.steps else (*_head(ask), *_arguments(subject, space), *_body(subject, space))


def card_rows(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Yield the lines of a card as a terminal of a width shows them; None is no terminal, where a line is a line."""
    for line in lines:
        yield from [line] if width is None else rows(line, width)


def exact_card(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return the exact text that an answer is about, line by line inert."""
    return tuple(CardLine("head", _uncut(line)) for line in ask.shown.split("\n"))


def whole_card(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return the exact text that an answer is about, and in full whatever it or the card leaves out."""
    exact = exact_card(ask)
    return (*exact, *left_out(ask)) if any(line.is_cut for line in (*exact, *card_lines(ask))) else exact


def left_out(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return what a call touches and with which arguments, in full; a plan is never cut."""
    subject = ask.subject
    if subject.steps:
        return ()
    touched = (CardLine("argument", f"  {it.role} {_uncut(it.value)}") for it in subject.resources)
    return (CardLine("title", "everything that it touches:"), *touched, *_arguments(subject, WHOLE), *_body(subject, WHOLE))


def says_more(subject: Subject) -> bool:
    """Tell whether the arguments say something that neither the resources nor the text below them show, as the path of a URL."""
    shown = {it.value for it in subject.resources}
    below = _shown_below(subject)

    def is_shown(name: str, value: JsonValue) -> bool:
        spelt = subject.canonical.get(name, value)
        each = cast("list[JsonValue]", spelt) if isinstance(spelt, list) else [spelt]
        return name in below or all(isinstance(it, str) and it in shown for it in each)

    return not all(is_shown(name, value) for name, value in subject.raw.items())


def ask_in_a_line(ask: PendingAsk, room: int = 100, name: ApprovalId | None = None) -> str:
    """Return an ask as a row of a list, under its own name or that of the newest that is identical."""
    told = next((line for line in ask.shown.split("\n") if line.startswith("wants ")), "")
    return short(f"{name or ask.approval}  {ask.subject.tool}  {told}", room)


def call_in_words(subject: Subject, room: int = 80) -> str:
    """Return a call on one line: the tool and the argument that says most; of a plan, what it lists."""
    if subject.steps:
        return short(f"{subject.tool} {', '.join(step.tool for step in subject.steps)}", room)
    about = next(((name, value) for name, value in subject.raw.items() if isinstance(value, str)), None)
    if about is None:
        words = json.dumps(dict(subject.raw), ensure_ascii=False) if subject.raw else ""
    else:
        name, words = about
        # A host may be spelt with letters that only look like others; what is used is not.
        used = subject.canonical.get(name)
        words = used if isinstance(used, str) and not words.isascii() else words
    return short(in_order(f"{subject.tool} {words}"), room)


def _head(ask: PendingAsk) -> Iterator[CardLine]:
    # INVARIANT: each line before the arguments starts with a word of ours, so the first that is exactly this title is ours as well.
    for line in ask.shown.split("\n"):
        if line == _ARGUMENTS_START:
            return
        yield CardLine(_kind(line), _uncut(line))


def _kind(line: str) -> Kind:
    if line.startswith("step "):
        return "title"
    return "rule" if line.startswith(("wants ", "because ", "label ")) else "argument" if line.startswith("with ") else "head"


def _uncut(line: str) -> str:
    # An escape is at most ten letters long.
    return plain_line(in_order(line), 10 * len(line) + 1)


def _arguments(subject: Subject, space: Space) -> Iterator[CardLine]:
    yield CardLine("title", _ARGUMENTS_START)
    yield from _argument_lines(subject.raw, _shown_below(subject), space)
    differs = {name: value for name, value in subject.canonical.items() if name not in subject.raw or subject.raw[name] != value}
    gone = [name for name in subject.raw if name not in subject.canonical]
    if not differs and not gone:
        return
    same = len(subject.canonical) - len(differs)
    yield CardLine("title", f"would run as{f' ({same} more as written)' if same else ''}:")
    yield from _argument_lines(differs, _shown_below(subject), space)
    if gone:
        yield CardLine("argument", f"  without {plain_line(', '.join(gone))}")


def _argument_lines(arguments: Mapping[str, JsonValue], below: frozenset[str], space: Space) -> Iterator[CardLine]:
    for name, value in arguments.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in below:
            text = f"(shown below, {counted(len(value if isinstance(value, str) else text), 'character')})"
        elif isinstance(value, str) and "\n" in value.strip("\n"):
            # A script on one line is read by nobody.
            lines = _lines(value)
            text = counted(len(lines), "line")
            yield CardLine("argument", f"  {plain_line(name)}, {text}:")
            yield from _fitted([*_all("argument", [f"    {in_order(line)}" for line in lines])], space)
            continue
        yield CardLine("argument", f"  {plain_line(in_order(name))}: {plain_line(in_order(text), space.letters)}")


def _shown_below(subject: Subject) -> frozenset[str]:
    if subject.tool == "filesystem.edit_file" and _edits(subject) is not None:
        return frozenset({"edits"})
    name = _TEXTS.get(subject.tool)
    return frozenset({name}) if name is not None and isinstance(subject.canonical.get(name), str) else frozenset()


def _body(subject: Subject, space: Space) -> tuple[CardLine, ...]:
    edits = _edits(subject) if subject.tool == "filesystem.edit_file" else None
    content = subject.canonical.get(_TEXTS.get(subject.tool, ""))
    if edits is not None:
        return CardLine("title", "what would change:"), *_fitted(_changes(edits), space)
    if isinstance(content, str):
        lines = [*_all("added", _lines(content))]
        what = "the whole new content" if subject.tool == "filesystem.write_file" else "the whole text"
        hidden = f", of which {_beyond(len(lines), space)} are not shown here" if len(lines) > space.lines else ""
        return CardLine("title", f"{what}, {counted(len(lines), 'line')}{hidden}:"), *_fitted(lines, space)
    return ()


def _edits(subject: Subject) -> Sequence[tuple[str, str]] | None:
    """Return the edits as pairs of old and new text, or None where they are not what they should be."""
    value = subject.canonical.get("edits")
    if not isinstance(value, list):
        return None
    pairs: list[tuple[str, str]] = []
    for edit in cast("list[JsonValue]", value):
        match edit:
            case {"oldText": str(old), "newText": str(new)}:
                pairs.append((old, new))
            case _:
                return None
    return pairs


def _changes(edits: Sequence[tuple[str, str]]) -> list[_Raw]:
    pairs = [_both_sides(old, new) for old, new in edits]
    # Finding what two long texts have in common takes their lengths multiplied, and everybody waits for a card.
    compares = max(sum(map(len, side)) for side in zip(*pairs, strict=True)) <= _MOST_COMPARED if pairs else False
    changes: list[_Raw] = []
    for old, new in pairs:
        changes.append(("place", ""))
        changes += _difference(old, new) if compares else _replaced(old, new)
    return changes


def _difference(old: Sequence[str], new: Sequence[str]) -> Iterator[_Raw]:
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from _all("argument", old[start:end])
        else:
            yield from _replaced(old[start:end], new[new_start:new_end])


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[_Raw]:
    # A line that looks like one of the other side differs from it in something that nobody sees, so both are spelt out.
    look = _look if sum(map(len, (*old, *new))) <= _MOST_LOOKED_AT else _without_blanks
    alike = {*map(look, old)} & {*map(look, new)}
    yield from _all("removed", [_spelt_out(line) if look(line) in alike else line for line in old])
    yield from _all("added", [_spelt_out(line) if look(line) in alike else line for line in new])


def _look(line: str) -> str:
    """Return what is left of a line for whoever looks at a screen."""
    return unicodedata.normalize("NFKC", plain_line(_without_blanks(line), 10 * len(line) + 1))


def _without_blanks(line: str) -> str:
    return line.replace("\t", TAB).rstrip(" ")


def _spelt_out(line: str) -> str:
    blank = len(line.rstrip(" "))
    return line[:blank].encode("unicode_escape", "surrogatepass").decode() + "\\x20" * (len(line) - blank)


def _both_sides(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of an edit; ends of lines are left out only where both sides have the same."""
    ends = {"\r\n" if text.count("\n") == text.count("\r\n") else "\n" if "\r\n" not in text else "" for text in (old, new) if "\n" in text}
    if len(ends) > 1 or "" in ends or old.endswith("\n") is not new.endswith("\n"):
        return old.split("\n") if old else [], new.split("\n") if new else []
    return _lines(old), _lines(new)


def _all(kind: Kind, lines: Sequence[str]) -> Iterator[_Raw]:
    for line in lines:
        yield kind, line


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def _beyond(lines: int, space: Space) -> int:
    return max(lines - space.lines, 0)


def _fitted(lines: Sequence[_Raw], space: Space) -> Iterator[CardLine]:
    head = space.lines if len(lines) <= space.lines else space.lines * 2 // 3
    yield from (drawn for line in lines[:head] for drawn in _drawn(line, space))
    if hidden := _beyond(len(lines), space):
        yield CardLine("note", f"…[{hidden} lines are not shown here; {space.rest}]…")
        yield from (drawn for line in lines[head - space.lines :] for drawn in _drawn(line, space))


def _drawn(raw: _Raw, space: Space) -> Iterator[CardLine]:
    """Yield a line of a text as people read it, and beneath it in its own order where letters from right to left move others about."""
    kind, line = raw
    shown = plain_line(line.replace("\t", TAB), space.letters)
    yield CardLine(kind, f"{_MARKS[kind]}{shown}")
    if has_leftward(line) and any(letter.isascii() and not letter.isspace() for letter in line):
        yield CardLine("note", f"…[the line above in the order of its letters: {plain_line(in_order(line), space.letters)}]…")
