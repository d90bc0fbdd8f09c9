"""Secrets in text, JSON and streams, each replaced by a stable token that says which secret it was but not what it is."""

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
from curtainwall.facts.secrets.names import EXPECTS, MAX_LINE, MOST_BLOCK_LINES, assigned_secrets, is_login, is_netrc_line, is_secret_key
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
_SHORTEST_KNOWN = 4
_SHORTEST_ENCODED = 6
_DISTINCTIVE, _LONG_KNOWN = 8, 16
_LONGEST_OUTLINE = 400
_MAX_PASSES = 8
_GLANCE = 8
_KEYS_KEPT, _LONGEST_KEPT = 1_000, 40
# Also half an escape, of which the rest may be on its way.
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{1,2}")
# The lines of a key, and what is neither a sign that a shell or a program acts on nor a gap between words.
_BASE64_LINES = re.compile(r"(?:[A-Za-z0-9+/=]{40,}\s+)+")
_LETTERS = re.compile(r"[\w+/=.:,@%~…-]+")


class Piece(NamedTuple):
    """A stretch of a text as it is and as it is shown; a hidden one is a secret, shown as its mask."""

    real: str
    shown: str
    is_hidden: bool


class Masker:
    """Knows the house's own secrets and the shapes of others' ones.

    The same secret has the same token as long as `key` stays the same; without the key a token tells nothing.
    """

    def __init__(self, key: bytes, known: Mapping[str, str] | None = None) -> None:
        self._key = key
        self._forms: dict[str, tuple[str, str]] = {}
        self._starts: set[str] = set()
        self._keys: dict[str, tuple[str, str | None]] = {}
        for name, value in (known or {}).items():
            self.learn(name, value)

    def learn(self, name: str, value: str) -> None:
        """Mask a value from now on, in every spelling; whoever hands it out calls this first."""
        new = {form: (_kind_of(name), value) for form in _forms_of(value)}
        # Others may be masking in a thread meanwhile, so what they look at stays as it is.
        self._forms = {**new, **self._forms}
        self._starts = {form[:size] for form in self._forms for size in range(1, min(_GLANCE, len(form)))}
        self._keys = {}

    def holds_known(self, text: str) -> bool:
        """Tell whether a known secret stands in a text, in any spelling."""
        return next(self._known_secrets(text), None) is not None

    def credential_in(self, value: JsonValue) -> str | None:
        """Return the name of a known credential in a text or JSON value, at any depth; None if there is none.

        A value that is an ordinary word, such as the `postgres` of a test database, is masked but gives no credential away.
        """
        for text in _texts_in(value):
            for span in self._known_secrets(text):
                if _is_distinctive(span.secret):
                    return span.kind
        return None

    def outlines(self, value: JsonValue, masked: JsonValue) -> dict[str, str]:
        """Return for each mask that a masked value has and the value has not what it hides, in outline."""
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
        """Return where in a text a known secret may have begun that has not ended yet; the text's length if nowhere."""
        return min(self._begun(each) for each in _readings(text))

    def _begun(self, text: str) -> int:
        size = first = len(text)
        for form in self._forms:
            at = text.find(form[:_GLANCE], max(0, size - len(form) + 1))
            while at >= 0 and not form.startswith(text[at:]):
                at = text.find(form[:_GLANCE], at + 1)
            first = min(first, at if at >= 0 else size)
        return min([first, *(at for at in range(max(0, size - _GLANCE), size) if text[at:] in self._starts)])

    def mask_text(self, text: str) -> str:
        """Return the text with every secret replaced; what is masked already stays as it is."""
        spans = self.spans(text)
        return "".join(piece.shown for piece in self._pieces(text, spans)) if spans else text

    def pieces(self, text: str) -> list[Piece]:
        """Return the text cut where secrets begin and end, for whoever shows a part of it or changes it."""
        return self._pieces(text, self.spans(text))

    def _pieces(self, text: str, spans: list[Span]) -> list[Piece]:
        found = [_plain(text)]
        for _ in range(_MAX_PASSES):
            if not spans:
                break
            found = list(self._hidden(found, spans))
            # What stood beside a secret may be one itself when read on its own.
            spans = self.spans("".join(piece.shown for piece in found))
        return found

    def mask_json(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret replaced, at any depth, in keys as well; numbers are kept."""
        return self._json(value, None, 0)

    def spans(self, text: str) -> list[Span]:
        """Return the stretches of a text to mask, in order, none overlapping another or a mask."""
        found = [
            *self._known_secrets(text),
            *shaped_secrets(text),
            *private_keys(text),
            *assigned_secrets(text, lowered(text)),
        ]
        if not found:
            return found
        masks = [mask.span() for mask in MASK.finditer(text)] if MASK_START in text else []
        found.sort(key=lambda span: (span.start, span.rank))
        merged: list[Span] = []
        passed = 0
        for span in found:
            while passed < len(masks) and masks[passed][1] <= span.start:
                passed += 1
            if passed < len(masks) and masks[passed][0] < span.end:
                continue
            last = merged[-1] if merged else None
            if last is None or span.start >= last.end:
                merged.append(span)
                continue
            first = min(last, span, key=lambda each: each.rank)
            end = max(last.end, span.end)
            whole = (first.start, first.end) == (last.start, end)
            merged[-1] = Span(last.start, end, first.rank, first.kind, first.secret if whole else text[last.start : end])
        return merged

    def _hidden(self, pieces: Iterable[Piece], spans: list[Span]) -> Iterator[Piece]:
        # INVARIANT: no span overlaps a mask, so each lies in one piece that is not hidden yet.
        at = passed = 0
        for piece in pieces:
            start, end = at, at + len(piece.shown)
            while passed < len(spans) and spans[passed].start < end:
                span = spans[passed]
                if start < span.start:
                    yield _plain(piece.real[start - at : span.start - at])
                yield Piece(piece.real[span.start - at : span.end - at], self._token(span.kind, span.secret), is_hidden=True)
                start, passed = span.end, passed + 1
            if start == at:
                yield piece
            elif start < end:
                yield _plain(piece.real[start - at :])
            at = end

    def _token(self, kind: str, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"{MASK_START}{kind}:{digest[:8]}]"

    def _known_secrets(self, text: str) -> Iterator[Span]:
        for reading in _readings(text):
            for form, (kind, value) in self._forms.items():
                at = reading.find(form)
                while at >= 0:
                    yield Span(at, at + len(form), 0, kind, value)
                    at = reading.find(form, at + len(form))

    def _json(self, value: JsonValue, kind: str | None, depth: int) -> JsonValue:
        if depth > _MAX_DEPTH:
            raise Unclear(f"the value is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(value, str):
            return self.mask_text(value) if kind is None else self._whole(kind, value)
        if isinstance(value, list):
            match value:
                case [str(name), str(item)] if kind is None and not name.count(" ") and (named := is_secret_key(name)):
                    # `["authorization", "…"]`, as in lists of headers; a list of words stays as it is.
                    return [self.mask_text(name), self._whole(named, item) if self._is_pair(name, item) else self.mask_text(item)]
                case _:
                    return [self._json(item, kind, depth + 1) for item in value]
        if isinstance(value, dict):
            # `{"name": "API_TOKEN", "value": "…"}`, as in lists of headers and variables.
            label_value = next((name for label in ("name", "key", "Name", "Key") if isinstance(name := value.get(label), str)), "")
            named = is_secret_key(label_value)
            masked: dict[str, JsonValue] = {}
            for key, item in value.items():
                shown, secret = self._key_of(key)
                if secret is None and isinstance(item, str) and is_login(key, item):
                    secret = "auth"  # noqa: S105 - the kind of secret
                masked[shown] = self._json(item, named if named and key.lower() == "value" else secret, depth + 1)
            return masked
        return value

    def _is_pair(self, name: str, value: str) -> bool:
        return self.mask_text(f"[{json.dumps(name)}, {json.dumps(value)}]") != f"[{json.dumps(name)}, {json.dumps(value)}]"

    def _key_of(self, key: str) -> tuple[str, str | None]:
        """Return a key as it is shown, and which kind of secret it names; most keys come again and again."""
        # Kept under what is known now: whoever learns meanwhile begins a new one.
        keys = self._keys
        found = keys.get(key)
        if found is None:
            found = self.mask_text(key), is_secret_key(key)
            if len(key) <= _LONGEST_KEPT and len(keys) < _KEYS_KEPT:
                keys[key] = found
        return found

    def _whole(self, kind: str, value: str) -> str:
        """Mask all of a value that its key calls a secret."""
        if not value.strip() or MASK.search(value):
            return self.mask_text(value)
        for span in self.spans(value):
            if (span.start, span.end) == (0, len(value)):
                return self._token(span.kind, span.secret)
        return self._token(kind, value)


def _plain(text: str) -> Piece:
    return Piece(text, text, is_hidden=False)


def outline_of(secret: str) -> str:
    """Return what a hidden value is made of, without its letters and digits: enough to see whether it could act."""
    words = _BASE64_LINES.sub("…", secret)
    outline = _LETTERS.sub("…", words)
    if outline == "…":
        return "letters and digits"
    cut = f" …[{len(outline) - _LONGEST_OUTLINE} characters cut]" if len(outline) > _LONGEST_OUTLINE else ""
    return f"{outline[:_LONGEST_OUTLINE]}{cut}"


def masks_in(text: str) -> list[str]:
    """Return the masks in a text, in order."""
    return MASK.findall(text) if MASK_START in text else []


def contains_mask(value: JsonValue) -> str | None:
    """Return the first mask in a text or JSON value, at any depth, in keys as well; None if there is none."""
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found = MASK.search(item) if MASK_START in item else None
            if found:
                return found[0]
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
    return len(secret) >= _LONG_KNOWN or (len(secret) >= _DISTINCTIVE and not secret.isalpha())


def _kind_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:64] or "credential"


def _forms_of(value: str) -> set[str]:
    """Return the spellings of a known secret: as it is, escaped for JSON, URLs and HTML, and in Base64 wherever it stands in the bytes."""
    if len(value.strip()) < _SHORTEST_KNOWN:
        return set()
    escaped = json.dumps(value)[1:-1]
    unescaped = json.dumps(value, ensure_ascii=False)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    url = quote(data, safe="")
    forms = {value, value.strip(), escaped, unescaped, json.dumps(escaped)[1:-1], url, quote_plus(data), quote(data)}
    # As a page writes it that is asked for raw.
    page = html.escape(value)
    forms |= {page, page.replace("&#x27;", "&#39;"), html.escape(value, quote=False)}
    if len(data) < _SHORTEST_ENCODED:
        return forms
    forms.add(base64.b64encode(data).decode().rstrip("="))
    for before in range(3):
        # The first letters depend on what stands before the secret, the last on what follows.
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        steady = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        forms |= {steady, steady.replace("+", "-").replace("/", "_")}
    return {*forms, data.hex(), data.hex().upper()}


def _readings(text: str) -> tuple[str, ...]:
    """Return a text as it is, and where that is different, with its escapes for URLs in capitals; both are equally long."""
    if "%" not in text:
        return (text,)
    capitals = _ESCAPE.sub(lambda found: found[0].upper(), text)
    return (text,) if capitals == text else (text, capitals)


# Words after which a secret may follow in the same line, behind blanks.
_EXPECTS = re.compile(
    rf"{EXPECTS.pattern}|-----|machine[ \t]|default[ \t]|curl|mysql|mariadb|docker|podman|buildah|helm|oras|:(?:5432|\*):|[\[(][ \t]*[\"']"
    r"|(?:name|value)[\"']?[ \t]*[:=]",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[:=>][ \t]{0,64}(?:[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?)?\r?\n?\Z")
_PAIR_GOES_ON = re.compile(r"(?:[\"'],?|[\[(,])[ \t]{0,64}\r?\n?\Z")
_LAST_GAP = re.compile(r"[ \t\n](?=[^ \t\n]*\Z)")
_SOMETHING = ". "
_MOST_HELD = 4 * MAX_PEM
_LOOKED_AT = 32 * 1024
_MARGIN = 8 * 1024


class StreamMasker:
    """Masks a text piece by piece: all that is given out, put together, is the masked whole.

    Up to one line is held back, a private key to its end, and never more than 128 KiB of what might be a secret.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""
        self._before = ""

    def feed(self, piece: str) -> str:
        """Take the next piece and return what can be shown now."""
        self._held += piece
        cut = self._safe_cut()
        out, self._held = self._held[:cut], self._held[cut:]
        return self._masked(out)

    def finish(self) -> str:
        """Return the rest."""
        out, self._held = self._held, ""
        return self._masked(out)

    def _masked(self, out: str) -> str:
        if not out:
            return ""
        shown = self._masker.mask_text(self._before + out)[len(self._before) :]
        # What goes on in the middle of a line must not be taken for its beginning.
        self._before = "" if out.endswith("\n") else _SOMETHING
        return shown

    def _safe_cut(self) -> int:
        """Return how much of what is held cannot be part of a secret that goes on."""
        held = self._held
        limit = self._masker.begun_known(held)
        begun = held.find(PEM_START)
        while begun >= 0:
            ended = held.find("-----END ", begun)
            closed = held.find("-----", ended + 9) if ended >= 0 else -1
            if closed < 0 and len(held) - begun <= 2 * MAX_PEM:
                # The line in front of a key may make it part of something longer.
                limit = min(limit, held.rfind("\n", 0, begun) + 1)
                break
            begun = held.find(PEM_START, begun + 1)
        line = held.rfind("\n", 0, limit) + 1
        gap = _LAST_GAP.search(held, line, limit) if not _EXPECTS.search(held, line, limit) else None
        # How far a line is indented counts, so what it begins with is not given out alone.
        cut = gap.end() if gap and not LINE_PREFIX.fullmatch(held, line, gap.end()) else line
        if len(held) - cut > _MOST_HELD:
            cut = len(held) - _MOST_HELD // 2
        cut = begun_before(held, cut)
        for span in reversed(self._masker.spans(held)):
            if span.start < cut < span.end:
                # What stands in front, in the same line, may be why it is a secret.
                start = held.rfind("\n", 0, span.start) + 1
                cut = begun_before(held, start) if len(held) - start <= _MOST_HELD else span.end
        return cut


def masked_excerpt(masker: Masker, text: str, limit: int) -> str:
    """Return the beginning of a text without secrets, nor the first part of one that is cut off; a text of any length takes little time."""
    if len(text) <= _LOOKED_AT:
        shown = masker.mask_text(text)
    else:
        looked_at, shown = text[:_LOOKED_AT], ""
        # A secret that begins before this is whole in what was looked at, or known not to be.
        room = min(masker.begun_known(looked_at), _LOOKED_AT - _MARGIN)
        for piece in masker.pieces(looked_at):
            shown += piece.shown if piece.is_hidden else piece.shown[: max(room, 0)]
            room -= len(piece.real)
            if room <= 0:
                break
        shown += "…"
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def begun_before(text: str, end: int) -> int:
    """Return from which line on a text up to here may be part of a secret that goes on in the lines behind it."""
    body = body_before(text, end, last_key_end(text, end), BEGUN_PREFIX)
    first = text.rfind("\n", 0, body) + 1 if body < end else end
    at = text.rfind("\n", 0, first) + 1
    line = text[at:first]
    for _ in range(MOST_BLOCK_LINES + 16):
        if _goes_on(line):
            first = min(first, at)
        elif len(line.lstrip(" \t+-").split(maxsplit=1)) > 1 or len(line) > MAX_LINE:
            break
        if at == 0:
            break
        above = text.rfind("\n", 0, at - 1) + 1
        line, at = text[above:at], above
    return first


def _goes_on(line: str) -> bool:
    """Tell whether what a line ends in may give a secret away that begins on the next."""
    last = line[-400:]
    return bool(_GOES_ON.search(last)) or is_netrc_line(line.rstrip("\n")) or bool(_PAIR_GOES_ON.search(last) and EXPECTS.search(last))
