"""Private keys in PEM: whole, cut off, or without their beginning, whatever a tool put in front of each line."""

import re
from collections.abc import Iterator
from typing import Final

from curtainwall.facts.secrets.shapes import MASK_START, Span

PEM_START: Final = "-----BEGIN "
PEM_END: Final = "-----END "
MAX_PEM: Final = 32_768

_LONGEST_LINE = 1_200
_MOST_LINES = 1_000
_LONG, _FULL = 16, 40

_START = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_WHOLE = re.compile(r"(?:(?!-----BEGIN|\[masked:)[\s\S]){0,32000}?-----END [A-Z0-9 ]{0,60}-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

# What stands in front of a line: indentation, quotes, comments and differences; `12:` and `12` of `grep -n` and `cat -n`, `key.pem-12-` of
# `grep -r`, `web-1 | ` of logs. What names and numbers end in is no letter of Base64, so it is clear where the line itself begins.
_QUOTING = r"[ \t\"'+,>|#*/;%<-]{0,40}+"
_NUMBERING = r"(?:[\w./@+~-]{1,160}?[:|-]|[\w.-]{1,60}+[ \t]{1,20}+[:|-]|[0-9]{1,7}+(?=[ \t.)\\]))(?:[0-9]{1,7}+[:|.)-])?[.)]?"
_TABS = r"(?:\\{1,4}t){0,8}+"
_PREFIX = rf"{_QUOTING}{_TABS}(?:{_NUMBERING}{_TABS}{_QUOTING})?"
LINE_PREFIX: Final = re.compile(_PREFIX)
"""What may stand between the beginning of a line and a part of a key."""
BEGUN_PREFIX: Final = re.compile(rf"{_QUOTING}{_TABS}[\w./@+~:|.)-]{{0,180}}+{_TABS}{_QUOTING}(?:[0-9]{{1,7}}+[:|.)-]?)?{_QUOTING}")
"""The same where more of it may be on its way."""

_PLAIN = r"[ \t\"'+,>|#*-]{0,40}+"
_AFTER = r"[ \t\"'+,;)]{0,40}+"
_BODY = "[A-Za-z0-9+/=]"
_PLAIN_LINE = re.compile(rf"{_PLAIN}({_BODY}{{1,512}}+){_AFTER}")
_MARKED_LINE = re.compile(rf"{_PREFIX}({_BODY}{{1,512}}+){_AFTER}")
_BEHIND_WORDS = re.compile(rf"[^\n]{{0,1000}}[ \t\"']({_BODY}{{16,2048}}+){_AFTER}")
_HEADER_LINE = re.compile(rf"{_PREFIX}(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n\\\[]{{0,200}}")
_NEXT_BREAK = re.compile(r"\r{0,2}\n|\\{1,4}[nr]|\Z")
_FIRST_WORD = re.compile(rf"{_PLAIN}{_BODY}{{1,2048}}+|{_PREFIX}{_BODY}{{16,2048}}+")
_MORE_WORDS = re.compile(rf"(?:[ \t]{{1,8}}+{_BODY}{{16,2048}}+){{0,64}}+")
_CLOSES = re.compile(r"[\"'][ \t]{0,8}[,}\]:]")
_EMPTY = " \t\"'+,;)"


def private_keys(text: str) -> Iterator[Span]:
    """Yield every private key, or as much of one as is there."""
    read = 0
    at = text.find(PEM_START)
    while at >= 0:
        start = _START.match(text, at)
        if start is None:
            at = text.find(PEM_START, at + 1)
            continue
        whole = _WHOLE.match(text, start.end())
        read = whole.end() if whole else _cut_off(text, start.end())
        yield Span(at, read, 1, "private-key", text[at:read])
        at = text.find(PEM_START, max(read, at + 1))
    yield from _without_beginning(text)


def _cut_off(text: str, at: int) -> int:
    """Return where a key ends that has no end: behind lines of Base64 and of headers, and what looks like the beginning of one more."""
    end = at
    for _ in range(_MOST_LINES):
        gap = _NEXT_BREAK.match(text, at)
        if gap is None or gap.end() == at:
            break
        following = _NEXT_BREAK.search(text, gap.end(), gap.end() + _LONGEST_LINE)
        stop = following.start() if following else min(len(text), gap.end() + _LONGEST_LINE)
        line = text[gap.end() : stop]
        if "-----" in line or MASK_START in line:
            return end
        body = _PLAIN_LINE.fullmatch(line) or _MARKED_LINE.fullmatch(line)
        if body is None and line.strip(_EMPTY) and not _HEADER_LINE.fullmatch(line) and not LINE_PREFIX.fullmatch(line):
            partial = None if _CLOSES.match(line) else _FIRST_WORD.match(line)
            return gap.end() + partial.end() if partial else end
        at = stop
        if body or line.strip(_EMPTY):
            end = stop - (len(line) - len(line.rstrip(_EMPTY)))
        if body and body.re is _MARKED_LINE and len(body[1]) < _FULL:
            # A short line is a key's last one; beyond it there are the other lines of a listing.
            return end
    more = _MORE_WORDS.match(text, end)
    return more.end() if more else end


def _without_beginning(text: str) -> Iterator[Span]:
    """Yield keys by their end, for a text that begins inside of one."""
    read = 0
    at = text.find(PEM_END)
    while at >= 0:
        end = _END.match(text, at)
        if end:
            start = body_before(text, at, read)
            read = end.end()
            if start < at:
                yield Span(start, read, 1, "private-key", text[start:read])
        at = text.find(PEM_END, at + 1)


def body_before(text: str, end: int, floor: int = 0, prefix: re.Pattern[str] = LINE_PREFIX) -> int:
    """Return where lines begin that are the body of a private key if it ends here; all of them are long but the last."""
    floor = max(floor, end - MAX_PEM)
    stop, begin = _break_before(text, end, floor)
    if stop < 0 or not prefix.fullmatch(text, begin, end):
        return end
    start, shortest = end, 1
    for _ in range(_MOST_LINES):
        above, begin = _break_before(text, stop, floor)
        line = text[begin:stop]
        body = None if "-----" in line else _PLAIN_LINE.fullmatch(line) or _MARKED_LINE.fullmatch(line)
        if body is not None and len(body[1]) >= shortest:
            # A `+` may be the key's own.
            marks = len(line) - len(line.lstrip(" \t\"',>|#*-")) if body.re is _PLAIN_LINE else body.start(1)
            start, shortest = begin + marks, _LONG
        elif line.strip(_EMPTY) or above < 0 or "\\" not in text[above] + text[stop]:
            # The first of them may stand behind something else, as in the head of a hunk.
            behind = None if "-----" in line else _BEHIND_WORDS.fullmatch(line)
            return begin + behind.start(1) if behind else start
        if above < 0:
            break
        stop = above
    return start


def _break_before(text: str, end: int, floor: int) -> tuple[int, int]:
    """Return where the line break before a place begins and ends; -1 and where to begin where there is none nearby."""
    low = max(floor, end - _LONGEST_LINE)
    plain, escaped = text.rfind("\n", low, end), max(text.rfind("\\n", low, end), text.rfind("\\r", low, end))
    if plain < 0 and escaped < 0:
        return -1, low
    if plain > escaped:
        begin = plain
        while begin > low and text[begin - 1] == "\r" and plain - begin < 2:
            begin -= 1
        return begin, plain + 1
    begin = escaped
    while begin > low and text[begin - 1] == "\\" and escaped - begin < 3:
        begin -= 1
    return begin, escaped + 2


def last_key_end(text: str, end: int) -> int:
    """Return where the last private key before here ends, behind which another body may begin without a new line."""
    at = text.rfind(PEM_END, 0, end)
    found = _END.match(text, at, end) if at >= 0 else None
    return found.end() if found else 0
