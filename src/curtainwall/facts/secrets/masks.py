"""Masks secrets in text, JSON and streams: each becomes a stable token that identifies the secret without revealing it."""

import base64
import hashlib
import hmac
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

from curtainwall.facts.refusal import Unclear
from curtainwall.facts.secrets.names import (
    EXPECTS,
    MAX_LINE,
    MOST_BLOCK_LINES,
    assigned_secrets,
    is_login,
    is_netrc_line,
    is_secret_key,
    is_working_directory,
)
from curtainwall.facts.secrets.shapes import (
    BEGUN_PREFIX,
    LINE_PREFIX,
    MASK,
    MASK_START,
    MAX_PEM,
    PEM_START,
    Span,
    body_before,
    last_key_end,
    lowered,
    private_keys,
    shaped_secrets,
)

_MAX_DEPTH = 200
_MIN_KNOWN = 4
_MIN_ENCODED = 6
_MIN_DISTINCTIVE, _ALWAYS_DISTINCTIVE = 8, 16
_MAX_OUTLINE = 400
_MAX_PASSES = 8
_PREFIX_SIZE = 8
_MAX_CACHED_KEYS, _MAX_CACHED_LENGTH = 1_000, 40
# Also half an escape, whose rest may still arrive.
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{1,2}")
# The lines of a key; and characters that neither separate words nor mean anything to a shell or a program.
_BASE64_LINES = re.compile(r"(?:[A-Za-z0-9+/=]{40,}\s+)+")
_LETTERS = re.compile(r"[\w+/=.:,@%~…-]+")


class Piece(NamedTuple):
    """A part of a text as it is and as it is shown; a hidden one is a secret, shown as its mask."""

    real: str
    shown: str
    is_hidden: bool


class Masker:
    """Masks the configured secrets, and other text that looks like a secret.

    The same secret gets the same token as long as `key` stays the same; without the key a token reveals nothing.
    """

    def __init__(self, key: bytes, known: Mapping[str, str] | None = None) -> None:
        self._key = key
        self._forms: dict[str, tuple[str, str]] = {}
        self._starts: set[str] = set()
        self._keys: dict[str, tuple[str, str | None]] = {}
        for name, value in (known or {}).items():
            self.learn(name, value)

    def learn(self, name: str, value: str) -> None:
        """Mask a value from now on, in every encoding; call this before handing the value out."""
        new = {form: (_kind_of(name), value) for form in _forms_of(value)}
        # Other threads may be masking meanwhile, so never change the objects that they read.
        self._forms = {**new, **self._forms}
        self._starts = {form[:size] for form in self._forms for size in range(1, min(_PREFIX_SIZE, len(form)))}
        self._keys = {}

    def holds_known(self, text: str) -> bool:
        """Tell whether a text contains a known secret, in any encoding."""
        return next(self._known_secrets(text), None) is not None

    def credential_in(self, value: JsonValue) -> str | None:
        """Return the name of a known credential in a text or JSON value, at any depth; None if there is none.

        A value that is an ordinary word, such as the `postgres` of a test database, is masked but does not count as a credential here.
        """
        for text in _texts_in(value):
            for span in self._known_secrets(text):
                if _is_distinctive(span.secret):
                    return span.kind
        return None

    def outlines(self, value: JsonValue, masked: JsonValue) -> dict[str, str]:
        """Return an outline of the hidden text for each mask that a masked value has and the original does not."""
        if isinstance(value, str) and isinstance(masked, str):
            if value == masked:
                return {}
            if MASK.fullmatch(masked):
                return {masked: outline_of(value)}
            return {piece.shown: outline_of(piece.real) for piece in self.pieces(value) if piece.is_hidden}
        pairs: Iterable[tuple[JsonValue, JsonValue]] = ()
        if isinstance(value, list) and isinstance(masked, list):
            pairs = zip(value, masked, strict=True)
        elif isinstance(value, dict) and isinstance(masked, dict):
            pairs = (pair for old, new in zip(value.items(), masked.items(), strict=False) for pair in zip(old, new, strict=True))
        return {mask: outline for old, new in pairs for mask, outline in self.outlines(old, new).items()}

    def begun_known(self, text: str) -> int:
        """Return where an unfinished known secret may begin in a text; the text's length if nowhere."""
        return min(self._unfinished_start(reading) for reading in _readings(text))

    def _unfinished_start(self, text: str) -> int:
        size = first = len(text)
        for form in self._forms:
            position = text.find(form[:_PREFIX_SIZE], max(0, size - len(form) + 1))
            while position >= 0 and not form.startswith(text[position:]):
                position = text.find(form[:_PREFIX_SIZE], position + 1)
            first = min(first, position if position >= 0 else size)
        return min([first, *(position for position in range(max(0, size - _PREFIX_SIZE), size) if text[position:] in self._starts)])

    def mask_text(self, text: str) -> str:
        """Return the text with every secret replaced; existing masks are kept."""
        spans = self.spans(text)
        return "".join(piece.shown for piece in self._pieces(text, spans)) if spans else text

    def pieces(self, text: str) -> list[Piece]:
        """Split the text where secrets begin and end, for callers that show or change a part of it."""
        return self._pieces(text, self.spans(text))

    def _pieces(self, text: str, spans: list[Span]) -> list[Piece]:
        pieces = [_plain(text)]
        for _ in range(_MAX_PASSES):
            if not spans:
                break
            pieces = list(self._hide(pieces, spans))
            # Once a secret is masked, the text next to it may itself look like a secret.
            spans = self.spans("".join(piece.shown for piece in pieces))
        return pieces

    def mask_json(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret replaced, at any depth and in keys too; numbers are kept."""
        return self._mask_json(value, None, 0)

    def spans(self, text: str) -> list[Span]:
        """Return the parts of a text to mask, in order; none overlaps another or a mask."""
        candidates = [
            *self._known_secrets(text),
            *shaped_secrets(text),
            *private_keys(text),
            *assigned_secrets(text, lowered(text)),
        ]
        if not candidates:
            return candidates
        masks = [mask.span() for mask in MASK.finditer(text)] if MASK_START in text else []
        candidates.sort(key=lambda span: (span.start, span.rank))
        merged: list[Span] = []
        mask_index = 0
        for span in candidates:
            while mask_index < len(masks) and masks[mask_index][1] <= span.start:
                mask_index += 1
            if mask_index < len(masks) and masks[mask_index][0] < span.end:
                continue
            last = merged[-1] if merged else None
            if last is None or span.start >= last.end:
                merged.append(span)
                continue
            first = min(last, span, key=lambda each: each.rank)
            end = max(last.end, span.end)
            is_whole = (first.start, first.end) == (last.start, end)
            merged[-1] = Span(last.start, end, first.rank, first.kind, first.secret if is_whole else text[last.start : end])
        return merged

    def _hide(self, pieces: Iterable[Piece], spans: list[Span]) -> Iterator[Piece]:
        # INVARIANT: no span overlaps a mask, so each is within one piece that is not hidden yet.
        offset = span_index = 0
        for piece in pieces:
            start, end = offset, offset + len(piece.shown)
            while span_index < len(spans) and spans[span_index].start < end:
                span = spans[span_index]
                if start < span.start:
                    yield _plain(piece.real[start - offset : span.start - offset])
                yield Piece(piece.real[span.start - offset : span.end - offset], self._token(span.kind, span.secret), is_hidden=True)
                start, span_index = span.end, span_index + 1
            if start == offset:
                yield piece
            elif start < end:
                yield _plain(piece.real[start - offset :])
            offset = end

    def _token(self, kind: str, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"{MASK_START}{kind}:{digest[:8]}]"

    def _known_secrets(self, text: str) -> Iterator[Span]:
        for reading in _readings(text):
            for form, (kind, value) in self._forms.items():
                position = reading.find(form)
                while position >= 0:
                    yield Span(position, position + len(form), 0, kind, value)
                    position = reading.find(form, position + len(form))

    def _mask_json(self, value: JsonValue, kind: str | None, depth: int) -> JsonValue:
        if depth > _MAX_DEPTH:
            raise Unclear(f"the value is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(value, str):
            return self.mask_text(value) if kind is None else self._mask_whole(kind, value)
        if isinstance(value, list):
            match value:
                case [str(name), str(item)] if kind is None and not name.count(" ") and (named := is_secret_key(name)):
                    # `["authorization", "…"]`, as in lists of headers; a list of words is left alone.
                    return [self.mask_text(name), self._mask_whole(named, item) if self._is_pair(name, item) else self.mask_text(item)]
                case _:
                    return [self._mask_json(item, kind, depth + 1) for item in value]
        if isinstance(value, dict):
            # `{"name": "API_TOKEN", "value": "…"}`, as in lists of headers and variables.
            label_value = next((name for label in ("name", "key", "Name", "Key") if isinstance(name := value.get(label), str)), "")
            named = is_secret_key(label_value)
            masked: dict[str, JsonValue] = {}
            for key, item in value.items():
                shown, secret = self._key_of(key)
                if secret is None and isinstance(item, str) and is_login(key, item):
                    secret = "auth"  # noqa: S105 - the kind of secret
                name, secret_kind = (label_value, named) if named and key.lower() == "value" else (key, secret)
                if secret_kind and isinstance(item, str) and is_working_directory(name, item):
                    secret_kind = None
                masked[shown] = self._mask_json(item, secret_kind, depth + 1)
            return masked
        return value

    def _is_pair(self, name: str, value: str) -> bool:
        return self.mask_text(f"[{json.dumps(name)}, {json.dumps(value)}]") != f"[{json.dumps(name)}, {json.dumps(value)}]"

    def _key_of(self, key: str) -> tuple[str, str | None]:
        """Return a key as it is shown, and the kind of secret it names; cached, because most keys recur."""
        # Use the cache of this moment: `learn` in another thread replaces it.
        keys = self._keys
        entry = keys.get(key)
        if entry is None:
            entry = self.mask_text(key), is_secret_key(key)
            if len(key) <= _MAX_CACHED_LENGTH and len(keys) < _MAX_CACHED_KEYS:
                keys[key] = entry
        return entry

    def _mask_whole(self, kind: str, value: str) -> str:
        """Mask the whole of a value whose key says that it is a secret."""
        if not value.strip() or MASK.search(value):
            return self.mask_text(value)
        for span in self.spans(value):
            if (span.start, span.end) == (0, len(value)):
                return self._token(span.kind, span.secret)
        return self._token(kind, value)


def _plain(text: str) -> Piece:
    return Piece(text, text, is_hidden=False)


def outline_of(secret: str) -> str:
    """Return a hidden value without its letters and digits: enough to see whether a shell or program could act on it."""
    words = _BASE64_LINES.sub("…", secret)
    outline = _LETTERS.sub("…", words)
    if outline == "…":
        return "letters and digits"
    cut = f" …[{len(outline) - _MAX_OUTLINE} characters cut]" if len(outline) > _MAX_OUTLINE else ""
    return f"{outline[:_MAX_OUTLINE]}{cut}"


def masks_in(text: str) -> list[str]:
    """Return the masks in a text, in order."""
    return MASK.findall(text) if MASK_START in text else []


def contains_mask(value: JsonValue) -> str | None:
    """Return the first mask in a text or JSON value, at any depth and in keys too; None if there is none."""
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            match = MASK.search(item) if MASK_START in item else None
            if match:
                return match[0]
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            for key, inner in reversed(item.items()):
                stack += (inner, key)
    return None


def _texts_in(value: JsonValue) -> Iterator[str]:
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            stack += (*item, *item.values())


def _is_distinctive(secret: str) -> bool:
    return len(secret) >= _ALWAYS_DISTINCTIVE or (len(secret) >= _MIN_DISTINCTIVE and not secret.isalpha())


def _kind_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:64] or "credential"


def _forms_of(value: str) -> set[str]:
    """Return the encodings of a known secret: plain, escaped for JSON, URLs and HTML, hex, and Base64 at any byte offset."""
    if len(value.strip()) < _MIN_KNOWN:
        return set()
    escaped = json.dumps(value)[1:-1]
    unescaped = json.dumps(value, ensure_ascii=False)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    url = quote(data, safe="")
    forms = {value, value.strip(), escaped, unescaped, json.dumps(escaped)[1:-1], url, quote_plus(data), quote(data)}
    # As it appears in a page that is fetched raw.
    page = html.escape(value)
    forms |= {page, page.replace("&#x27;", "&#39;"), html.escape(value, quote=False)}
    if len(data) < _MIN_ENCODED:
        return forms
    forms.add(base64.b64encode(data).decode().rstrip("="))
    for before in range(3):
        # The first letters depend on what precedes the secret, the last on what follows.
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        steady = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        forms |= {steady, steady.replace("+", "-").replace("/", "_")}
    return {*forms, data.hex(), data.hex().upper()}


def _readings(text: str) -> tuple[str, ...]:
    """Return a text, and if it differs, the same text with its URL escapes in capitals; both have the same length."""
    if "%" not in text:
        return (text,)
    capitals = _ESCAPE.sub(lambda match: match[0].upper(), text)
    return (text,) if capitals == text else (text, capitals)


# Words after which a secret may follow in the same line, after blanks.
_EXPECTS = re.compile(
    rf"{EXPECTS.pattern}|-----|machine[ \t]|default[ \t]|curl|mysql|mariadb|docker|podman|buildah|helm|oras|:(?:5432|\*):|[\[(][ \t]*[\"']"
    r"|(?:name|value)[\"']?[ \t]*[:=]",
    re.IGNORECASE,
)
_ANNOUNCES_VALUE = re.compile(r"[:=>][ \t]{0,64}(?:[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?)?\r?\n?\Z")
_ANNOUNCES_PAIR = re.compile(r"(?:[\"'],?|[\[(,])[ \t]{0,64}\r?\n?\Z")
_LAST_GAP = re.compile(r"[ \t\n](?=[^ \t\n]*\Z)")
_LINE_FILLER = ". "
_MAX_HELD = 4 * MAX_PEM
_EXCERPT_INPUT = 32 * 1024
_MARGIN = 8 * 1024


class StreamMasker:
    """Masks a text piece by piece: the output, joined, is the masked whole.

    It holds back up to one line, or a private key to its end, and never more than 128 KiB of what might be a secret.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""
        self._before = ""

    def feed(self, piece: str) -> str:
        """Add the next piece and return what can be shown now."""
        self._held += piece
        cut = self._safe_cut()
        out, self._held = self._held[:cut], self._held[cut:]
        return self._mask(out)

    def finish(self) -> str:
        """Return the rest."""
        out, self._held = self._held, ""
        return self._mask(out)

    def _mask(self, out: str) -> str:
        if not out:
            return ""
        shown = self._masker.mask_text(self._before + out)[len(self._before) :]
        # The next output must not look like the beginning of a line if it continues one.
        self._before = "" if out.endswith("\n") else _LINE_FILLER
        return shown

    def _safe_cut(self) -> int:
        """Return how much of the held text cannot be part of an unfinished secret."""
        held = self._held
        limit = self._masker.begun_known(held)
        key_start = held.find(PEM_START)
        while key_start >= 0:
            end_marker = held.find("-----END ", key_start)
            end_closing = held.find("-----", end_marker + 9) if end_marker >= 0 else -1
            if end_closing < 0 and len(held) - key_start <= 2 * MAX_PEM:
                # The line before a key may make it part of something longer.
                limit = min(limit, held.rfind("\n", 0, key_start) + 1)
                break
            key_start = held.find(PEM_START, key_start + 1)
        line = held.rfind("\n", 0, limit) + 1
        gap = _LAST_GAP.search(held, line, limit) if not _EXPECTS.search(held, line, limit) else None
        # The indentation of a line matters, so never output the beginning of a line alone.
        cut = gap.end() if gap and not LINE_PREFIX.fullmatch(held, line, gap.end()) else line
        if len(held) - cut > _MAX_HELD:
            cut = len(held) - _MAX_HELD // 2
        cut = begun_before(held, cut)
        for span in reversed(self._masker.spans(held)):
            if span.start < cut < span.end:
                # What precedes it in the same line may be why it is a secret.
                start = held.rfind("\n", 0, span.start) + 1
                cut = begun_before(held, start) if len(held) - start <= _MAX_HELD else span.end
        return cut


def masked_excerpt(masker: Masker, text: str, limit: int) -> str:
    """Return the masked beginning of a text, without the first part of a secret that is cut off; fast for a text of any length."""
    if len(text) <= _EXCERPT_INPUT:
        shown = masker.mask_text(text)
    else:
        head, shown = text[:_EXCERPT_INPUT], ""
        # A secret that begins before this point is complete in the examined part, or known not to be.
        remaining = min(masker.begun_known(head), _EXCERPT_INPUT - _MARGIN)
        for piece in masker.pieces(head):
            shown += piece.shown if piece.is_hidden else piece.shown[: max(remaining, 0)]
            remaining -= len(piece.real)
            if remaining <= 0:
                break
        shown += "…"
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def begun_before(text: str, end: int) -> int:
    """Return the start of the lines before `end` that may be part of a secret which continues after it."""
    body = body_before(text, end, last_key_end(text, end), BEGUN_PREFIX)
    first = text.rfind("\n", 0, body) + 1 if body < end else end
    line_start = text.rfind("\n", 0, first) + 1
    line = text[line_start:first]
    for _ in range(MOST_BLOCK_LINES + 16):
        if _announces_secret(line):
            first = min(first, line_start)
        elif len(line.lstrip(" \t+-").split(maxsplit=1)) > 1 or len(line) > MAX_LINE:
            break
        if line_start == 0:
            break
        above = text.rfind("\n", 0, line_start - 1) + 1
        line, line_start = text[above:line_start], above
    return first


def _announces_secret(line: str) -> bool:
    """Tell whether the end of a line announces a secret that begins on the next line."""
    last = line[-400:]
    return (
        bool(_ANNOUNCES_VALUE.search(last))
        or is_netrc_line(line.rstrip("\n"))
        or bool(_ANNOUNCES_PAIR.search(last) and EXPECTS.search(last))
    )
