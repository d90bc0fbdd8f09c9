"""What a server sent as something to read: characters from bytes, JSON laid out, pages as text with their links.

Everything here reads on in one direction and makes nothing much longer than it was, because whoever wrote the page may be hostile.
"""

import codecs
import json
import re
from dataclasses import dataclass
from typing import Final

from curtainwall.tools.fetch.html import page_text

_LONGEST_LAID_OUT: Final = 1_000_000
_SNIFFED: Final = 4_096

# Codecs of Python that pages are written in; others unpack, escape, or take a square of the time.
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


@dataclass(frozen=True, slots=True)
class Media:
    """What a server says its answer is."""

    kind: str
    charset: str = ""

    @classmethod
    def of(cls, content_type: str) -> "Media":
        """Return what a `Content-Type` says."""
        kind, _, parameters = content_type[:512].partition(";")
        told = _CHARSET.search(parameters)
        return cls(kind.strip().lower(), told[1] if told else "")


def decoded(body: bytes, media: Media) -> str | None:
    """Return the characters of a text, or None for what is no text."""
    if not (
        _TEXTUAL.fullmatch(media.kind) or (media.kind in {"", "application/octet-stream", "binary/octet-stream"} and _looks_like_text(body))
    ):
        return None
    charset = next((name for mark, name in _MARKS if body.startswith(mark)), "") or _known(media.charset)
    if not charset and "html" in media.kind:
        within = _CHARSET.search(body[:_SNIFFED].decode("latin-1"))
        charset = _known(within[1]) if within else ""
    return body.decode(charset or "utf-8", "replace")


def readable(text: str, media: Media, base: str) -> str:
    """Return a text as a person would want to read it; `base` is what a page's links start from."""
    if media.kind in {"text/html", "application/xhtml+xml"} or (
        not media.kind and text[:_SNIFFED].lstrip().lower().startswith("<!doctype html")
    ):
        text = page_text(text, base)
    elif media.kind.endswith(("/json", "+json")):
        text = _laid_out(text)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def _known(charset: str) -> str:
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
    """Return JSON with a line for each value; as it came, where that would be much longer, or is not JSON."""
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
