"""Turn a server's reply into readable text: decode bytes, format JSON, and render pages as text with links.

Everything here makes a single pass and bounds the growth of its output, because the author of a page may be hostile.
"""

import codecs
import html
import json
import re
from typing import Final

import ada_url

from curtainwall.model import record

_LONGEST_TAG: Final = 16_384
_DEEPEST_LIST: Final = 8
_LONGEST_LINK: Final = 4_096
_LINKS_BEYOND: Final = 100_000

# Elements whose content is not for readers; each ends at its own end tag.
_SKIPPED: Final = frozenset("script style template noscript svg math iframe object canvas title select textarea".split())
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{0,500})", re.IGNORECASE)
_NAME = re.compile(r"/?([A-Za-z][A-Za-z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(r"(?<![\w:.-])([A-Za-z_:][\w:.-]{0,60})\s{0,8}=\s{0,8}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
# Lengths are bounded: a number with a million digits is not a character.
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
    """Return the text of a page with absolute links."""
    writer = _Reading(base, len(page) + _LINKS_BEYOND)
    title = _TITLE.search(page, 0, 65_536)
    if title and title[1].strip():
        writer.title(unescape(title[1]))
    at, end = 0, -1
    while (begin := page.find("<", at)) >= 0:
        writer.text(page[at:begin])
        at = begin
        # Search once and not from every `<`, of which there may be millions.
        end = page.find(">", begin) if end < begin else end
        if end < 0:
            break
        at = _take(page, begin, end, writer)
    writer.text(page[at:])
    return writer.finish()


def unescape(text: str) -> str:
    """Return text with its character references replaced."""
    return _REFERENCE.sub(lambda match: html.unescape(match[0]), text)


def _take(page: str, begin: int, end: int, writer: "_Reading") -> int:
    """Process the markup that starts at `begin` and ends no earlier than `end`; return where the text continues."""
    if page.startswith("<!--", begin):
        closed = page.find("-->", begin + 4)
        return len(page) if closed < 0 else closed + 3
    tag_name = _NAME.match(page, begin + 1)
    if tag_name is None and page[begin + 1] not in "!?/":
        writer.text("<")
        return begin + 1
    if tag_name is None:
        return end + 1
    end = _end_of_tag(page, begin, end)
    name, closing = tag_name[1].lower(), page[begin + 1] == "/"
    inside = page[tag_name.end() : min(end, begin + _LONGEST_TAG)]
    if not closing and name in _SKIPPED and not inside.endswith("/"):
        end_tag = re.compile(rf"</{re.escape(name)}[\s>/]", re.IGNORECASE).search(page, end)
        return len(page) if end_tag is None else max(page.find(">", end_tag.start()) + 1, end_tag.end())
    if closing:
        writer.close(name)
    else:
        writer.open(name, inside)
    return end + 1


def _end_of_tag(page: str, begin: int, end: int) -> int:
    """Return the end of a tag: the first `>` outside quotes, up to the longest allowed tag."""
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
    """A writer that turns the elements of a page into text."""

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
        """Write text with white space collapsed, except in preformatted elements."""
        content = unescape(piece)
        if not self._preformatted:
            content = _BLANKS.sub(" ", content)
            if self._break or not self._out:
                content = content.lstrip(" ")
            elif content.startswith(" ") and self._out[-1].endswith((" ", "\n")):
                content = content[1:]
        if content:
            self._write(content)

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
        elif name == "img" and (shown := unescape(_attribute(inside, "alt")).strip()):
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
        """Return the absolute target of a link, or an empty text if it only works in a browser."""
        address = unescape(link).strip()
        if not address or address.startswith("#") or len(address) > _LONGEST_LINK or self._room_for_links <= 0:
            return ""
        try:
            whole = ada_url.join_url(self._base, address)
        except ValueError:
            return ""
        # A short link on a page with a long address grows when it becomes absolute.
        self._room_for_links -= len(whole)
        return whole if whole.startswith(("http://", "https://", "mailto:")) else ""


def _attribute(inside: str, wanted: str) -> str:
    for match in _ATTRIBUTE.finditer(inside):
        if match[1].lower() == wanted:
            return match[2] or match[3] or match[4] or ""
    return ""


_LONGEST_LAID_OUT: Final = 1_000_000
_SNIFFED: Final = 4_096

# Python codecs that pages use; others decompress, escape, or take quadratic time.
_CHARSETS: Final = frozenset(
    (
        "utf-8 utf-8-sig ascii utf-16 utf-16-le utf-16-be iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 "
        "iso8859-9 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 "
        "cp874 koi8-r koi8-u mac-roman shift_jis euc_jp iso2022_jp gb2312 gbk gb18030 big5 euc_kr"
    ).split()
)
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_TEXTUAL = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|toml|javascript|ecmascript|graphql|sql|x-(?:yaml|sh|javascript|ndjson|www-form-urlencoded))"
    r"|application/(?:json-seq|ndjson|jsonl)|image/svg\+xml|message/.*"
)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@record
class Media:
    """The media type and charset that a server declares."""

    kind: str
    charset: str = ""

    @classmethod
    def of(cls, content_type: str) -> "Media":
        """Parse a `Content-Type` header."""
        kind, _, parameters = content_type[:512].partition(";")
        match = _CHARSET.search(parameters)
        return cls(kind.strip().lower(), match[1] if match else "")


def decode_text(body: bytes, media: Media) -> str | None:
    """Decode a text, or return None if the body is not text."""
    if not (
        _TEXTUAL.fullmatch(media.kind) or (media.kind in {"", "application/octet-stream", "binary/octet-stream"} and _looks_like_text(body))
    ):
        return None
    charset = next((name for mark, name in _MARKS if body.startswith(mark)), "") or _known_charset(media.charset)
    if not charset and "html" in media.kind:
        match = _CHARSET.search(body[:_SNIFFED].decode("latin-1"))
        charset = _known_charset(match[1]) if match else ""
    return body.decode(charset or "utf-8", "replace")


def render_text(text: str, media: Media, base: str) -> str:
    """Return a text in readable form; links of a page are relative to `base`."""
    if media.kind in {"text/html", "application/xhtml+xml"} or (
        not media.kind and text[:_SNIFFED].lstrip().lower().startswith("<!doctype html")
    ):
        text = page_text(text, base)
    elif media.kind.endswith(("/json", "+json")):
        text = _laid_out(text)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def _known_charset(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name if charset else ""
    except LookupError:
        return ""
    return name if name in _CHARSETS else ""


def _looks_like_text(body: bytes) -> bool:
    head = body[:_SNIFFED]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _laid_out(text: str) -> str:
    """Return JSON with one value per line, or unchanged if that would be much longer or it is not JSON."""
    if len(text) > _LONGEST_LAID_OUT:
        return text
    room = 4 * len(text) + 4_096
    pieces: list[str] = []
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            room -= len(piece)
            if room < 0:
                return text
            pieces.append(piece)
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)
