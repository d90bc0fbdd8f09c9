"""An open ask as people see it: the `shown` text, both forms of the arguments, and a diff where one can be made."""

import difflib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.channels.plain import TAB, counted, plain_line, rows, short
from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    LOAD_SKILL,
    REMEMBER,
    TRUST_SKILL,
    ApprovalId,
    GrantScope,
    PendingAsk,
    Role,
    Subject,
    has_leftward,
    in_order,
    record,
)

Kind = Literal["head", "rule", "argument", "title", "added", "removed", "place", "note"]

_ARGUMENTS_START = "as written:"
_TEXTS: Mapping[str, str] = {"filesystem.write_file": "content", FOLLOW_INSTRUCTIONS: "content", LOAD_SKILL: "text", REMEMBER: "text"}
"""Tools with one argument that is a text people read line by line."""
_MOST_COMPARED = 200
# Characters of an edit. Comparing rendered lines takes too long beyond this, so only blanks are normalised there.
_MOST_LOOKED_AT = 100_000
_CUTS = ("characters cut]…", "more are not shown]…")
_MARK_AT, _MARKED = 14, dict[str, Kind]({"+": "added", "-": "removed"})
_MARKS: Mapping[Kind, str] = {"added": "+", "removed": "-", "argument": " ", "place": "@@"}

# The kind of the line, and the line as the agent wrote it.
_Raw = tuple[Kind, str]


@record
class CardLine:
    """One line of a card; the kind says how it may be coloured, never what it means."""

    kind: Kind
    text: str

    @property
    def is_cut(self) -> bool:
        """Tell whether something is left out here. An agent can fake this, which only makes us show more than needed."""
        return self.kind == "note" or any(cut in self.text for cut in _CUTS)


@record
class Space:
    """How much a card may show (lines of a text, characters of a line), and where the rest is."""

    lines: int = 60
    letters: int = 300
    rest: str = "`/pending ID` shows all of them"


SMALL: Final = Space()
WHOLE: Final = Space(lines=5_000, letters=200_000, rest="no card holds them")


def card_lines(ask: PendingAsk, space: Space = SMALL) -> tuple[CardLine, ...]:
    """Return the lines of an ask's card, all escaped; those of a plan or a change set are all in its head."""
    subject, space = ask.subject, replace(space, rest=space.rest.replace("ID", ask.approval))
    if subject.steps or subject.changes is not None:
        return tuple(_head(ask))
    return (*_head(ask), *_arguments(subject, space), *_body(subject, space))


def card_rows(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Yield the lines of a card wrapped to a terminal's width; None means not a terminal, so lines stay whole."""
    for line in lines:
        yield from [line] if width is None else rows(line, width)


def exact_card(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return the exact text that an answer is about, each line escaped."""
    return tuple(CardLine("head", _escaped(line)) for line in ask.shown.split("\n"))


def whole_card(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return the exact text that an answer is about, plus everything that it or the card leaves out."""
    exact = exact_card(ask)
    return (*exact, *left_out(ask)) if any(line.is_cut for line in (*exact, *card_lines(ask))) else exact


def left_out(ask: PendingAsk) -> tuple[CardLine, ...]:
    """Return everything a call touches and its arguments, in full; a plan is never cut."""
    subject = ask.subject
    if subject.steps:
        return ()
    touched = (CardLine("argument", f"  {resource.role} {_escaped(resource.value)}") for resource in subject.resources)
    return (CardLine("title", "everything that it touches:"), *touched, *_arguments(subject, WHOLE), *_body(subject, WHOLE))


def says_more(subject: Subject) -> bool:
    """Tell whether the arguments say something that neither the resources nor the text below them show, such as the path of a URL."""
    shown = {it.value for it in subject.resources}
    below = _shown_below(subject)

    def is_shown(name: str, value: JsonValue) -> bool:
        used = subject.canonical.get(name, value)
        each = cast("list[JsonValue]", used) if isinstance(used, list) else [used]
        return name in below or all(isinstance(it, str) and it in shown for it in each)

    return not all(is_shown(name, value) for name, value in subject.raw.items())


_ONE_TEXT = frozenset({FOLLOW_INSTRUCTIONS, TRUST_SKILL})
"""Values that denote one exact text; approval covers one use at a time."""


def scopes_for(subject: Subject) -> tuple[GrantScope, ...]:
    """Return the scopes that a yes may have; the decision checks them again."""
    if subject.changes is not None or subject.steps:
        return (GrantScope.ONCE,)
    if any(resource.role is Role.RAISE_BUDGET or resource.value in _ONE_TEXT for resource in subject.resources):
        return (GrantScope.ONCE,)
    if any(resource.role is Role.USE_CREDENTIAL for resource in subject.resources):
        return (GrantScope.ONCE, GrantScope.SESSION)
    return tuple(GrantScope)


def ask_in_a_line(ask: PendingAsk, room: int = 100, name: ApprovalId | None = None) -> str:
    """Return an ask as a row of a list, under its own id or that of the newest identical ask."""
    request = next((line for line in ask.shown.split("\n") if line.startswith(("wants ", "changes: "))), "")
    return short(f"{name or ask.approval}  {ask.subject.tool}  {request}", room)


def call_in_words(subject: Subject, room: int = 80) -> str:
    """Return a call on one line: the tool and its most telling argument, or the tools that a plan lists."""
    if subject.steps:
        return short(f"{subject.tool} {', '.join(step.tool for step in subject.steps)}", room)
    if subject.changes is not None:
        return short(in_order(f"{subject.tool} {subject.changes.summary}"), room)
    argument = next(((name, value) for name, value in subject.raw.items() if isinstance(value, str)), None)
    if argument is None:
        words = json.dumps(dict(subject.raw), ensure_ascii=False) if subject.raw else ""
    else:
        name, words = argument
        # A host may be spelled with look-alike letters; the canonical form is not.
        used = subject.canonical.get(name)
        words = used if isinstance(used, str) and not words.isascii() else words
    return short(in_order(f"{subject.tool} {words}"), room)


def _head(ask: PendingAsk) -> Iterator[CardLine]:
    # INVARIANT: each line before the arguments starts with a word of ours, so the first line that equals this title is ours too.
    for line in ask.shown.split("\n"):
        if line == _ARGUMENTS_START:
            return
        yield CardLine(_kind(line), _escaped(line))


def _kind(line: str) -> Kind:
    if line.startswith(("step ", "difference of ")):
        return "title"
    if line.startswith("  "):
        # A line of a difference on the card of a change set; its colour says no more than its mark.
        return _MARKED.get(line[_MARK_AT : _MARK_AT + 1], "argument")
    return "rule" if line.startswith(("wants ", "because ", "label ")) else "argument" if line.startswith("with ") else "head"


def _escaped(line: str) -> str:
    # An escape is at most ten characters long.
    return plain_line(in_order(line), 10 * len(line) + 1)


def _arguments(subject: Subject, space: Space) -> Iterator[CardLine]:
    yield CardLine("title", _ARGUMENTS_START)
    yield from _argument_lines(subject.raw, _shown_below(subject), space)
    differs = {name: value for name, value in subject.canonical.items() if name not in subject.raw or subject.raw[name] != value}
    dropped = [name for name in subject.raw if name not in subject.canonical]
    if not differs and not dropped:
        return
    same = len(subject.canonical) - len(differs)
    yield CardLine("title", f"would run as{f' ({same} more as written)' if same else ''}:")
    yield from _argument_lines(differs, _shown_below(subject), space)
    if dropped:
        yield CardLine("argument", f"  without {plain_line(', '.join(dropped))}")


def _argument_lines(arguments: Mapping[str, JsonValue], below: frozenset[str], space: Space) -> Iterator[CardLine]:
    for name, value in arguments.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in below:
            text = f"(shown below, {counted(len(value if isinstance(value, str) else text), 'character')})"
        elif isinstance(value, str) and "\n" in value.strip("\n"):
            # Nobody can read a script on one line.
            lines = _lines(value)
            text = counted(len(lines), "line")
            yield CardLine("argument", f"  {plain_line(name)}, {text}:")
            yield from _fit([*_tagged("argument", [f"    {in_order(line)}" for line in lines])], space)
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
        return CardLine("title", "what would change:"), *_fit(_changes(edits), space)
    if isinstance(content, str):
        lines = [*_tagged("added", _lines(content))]
        what = "the whole new content" if subject.tool == "filesystem.write_file" else "the whole text"
        hidden = f", of which {_hidden_count(len(lines), space)} are not shown here" if len(lines) > space.lines else ""
        return CardLine("title", f"{what}, {counted(len(lines), 'line')}{hidden}:"), *_fit(lines, space)
    return ()


def _edits(subject: Subject) -> Sequence[tuple[str, str]] | None:
    """Return the edits as pairs of old and new text, or None if they are malformed."""
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
    pairs = [_edit_lines(old, new) for old, new in edits]
    # Comparing two long texts takes the product of their lengths, and every reader waits for the card.
    compares = max(sum(map(len, side)) for side in zip(*pairs, strict=True)) <= _MOST_COMPARED if pairs else False
    changes: list[_Raw] = []
    for old, new in pairs:
        changes.append(("place", ""))
        changes += _difference(old, new) if compares else _replacement(old, new)
    return changes


def _difference(old: Sequence[str], new: Sequence[str]) -> Iterator[_Raw]:
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from _tagged("argument", old[start:end])
        else:
            yield from _replacement(old[start:end], new[new_start:new_end])


def _replacement(old: Sequence[str], new: Sequence[str]) -> Iterator[_Raw]:
    # A line that looks like one of the other side differs from it invisibly, so both are escaped in full.
    appearance = _look if sum(map(len, (*old, *new))) <= _MOST_LOOKED_AT else _without_blanks
    alike = {*map(appearance, old)} & {*map(appearance, new)}
    yield from _tagged("removed", [_spelt_out(line) if appearance(line) in alike else line for line in old])
    yield from _tagged("added", [_spelt_out(line) if appearance(line) in alike else line for line in new])


def _look(line: str) -> str:
    """Return what a line looks like on a screen."""
    return unicodedata.normalize("NFKC", plain_line(_without_blanks(line), 10 * len(line) + 1))


def _without_blanks(line: str) -> str:
    return line.replace("\t", TAB).rstrip(" ")


def _spelt_out(line: str) -> str:
    blank = len(line.rstrip(" "))
    return line[:blank].encode("unicode_escape", "surrogatepass").decode() + "\\x20" * (len(line) - blank)


def _edit_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of an edit; line endings are left out only if both sides use the same."""
    ends = {"\r\n" if text.count("\n") == text.count("\r\n") else "\n" if "\r\n" not in text else "" for text in (old, new) if "\n" in text}
    if len(ends) > 1 or "" in ends or old.endswith("\n") is not new.endswith("\n"):
        return old.split("\n") if old else [], new.split("\n") if new else []
    return _lines(old), _lines(new)


def _tagged(kind: Kind, lines: Sequence[str]) -> Iterator[_Raw]:
    for line in lines:
        yield kind, line


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def _hidden_count(lines: int, space: Space) -> int:
    return max(lines - space.lines, 0)


def _fit(lines: Sequence[_Raw], space: Space) -> Iterator[CardLine]:
    head = space.lines if len(lines) <= space.lines else space.lines * 2 // 3
    yield from (card_line for line in lines[:head] for card_line in _rendered_lines(line, space))
    if hidden := _hidden_count(len(lines), space):
        yield CardLine("note", f"…[{hidden} lines are not shown here; {space.rest}]…")
        yield from (card_line for line in lines[head - space.lines :] for card_line in _rendered_lines(line, space))


def _rendered_lines(raw: _Raw, space: Space) -> Iterator[CardLine]:
    """Yield a line as people read it, and below it in logical order if right-to-left letters move others around."""
    kind, line = raw
    shown = plain_line(line.replace("\t", TAB), space.letters)
    yield CardLine(kind, f"{_MARKS[kind]}{shown}")
    if has_leftward(line) and any(letter.isascii() and not letter.isspace() for letter in line):
        yield CardLine("note", f"…[the line above in the order of its letters: {plain_line(in_order(line), space.letters)}]…")
