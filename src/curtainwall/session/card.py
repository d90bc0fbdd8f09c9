"""The exact text that a human is shown for a call or a plan: the agent's text is made inert, and cuts are stated."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.model import (
    GIT_PUSH,
    MOVE_FILE,
    SHELL_RUN,
    CallId,
    ChangeCard,
    Cover,
    Grant,
    GrantGiven,
    GrantScope,
    Label,
    LabelSource,
    Mode,
    Moment,
    ShownFile,
    Subject,
    Verdict,
    Who,
)
from curtainwall.session.standing_answers import ONE_TEXT, covers_of, is_for_one_call, scope_of_answer
from curtainwall.session.text import VALUE_LIMIT, inert, spelt, spelt_whole

_WANTS_LIMIT = 12_000
_ARGUMENTS_LIMIT = 8_000
_HIDDEN_LIMIT = 8_000
# Findings about a call, as the first words of a line on the card.
_LOOKED_AT: Final[Mapping[str, tuple[str, ...]]] = {GIT_PUSH: ("pushes",), MOVE_FILE: ("moves",)}
# The text behind a mask was not seen, and two values can have the same mask.
_MASK_START = "[masked:"

_ONE_CALL: Final = "a yes for the session or the project is for exactly this call, as often as it comes; any other arguments ask again"

READ_ONLY: Final = "the project is read-only for this command until edits are granted as a whole (`/mode accept-edits`)"
"""The line on a command's card if the project will be read-only for the command."""


def card_text(
    subject: Subject, covers: Sequence[Cover], reason: str, labels: Mapping[Label, LabelSource], *, read_only: bool = False
) -> str:
    """Return what an approval shows: tool, roles and resources, both argument forms, the rules, and what set the labels.

    With `read_only` the command cannot change the workspace, which the person who approves it should know.
    """
    if subject.changes is not None:
        return changes_text(subject, subject.changes, reason, labels)
    lines = [f"tool: {spelt(subject.tool)}", *_cut_lines(_wants(covers), _WANTS_LIMIT)]
    lines += [f"{key} {spelt(str(subject.canonical[key]))}" for key in _LOOKED_AT.get(subject.tool, ()) if key in subject.canonical]
    if scope_of_answer(GrantScope.ONCE, covers) is GrantScope.SESSION:
        lines.append("a yes holds for the rest of this session")
    if is_for_one_call(subject.tool, covers) and not any(cover.value in ONE_TEXT for cover in covers):
        lines.append(_ONE_CALL)
    if reason:
        lines.append(f"because {spelt(reason)}")
    lines += label_lines(labels)
    if read_only and subject.tool == SHELL_RUN:
        lines.append(READ_ONLY)
    lines += _cut_lines(hidden_lines(subject), _HIDDEN_LIMIT)
    lines += _arguments("as written", subject.raw)
    if subject.canonical != subject.raw:
        lines += _arguments("would run as", subject.canonical)
    return "\n".join(lines)


def label_lines(labels: Mapping[Label, LabelSource]) -> list[str]:
    """Return what set each label, for a person who is asked because of one."""
    return [f"label {label_words(source)}" for source in labels.values()]


def hidden_lines(subject: Subject) -> list[str]:
    """Return the card's lines about masked values: they look like secrets, so only their outline is shown."""
    return [f"hides {inert(mask)}: {inert(outline)}" for mask, outline in subject.hidden.items()]


def label_words(source: LabelSource) -> str:
    """Return what set a label: the call and the resource it touched, or another origin."""
    where = spelt(source.origin)
    if source.call:
        where = f"call {inert(source.call)}{f' ({where})' if where else ''}"
    return f"{inert(source.label)} was set by {where}"


def shows_all(covers: Sequence[Cover]) -> bool:
    """Tell whether a card shows every role and resource that is asked about, uncut; only then may an answer last."""
    wants = _wants(covers)
    whole = all(_is_whole(cover.value) and _MASK_START not in cover.value for cover in covers)
    return whole and _cut_lines(wants, _WANTS_LIMIT) == wants


def shows_arguments(subject: Subject) -> bool:
    """Tell whether a card shows every argument uncut, as written and as it would run, with the outline of everything that is masked."""
    hidden = hidden_lines(subject)
    texts = [text for arguments in (subject.raw, subject.canonical) for name, value in arguments.items() for text in (name, _json(value))]
    whole = all(map(_is_whole, (*texts, *subject.hidden, *subject.hidden.values())))
    cut = (len(_arguments("", arguments)) != len(arguments) + 1 for arguments in (subject.raw, subject.canonical))
    return whole and not any(cut) and _cut_lines(hidden, _HIDDEN_LIMIT) == hidden


def _is_whole(text: str) -> bool:
    # Escaping never makes a text shorter, and escaping megabytes takes seconds.
    return len(text) <= VALUE_LIMIT and len(spelt_whole(text)) <= VALUE_LIMIT


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wants(covers: Iterable[Cover]) -> list[str]:
    return [f"wants {cover.role} {spelt(cover.value)} ({inert(', '.join(cover.rules))})" for cover in covers]


def _arguments(title: str, arguments: Mapping[str, JsonValue]) -> list[str]:
    lines = [f"  {spelt(name)}: {spelt(_json(value))}" for name, value in arguments.items()]
    return [f"{title}:", *_cut_lines(lines, _ARGUMENTS_LIMIT)]


def _cut_lines(lines: list[str], limit: int) -> list[str]:
    room = limit
    for place, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return [*lines[:place], f"…[{len(lines) - place} more are not shown]…"]
    return lines


_LIST_LIMIT: Final = 48_000
_DIFFERENCES_LIMIT: Final = 48_000
_ONLY: Final = "answer: accepts all of it; `curtainwall approve ID PATH…` accepts only some files, and the rest stays with the agent"
_TOO_MANY: Final = (
    "answer: too many files to be listed here, so it cannot be accepted as a whole; `curtainwall sessions changes ID` lists them all, "
    "and `curtainwall approve ID PATH…` accepts some"
)


def changes_text(subject: Subject, changes: ChangeCard, reason: str, labels: Mapping[Label, LabelSource]) -> str:
    """Return the card of a change set: files that run later by themselves, then the others, each by name, then the differences.

    INVARIANT: the files are all named or the card says that they are not, and a line of a difference never passes for one of ours: ours
    begin with a word, and theirs with blanks.
    """
    lines = [f"tool: {spelt(subject.tool)}", f"changes: {spelt(changes.summary)}"]
    if reason:
        lines.append(f"because {spelt(reason)}")
    lines += label_lines(labels)
    listed = _file_lines(changes)
    if lists_all(changes):
        lines += listed
        lines.append(_ONLY)
    else:
        lines += _cut_lines(listed, _LIST_LIMIT)
        lines.append(_TOO_MANY)
    lines += (f"not in it: {spelt(note)}" for note in changes.notes)
    lines += _cut_lines(hidden_lines(subject), _HIDDEN_LIMIT)
    lines += _difference_lines(changes)
    return "\n".join(lines)


def _difference_lines(changes: ChangeCard) -> Iterator[str]:
    """Yield as much of the differences as fits, and how much is left out."""
    room = _DIFFERENCES_LIMIT
    files_left_out = lines_left_out = 0
    for difference in changes.differences:
        path = spelt_whole(quoted_path(difference.path))
        shown: list[str] = []
        for line in difference.lines:
            shown.append(f"  {spelt_whole(line)}" if len(line) <= VALUE_LIMIT else f"  {inert(line)}")
            room -= len(shown[-1]) + 1
            if room < 0:
                shown.pop()
                break
        left_out = len(difference.lines) - len(shown) + difference.left_out
        if not shown:
            files_left_out += 1
            lines_left_out += left_out
            continue
        yield f"difference of {path}:"
        yield from shown
        if left_out:
            yield f"…[{left_out} more lines of {path} are not shown]… `curtainwall sessions diff ID PATH` shows them"
    if files_left_out:
        yield (
            f"…[the differences of {files_left_out} more files, {lines_left_out} lines, are not shown]… "
            "`curtainwall sessions diff ID` shows them"
        )


def lists_all(changes: ChangeCard) -> bool:
    """Tell whether the card of a change set names every file; only then may it be accepted as a whole."""
    listed = _file_lines(changes)
    return _cut_lines(listed, _LIST_LIMIT) == listed


def quoted_path(path: str) -> str:
    """Return a path as it is, or in quotes if it could be read in two ways."""
    return path if _PLAIN_PATH.fullmatch(path) else json.dumps(path, ensure_ascii=False)


_PLAIN_PATH: Final = re.compile(r"[\w./@+~][\w./@+~-]*", re.ASCII)


def _file_lines(changes: ChangeCard) -> list[str]:
    later = [file for file in changes.files if file.runs_later]
    others = [file for file in changes.files if not file.runs_later]
    return [
        *(f"runs later by itself: {_file_words(file)}" for file in later),
        *(f"file: {_file_words(file)}" for file in others),
    ]


def _file_words(file: ShownFile) -> str:
    source = f", was {quoted_path(file.source)}" if file.source else ""
    return spelt_whole(f"{file.words}  {quoted_path(file.path)}{source}")


LONGEST_PLAN: Final = 32_000
"""The maximum length of a plan's card; a plan that cannot be shown whole is not shown at all."""

_TERMS = "a yes lets each step that asks run once without a further question, as long as it is exactly this and no other rule asks"
_WAITS = "plan mode is on: nothing of this runs before somebody has changed the mode"


def plan_text(subject: Subject, verdict: Verdict, labels: Mapping[Label, LabelSource], mode: Mode, *, read_only: bool) -> str:
    """Return the card of a plan: every step as it would run, uncut, with what it asks for and the rules."""
    # INVARIANT: each line starts with a word of ours, so nothing that an agent wrote can pass for another line.
    lines = [f"tool: {spelt_whole(subject.tool)}", f"plan of {_counted(len(subject.steps))}: {_TERMS}"]
    if mode is Mode.PLAN:
        lines.append(_WAITS)
    if verdict.reason:
        lines.append(f"because {spelt_whole(verdict.reason)}")
    lines += label_lines(labels)
    for place, step in enumerate(subject.steps):
        lines += _step_lines(place, step, verdict, subject)
        if read_only and step.tool == SHELL_RUN:
            lines.append(READ_ONLY)
    return "\n".join(lines)


def step_grants(subject: Subject, verdict: Verdict, by: Who, call: CallId, moment: Moment) -> tuple[GrantGiven, ...]:
    """Return one grant for every listed step that asks; each covers that exact call, once.

    INVARIANT: a plan grants nothing that is not listed: each grant has the digest of one step and the rules that were shown for it.
    """
    plan = moment.grant_id(f"{call}:plan")
    given: list[GrantGiven] = []
    for place, step in enumerate(subject.steps):
        covers = covers_of(_of_step(verdict, place), subject)
        if covers:
            id_ = moment.grant_id(f"{call}:{place}")
            grant = Grant(id=id_, scope=GrantScope.ONCE, covers=covers, by=by, at=moment.at, digest=step.digest, plan=plan)
            given.append(GrantGiven(at=moment.at, grant=grant))
    return tuple(given)


def _of_step(verdict: Verdict, place: int) -> Verdict:
    return verdict.model_copy(update={"findings": tuple(finding for finding in verdict.findings if finding.step == place)})


def _step_lines(place: int, step: Subject, verdict: Verdict, plan: Subject) -> Iterator[str]:
    covers = covers_of(_of_step(verdict, place), plan)
    yield f"step {place + 1}: {spelt_whole(step.tool)}, {'which asks' if covers else 'which is allowed anyway'}"
    yield from (f"wants {cover.role} {spelt_whole(cover.value)} ({spelt_whole(', '.join(cover.rules))})" for cover in covers)
    yield from hidden_lines(step)
    yield from (f"with {spelt_whole(name)}: {spelt_whole(json.dumps(value, ensure_ascii=False))}" for name, value in step.canonical.items())


def _counted(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
