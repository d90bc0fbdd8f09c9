"""HTML as text: headings, lists, links and preformatted pieces in the manner of Markdown; scripts, styles and forms left out."""

import html
import re
from typing import Final

import ada_url

_LONGEST_TAG: Final = 16_384
_DEEPEST_LIST: Final = 8
_LONGEST_LINK: Final = 4_096
_LINKS_BEYOND: Final = 100_000

# Elements whose inside is no text for a reader; each ends at its own end tag.
_SKIPPED: Final = frozenset("script style template noscript svg math iframe object canvas title select textarea".split())
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{0,500})", re.IGNORECASE)
_NAME = re.compile(r"/?([A-Za-z][A-Za-z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(r"(?<![\w:.-])([A-Za-z_:][\w:.-]{0,60})\s{0,8}=\s{0,8}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
# Lengths are bounded: a number of a million digits is no character.
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS: Final = frozenset(
    (
        "address article aside blockquote body dd details dialog div dl dt fieldset figcaption figure footer form header hr main nav ol p "
        "section summary table tbody tfoot thead tr ul"
    ).split()
)


def page_text(page: str, base: str) -> str:
    """Return the text of a page, with its links made whole."""
    reading = _Reading(base, len(page) + _LINKS_BEYOND)
    title = _TITLE.search(page, 0, 65_536)
    if title and title[1].strip():
        reading.title(plain(title[1]))
    at, end = 0, -1
    while (begin := page.find("<", at)) >= 0:
        reading.text(page[at:begin])
        at = begin
        # Looked for once and not from every `<`, of which there may be millions.
        end = page.find(">", begin) if end < begin else end
        if end < 0:
            break
        at = _take(page, begin, end, reading)
    reading.text(page[at:])
    return reading.finish()


def plain(text: str) -> str:
    """Return text with its character references replaced."""
    return _REFERENCE.sub(lambda found: html.unescape(found[0]), text)


def _take(page: str, begin: int, end: int, reading: "_Reading") -> int:
    """Read the markup that begins here and ends there at the earliest, and return where the text goes on."""
    if page.startswith("<!--", begin):
        closed = page.find("-->", begin + 4)
        return len(page) if closed < 0 else closed + 3
    named = _NAME.match(page, begin + 1)
    if named is None and page[begin + 1] not in "!?/":
        reading.text("<")
        return begin + 1
    if named is None:
        return end + 1
    end = _end_of_tag(page, begin, end)
    name, closing = named[1].lower(), page[begin + 1] == "/"
    inside = page[named.end() : min(end, begin + _LONGEST_TAG)]
    if not closing and name in _SKIPPED and not inside.endswith("/"):
        found = re.compile(rf"</{re.escape(name)}[\s>/]", re.IGNORECASE).search(page, end)
        return len(page) if found is None else max(page.find(">", found.start()) + 1, found.end())
    if closing:
        reading.close(name)
    else:
        reading.open(name, inside)
    return end + 1


def _end_of_tag(page: str, begin: int, end: int) -> int:
    """Return where a tag ends: at the first `>` that stands in no quotes, as far as a tag may be long."""
    limit = begin + _LONGEST_TAG
    for _ in range(8):
        if end > limit or page.count('"', begin, end) % 2 == 0:
            break
        closing = page.find('"', end, limit)
        further = page.find(">", closing, limit) if closing >= 0 else -1
        if further < 0:
            break
        end = further
    return end


class _Reading:
    """A page on its way to text."""

    def __init__(self, base: str, room_for_links: int) -> None:
        self._base = base
        self._room_for_links = room_for_links
        self._out: list[str] = []
        self._links: list[str] = []
        self._lists: list[int | None] = []
        self._preformatted = 0
        self._break = 0
        self._prefix = ""

    def title(self, text: str) -> None:
        self._out.append(f"# {_BLANKS.sub(' ', text).strip()}\n\n")

    def text(self, piece: str) -> None:
        """Write text; white space is one space, except where it was meant."""
        told = plain(piece)
        if not self._preformatted:
            told = _BLANKS.sub(" ", told)
            if self._break or not self._out:
                told = told.lstrip(" ")
            elif told.startswith(" ") and self._out[-1].endswith((" ", "\n")):
                told = told[1:]
        if told:
            self._write(told)

    def open(self, name: str, inside: str) -> None:
        """Begin an element."""
        if name in _HEADINGS:
            self._separate(2)
            self._prefix = f"{_HEADINGS[name]} "
        elif name == "br":
            self._out.append("\n")
        elif name == "pre":
            self._separate(2)
            self._write("```\n")
            self._preformatted += 1
        elif name == "code" and not self._preformatted:
            self._write("`")
        elif name == "a":
            self._links.append(self._target(_attribute(inside, "href")))
            if self._links[-1]:
                self._write("[")
        elif name == "img" and (shown := plain(_attribute(inside, "alt")).strip()):
            self._write(f"![{shown[:200]}]")
        elif name in {"ul", "ol"}:
            self._separate(1 if self._lists else 2)
            self._lists.append(0 if name == "ol" else None)
        elif name == "li":
            self._separate(1)
            self._prefix = self._bullet()
        elif name in {"td", "th"}:
            self._write(" | ")
        elif name in _BLOCKS:
            self._separate(1 if name in {"tr", "dt", "dd"} else 2)

    def close(self, name: str) -> None:
        """End an element."""
        if name == "pre" and self._preformatted:
            self._preformatted -= 1
            self._out.append("\n```")
            self._separate(2)
        elif name == "code" and not self._preformatted:
            self._write("`")
        elif name == "a" and self._links:
            target = self._links.pop()
            if target:
                self._write(f"]({target})")
        elif name in {"ul", "ol"}:
            if self._lists:
                self._lists.pop()
            self._separate(1 if self._lists else 2)
        elif name in _BLOCKS or name in _HEADINGS:
            self._separate(1 if name in {"tr", "dt", "dd"} else 2)

    def finish(self) -> str:
        """Return the text."""
        lines = (line.rstrip() for line in "".join(self._out).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def _write(self, text: str) -> None:
        if self._break:
            if self._out:
                self._out.append("\n" * self._break)
            self._break = 0
        if self._prefix:
            self._out.append(self._prefix)
            self._prefix = ""
        self._out.append(text)

    def _separate(self, lines: int) -> None:
        self._break, self._prefix = max(self._break, lines), ""

    def _bullet(self) -> str:
        indent = "  " * min(max(len(self._lists) - 1, 0), _DEEPEST_LIST)
        if not self._lists or (count := self._lists[-1]) is None:
            return f"{indent}- "
        self._lists[-1] = count + 1
        return f"{indent}{count + 1}. "

    def _target(self, link: str) -> str:
        """Return where a link leads, whole, or nothing for what only works in a browser."""
        told = plain(link).strip()
        if not told or told.startswith("#") or len(told) > _LONGEST_LINK or self._room_for_links <= 0:
            return ""
        try:
            whole = ada_url.join_url(self._base, told)
        except ValueError:
            return ""
        # A short link on a page with a long address grows when it is made whole.
        self._room_for_links -= len(whole)
        return whole if whole.startswith(("http://", "https://", "mailto:")) else ""


def _attribute(inside: str, wanted: str) -> str:
    for found in _ATTRIBUTE.finditer(inside):
        if found[1].lower() == wanted:
            return found[2] or found[3] or found[4] or ""
    return ""
