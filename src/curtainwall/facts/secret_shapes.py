"""Shapes of secrets in text: what gives a credential away by its own letters, and what does so by the name in front of it.

Detection is driven by short literals that each shape must contain, so that plain text costs a few scans. Each pattern is tried only where
its literal stands, and reads on in one direction.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MASK = re.compile(r"\[masked:[A-Za-z0-9._-]{1,64}:[0-9a-f]{4,16}\]")
MASK_START = "[masked:"

PEM_START = "-----BEGIN "
MAX_PEM = 32_768


class Span(NamedTuple):
    """A stretch of text to mask; of spans that overlap, the one of lower rank names the mask."""

    start: int
    end: int
    rank: int
    kind: str
    secret: str


class _Shape(NamedTuple):
    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(kind: str, literals: str, pattern: str) -> _Shape:
    return _Shape(kind, tuple(literals.split()), re.compile(pattern))


_NO_WORD_BEFORE = r"(?<![A-Za-z0-9_-])"
# A pattern with a group masks the group alone.
_SHAPES = (
    _shape("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{8,}"),
    _shape("openai-key", "sk-proj- sk-svcacct- sk-admin-", r"sk-[a-z]+-[A-Za-z0-9_-]{8,}"),
    _shape("api-key", "sk-", _NO_WORD_BEFORE + r"sk-(?:[A-Za-z0-9]{20,}[A-Za-z0-9_-]*|(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,})"),
    _shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    _shape("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{16,}"),
    _shape("gitlab-token", "glpat- glrt- gldt- glptt-", r"gl[a-z]+-[A-Za-z0-9_.-]{16,}"),
    _shape("google-key", "AIza", r"AIza[A-Za-z0-9_-]{30,}"),
    _shape("google-token", "ya29.", _NO_WORD_BEFORE + r"ya29\.[A-Za-z0-9_.-]{20,}"),
    _shape("aws-key", "AKIA ASIA", r"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16,}"),
    _shape("slack-token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("slack-token", "xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
    _shape("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{8,})"),
    _shape("discord-webhook", "/api/webhooks/", r"/api/webhooks/([0-9]{8,}/[A-Za-z0-9_-]{20,})"),
    _shape("jwt", "eyJ", _NO_WORD_BEFORE + r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}"),
    _shape("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    _shape("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=_-]{16,}"),
    _shape("npm-token", "npm_", _NO_WORD_BEFORE + r"npm_[A-Za-z0-9]{30,}"),
    _shape("pypi-token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{20,}"),
    _shape("huggingface-token", "hf_", _NO_WORD_BEFORE + r"hf_[A-Za-z0-9]{20,}"),
    _shape("sendgrid-key", "SG.", _NO_WORD_BEFORE + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _shape("url-password", "://", r"://(?:[^\s/?#@:\"'<>`\\]*:([^\s/?#\"'<>`\\]+)|((?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}))@"),
    _shape(
        "private-key",
        PEM_START,
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:"
        r"(?:(?!-----BEGIN|\[masked:)[\s\S]){0,32000}?-----END [A-Z0-9 ]{0,60}-----"
        # Cut off: lines of Base64 and of headers, then what looks like the beginning of one more.
        r"|(?:(?:\r{0,2}\n|\\+[nr])(?:[ \t\"'+,>|#*-]{0,40}"
        r"(?:[A-Za-z0-9+/=]{1,512}|(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n\\[]{0,200})[ \t\"'+,;)]{0,40})?"
        r"(?=\r{0,2}\n|\\+[nr]|\Z)){0,1000}+(?:(?:\r{0,2}\n|\\+[nr])[ \t\"'+,>|#*-]{0,40}[A-Za-z0-9+/=]{1,2048})?"
        r"(?:[ \t]{1,8}[A-Za-z0-9+/=]{16,2048}){0,64})",
    ),
)

_SHAPE_OF = {literal: shape for shape in _SHAPES for literal in shape.literals}

_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# The lines of a key above its end, read backwards; all but the last are long.
_LINE_END = r"(?:\n\r{0,2}|[nr]\\{1,4})(?:[ \t\"'+,;)]{0,40}[nr]\\{1,4})?(?:[ \t\"'+,;)]{0,39}[ \t\"',;)])?"
_LINE_START = r"[ \t\"',>|#*-]{0,40}(?=\n|[nr]\\|\Z)"
# The first of them may stand behind something else, as in the head of a hunk.
_BODY_BACKWARDS = re.compile(
    rf"[ \t\"'+,>|#*-]{{0,40}}(?:{_LINE_END}[A-Za-z0-9+/=]{{1,512}}{_LINE_START}"
    rf"(?:{_LINE_END}[A-Za-z0-9+/=]{{16,512}}{_LINE_START}){{0,1000}}(?:{_LINE_END}[A-Za-z0-9+/=]{{16,2048}}(?=[ \t\"']))?"
    rf"|{_LINE_END}[A-Za-z0-9+/=]{{16,2048}}(?=[ \t\"']))?"
)

_BEARER = re.compile(r"bearer[ \t]+((?=[A-Za-z_.~+/=-]*[0-9]|[A-Za-z_.~+/=-]{24})[A-Za-z0-9_.~+/=-]{8,})", re.IGNORECASE)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset("password passwd passphrase passcode pwd secret token authorization cookie apikey credential credentials".split())
_SECRET_PAIRS = frozenset(
    (
        "api-key access-key secret-key private-key signing-key encryption-key master-key account-key storage-key auth-key deploy-key "
        "service-key shared-key ssh-key connection-string session-key subscription-key admin-key license-key webhook-secret pass-phrase "
        "pass-word app-key client-key"
    ).split()
)
# Neither a secret nor its end: `token_type` is not one, `password_2` and `secret_value` are.
_TRAILING = frozenset(
    "value text raw base64 b64 b plain plaintext prod production dev staging test old new current default confirm confirmation".split()
)
_COUNTED = frozenset("page next continuation sync cancellation cancel stop eos bos pad unk special sep cls mask prev previous".split())

# In lower case; what `assigned` looks for. Every secret key holds one of them.
_KEY_LITERALS = ("pass", "pwd", "secret", "token", "authorization", "cookie", "credential", "key", "string")
_KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MAX_KEY = 64
_MAX_LINE = 4_400
_ASSIGNS = re.compile(r"(?:\\{0,4}[\"'])?([ \t]{0,8})(=>|:=|=(?!=)|:)([ \t]{0,32})")
_QUOTED = re.compile(r"(\\{0,4}[\"'`])([^\"'`\\\n]{1,4096})\1|(\\{0,4}[\"'`])([^\"'`\\\n]{1,4096})")
_UNQUOTED = re.compile(r"[^\s\"'`,;&|<>(){}\[\]\\]{6,4096}(?![(\[{])")
# A value that begins on the next line, and one that fills the next lines.
_BREAK = re.compile(r"[ \t]{0,32}(?:\r?\n[+-]?|\\{1,4}n)[ \t]{0,64}(?=\\{0,4}[\"'`])")
_IS_KEY = re.compile(r"[ \t]{0,8}:")
_BLOCK = re.compile(r"[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?\r?\n")
_BLOCK_LINE = re.compile(r"([ \t+-][ \t]{0,200})(\S{1,4096})[ \t]{0,32}(?:\r?\n|\Z)|[ \t]{0,200}\r?\n()")
_MOST_BLOCK_LINES = 64
_GOES_ON = re.compile(r"[:=>][ \t]{0,64}(?:[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?)?\r?\n?\Z")
_HEADER = re.compile(r"((?:Basic|Bearer|Token|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256)[ \t]+)?([^\n\"'`\\]{6,8192})", re.IGNORECASE)
_HEADER_QUOTE = re.compile(r"\\{0,4}[\"']")
_PLACEHOLDER = re.compile(r"\$\{?\{?[ \w.:-]+\}?\}?|\{\{?[\w. $-]*\}?\}|<[\w .-]+>|[*x.•-]+|%\(?\w+\)?s?%?|\$\([^)]*\)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(?:[.:]+[A-Za-z_$][A-Za-z0-9_$]*)*\.?")
_ENV_KEY = re.compile(r"[A-Z][A-Z0-9_]*")
_DULL = frozenset(
    "password passwd secret required optional undefined disabled enabled unknown redacted string boolean integer identifier".split()
)


def is_secret_key(name: str) -> str | None:
    """Return what kind of secret a value under this name is (`password`, `token` …), in any style of writing; None for other names."""
    words = [word.lower() for word in _WORDS.findall(name[-_MAX_KEY:])]
    while words and (words[-1] in _TRAILING or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _SECRET_WORDS or last in ("passwords", "secrets", "cookies"):
        return None if last == "token" and before in _COUNTED else last
    if f"{before}-{last}" in _SECRET_PAIRS:
        return f"{before}-{last}"
    return "password" if last == "pass" and name.isupper() else None


def shaped_secrets(text: str) -> Iterator[Span]:
    """Yield what is a secret by its own letters."""
    # Most texts hold none of the literals, and every call is looked at: this line is as short as it can be.
    for literal in [each for each in _SHAPE_OF if each in text]:
        kind, _, pattern = _SHAPE_OF[literal]
        at = text.find(literal)
        while at >= 0:
            found = pattern.match(text, at)
            if found is None:
                at = text.find(literal, at + 1)
                continue
            group = next((number for number in range(1, pattern.groups + 1) if found[number] is not None), 0)
            secret = found[group]
            if not (group and _PLACEHOLDER.fullmatch(secret)) and MASK_START not in secret:
                yield Span(found.start(group), found.end(group), 1, kind, secret)
            at = text.find(literal, max(found.end(), at + 1))
    yield from _ended_keys(text)


def _ended_keys(text: str) -> Iterator[Span]:
    """Yield private keys by their end, for a text that begins inside of one."""
    passed = 0
    at = text.find("-----END ")
    while at >= 0:
        end = _KEY_END.match(text, at)
        if end:
            start = _body_before(text, at, passed)
            passed = end.end()
            if start < at:
                yield Span(start, passed, 1, "private-key", text[start:passed])
        at = text.find("-----END ", at + 1)


def _body_before(text: str, end: int, floor: int = 0) -> int:
    """Return where lines begin that are the body of a private key if it ends here."""
    found = _BODY_BACKWARDS.match(text[max(floor, end - MAX_PEM) : end][::-1])
    body = found[0][::-1] if found else ""
    return end - len(body.lstrip(" \t\r\n\"',>|#*-")) if any(letter.isalnum() for letter in body) else end


def _last_key_end(text: str, end: int) -> int:
    """Return where the last private key before here ends, behind which another body may begin without a new line."""
    at = text.rfind("-----END ", 0, end)
    found = _KEY_END.match(text, at, end) if at >= 0 else None
    return found.end() if found else 0


def begun_before(text: str, end: int) -> int:
    """Return from which line on a text up to here may be part of a secret that goes on in the lines behind it."""
    body = _body_before(text, end, _last_key_end(text, end))
    first = text.rfind("\n", 0, body) + 1 if body < end else end
    at = text.rfind("\n", 0, first) + 1
    line = text[at:first]
    for _ in range(_MOST_BLOCK_LINES + 16):
        if _GOES_ON.search(line[-400:]):
            first = min(first, at)
        elif len(line.lstrip(" \t+-").split(maxsplit=1)) > 1 or len(line) > _MAX_LINE:
            break
        if at == 0:
            break
        above = text.rfind("\n", 0, at - 1) + 1
        line, at = text[above:at], above
    return first


def lowered(text: str) -> str:
    """Return the text in lower case, letter for letter."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()


def assigned_secrets(text: str, lower: str) -> Iterator[Span]:
    """Yield what is a secret by the name that it is assigned to, as in `.env`, YAML, JSON and headers."""
    at = lower.find("bearer")
    while at >= 0:
        found = _BEARER.match(text, at)
        if found and not found[1].startswith(MASK_START):
            yield Span(found.start(1), found.end(1), 2, "bearer", found[1])
        at = lower.find("bearer", at + 6)
    for literal in [each for each in _KEY_LITERALS if each in lower]:
        at = lower.find(literal)
        while at >= 0:
            end = at + len(literal)
            limit = min(len(text), end + _MAX_KEY)
            while end < limit and text[end] in _KEY_LETTERS:
                end += 1
            assigns = _ASSIGNS.match(text, end)
            if assigns:
                start = at
                while start > 0 and at - start < _MAX_KEY and text[start - 1] in _KEY_LETTERS:
                    start -= 1
                key = text[start:end]
                kind = is_secret_key(key)
                # A mask's own kind is no key.
                if kind and not text.startswith(MASK_START, max(0, start - len(MASK_START))):
                    span, end = _assigned(text, start, key, kind, assigns)
                    if span:
                        yield span
            at = lower.find(literal, end)


def _assigned(text: str, start: int, key: str, kind: str, assigns: re.Match[str]) -> tuple[Span | None, int]:
    """Return the secret that a name is given, if it is one, and how far has been read."""
    at = assigns.end()
    if kind in ("authorization", "cookie", "cookies") and assigns[2] == ":":
        opening = _HEADER_QUOTE.match(text, at)
        header = _HEADER.match(text, opening.end() if opening else at)
        if header is None:
            return None, at
        if MASK_START in header[0]:
            # Whatever else begins before that mask would run into it as well.
            return None, header.start() + header[0].index(MASK_START)
        secret = header[2].rstrip()
        if header[1] or "=" in secret or any(letter.isdigit() for letter in secret):
            return Span(header.start(2), header.start(2) + len(secret), 2, kind, secret), header.end()
        return None, header.end()
    if assigns[2] == ":" and assigns[3] and (block := _BLOCK.match(text, at)):
        return _in_block(text, start, block.end(), kind), at
    below = _BREAK.match(text, at)
    found = _QUOTED.match(text, below.end() if below else at)
    if found and below and _IS_KEY.match(text, found.end()):
        return None, at
    if found:
        group = 2 if found[2] is not None else 4
        value = found[group]
        return Span(found.start(group), found.end(group), 2, kind, value) if _is_telling(value, quoted=True) else None, at
    found = _UNQUOTED.match(text, at)
    if found is None:
        return None, at
    value = found[0].rstrip(".:")
    spaced = bool(assigns[1] or assigns[3])
    env = assigns[2] == "=" and not spaced and bool(_ENV_KEY.fullmatch(key))
    at_line_start = not text[max(0, start - 80) : start].rpartition("\n")[2].removeprefix("export ").strip(" \t-")
    yaml = assigns[2] == ":" and at_line_start and kind.startswith("pass") and value.isalpha() and value.islower()
    if _is_telling(value, quoted=False, firm=(env and at_line_start) or yaml):
        return Span(found.start(), found.start() + len(value), 2, kind, value), found.end()
    return None, found.end()


def _in_block(text: str, key: int, at: int, kind: str) -> Span | None:
    """Return the secret that fills the lines below a YAML key; what has blanks in it is prose."""
    start = max(0, key - 80)
    start = max(start, text.rfind("\n", start, key) + 1)
    indent = key - start
    if text[start:key].strip(" \t+-\"'"):
        return None
    words: list[str] = []
    first = last = at
    for _ in range(_MOST_BLOCK_LINES + 1):
        line = _BLOCK_LINE.match(text, at)
        is_deeper = at < len(text) and not text[at : at + indent + 1].strip(" \t+-")
        if line is None and is_deeper:
            return None
        if line is None or (line[2] and len(line[1]) <= indent):
            return Span(first, last, 2, kind, text[first:last]) if _is_telling("".join(words), quoted=True) else None
        if line[2]:
            first, last = first if words else line.start(2), line.end(2)
            words.append(line[2])
        at = line.end()
    return None


def _is_telling(value: str, *, quoted: bool, firm: bool = False) -> bool:
    """Say whether a value is more likely a secret than a word of code or prose."""
    if MASK_START in value or _PLACEHOLDER.fullmatch(value) or value.lower() in _DULL or any(letter.isspace() for letter in value):
        return False
    digits = any(letter.isdigit() for letter in value)
    if len(value) < 8:
        return quoted and len(value) >= 6 and digits
    if firm or not _IDENTIFIER.fullmatch(value):
        return firm or quoted or digits or not value.isalpha()
    if quoted:
        # `"access_token"` and `"AccessToken"` name something; a secret has digits, or is one long word.
        return digits or (value.islower() and "_" not in value and "." not in value and len(value) >= 12)
    return digits and "_" not in value and "." not in value
