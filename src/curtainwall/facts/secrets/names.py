"""Secrets that are known by the name in front of them: assignments, headers, options of commands, elements and pairs of name and value."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from curtainwall.facts.secrets.shapes import MASK_START, PLACEHOLDER, Span, holds_pair

_BEARER = re.compile(r"bearer[ \t]+((?=[A-Za-z_.~+/=-]{0,200}[0-9]|[A-Za-z_.~+/=-]{24})[A-Za-z0-9_.~+/=-]{8,})", re.IGNORECASE)
_LOGIN = re.compile(r"\\{0,4}[\"']?([A-Za-z0-9+/]{8,2048}+={0,2}+)(?![A-Za-z0-9+/=])")
_BASIC = re.compile(r"basic[ \t]+([A-Za-z0-9+/]{6,2048}={0,2})", re.IGNORECASE)

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
    "value text raw base64 b64 b plain plaintext prod production dev staging test old new current default confirm confirmation data".split()
)
_COUNTED = frozenset("page next continuation sync cancellation cancel stop eos bos pad unk special sep cls mask prev previous".split())
# Written as one word, as in `identitytoken` and `aws_secretkey`.
_COMPOUND = re.compile(r"([a-z]{2,20})(token|secret|password|passwd|apikey|secretkey|accesskey|privatekey)")

# In lower case; what is looked for. Every name of a secret holds one of them.
_KEY_LITERALS = ("pass", "pwd", "secret", "token", "auth", "cookie", "credential", "key", "string")
EXPECTS: Final = re.compile(rf"bearer|basic|{'|'.join(_KEY_LITERALS)}", re.IGNORECASE)
"""Words behind which a secret may follow in the same line."""

_KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_KEY_TAIL = re.compile(r"[A-Za-z0-9_-]{0,64}+")
_LEADS_ON = frozenset(":= \t\"'\\>]")
_MAX_KEY = 64
MAX_LINE: Final = 4_400
"""How far a secret may be from its name."""

_ASSIGNS = re.compile(r"(?:\\{0,4}[\"'])?\]?([ \t]{0,8})(=>|:=|=(?!=)|:)([ \t]{0,32})")
_ANNOTATED = re.compile(r"[A-Za-z_][\w.\[\], |]{0,60}+=[ \t]{0,8}(?=[rbfuRBFU]{0,2}\\{0,4}[\"'])")
_LETTERS_BEFORE = re.compile(r"[rbfuRBFU]{0,2}(?=[\"'])")
_QUOTED = re.compile(
    r"\"((?:[^\"\\\n]|\\[^\n]){1,4096}+)|'((?:[^'\\\n]|\\[^\n]){1,4096}+)|`((?:[^`\\\n]|\\[^\n]){1,4096}+)|\\{1,4}[\"'`]([^\"'`\\\n]{1,4096}+)"
)
_UNQUOTED = re.compile(r"[^\s\"'`,;&|<>(){}\[\]\\]{6,4096}+(?![(\[{])")
_TO_BLANK = re.compile(r"[^\s\"'`]{6,4096}+")
# A value that begins on the next line, and one that fills the next lines.
_BREAK = re.compile(r"[ \t]{0,32}(?:\r?\n[+-]?|\\{1,4}n)[ \t]{0,64}(?=\\{0,4}[\"'`])")
_IS_KEY = re.compile(r"\\{0,4}[\"'`]?[ \t]{0,8}:")
_BLOCK = re.compile(r"[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?\r?\n")
_BLOCK_LINE = re.compile(r"([ \t+-][ \t]{0,200})(\S{1,4096})[ \t]{0,32}(?:\r?\n|\Z)|[ \t]{0,200}\r?\n()")
MOST_BLOCK_LINES: Final = 64
"""How many lines a secret below its name may have."""

_HEADERS = frozenset(("authorization", "cookie", "cookies"))
# Behind most schemes there is one word.
_HEADER = re.compile(
    r"(?:(?:Basic|Bearer|Token|Negotiate|ApiKey)[ \t]+([^\s\"'`\\]{6,8192}+)|((?:Digest|AWS4-HMAC-SHA256)[ \t]+)?([^\n\"'`\\]{6,8192}+))",
    re.IGNORECASE,
)
_HEADER_QUOTE = re.compile(r"\\{0,4}[\"']")
_COOKIES = re.compile(
    r"[!#$%&*+.^_|~\w-]{1,256}=[^\s;,\"'()\[\]{}]{2,}(?:;[ \t]*[\w-]{1,64}(?:=(?:[A-Za-z]{3,9},[ \t][\w :-]{8,40}|[^;\s]*))?)*;?[ \t\r]*"
)
# The same with other words behind it.
_COOKIE_LIST = re.compile(
    r"[!#$%&*+.^_|~\w-]{1,256}=[^\s;,\"'()\[\]{}]{2,}"
    r"(?:;[ \t]*(?:(?:Secure|HttpOnly|Partitioned)\b|[\w-]{1,64}=(?:[A-Za-z]{3,9},[ \t][\w :-]{8,25} GMT|[^;\s]*))){1,64}+",
    re.IGNORECASE,
)
# What some schemes have in place of one word. Other words behind it are whoever wrote it's own.
_PARAMETERS = re.compile(r"[\w-]{1,64}=[^\s,]{1,4096}+(?:,[ \t]*[\w-]{1,64}=[^\s,]{1,4096}+){0,32}+")
_CREDENTIALS = re.compile(r"(?=[^\s]*[0-9])[A-Za-z0-9_.~+/=:-]{8,}")

# `{"name": "Authorization", "value": "…"}`, `key="ApiKey" value="…"`, and `["authorization", "…"]`.
_VALUE_FOLLOWS = re.compile(
    r"\\{0,4}[\"'][ \t\r\n]{0,64},?[ \t\r\n]{0,64}(?:\\{0,4}[\"'])?[vV]alue(?:\\{0,4}[\"'])?[ \t]{0,8}[:=][ \t]{0,8}"
)
_NAME_PRECEDES = re.compile(r"(?:name|key|Name|Key)(?:\\{0,4}[\"'])?[ \t]{0,8}[:=][ \t]{0,8}\\{0,4}[\"']\Z")
_PAIR_FOLLOWS = re.compile(r"\\{0,4}[\"'][ \t\r\n]{0,64},[ \t\r\n]{0,64}(?=[rbfu]?\\{0,4}[\"'])")
_PAIR_OPENS = re.compile(r"[\[(][ \t\r\n]{0,64}[rbfu]?\\{0,4}[\"']\Z")
_PAIR_CLOSES = re.compile(r"\\{0,4}[\"'][ \t\r\n]{0,64},?[ \t\r\n]{0,64}[\])]")

_ELEMENT = re.compile(r">[ \t]{0,32}([^<>\n]{1,4096})<")
_OPTION = re.compile(
    r"[ \t]{1,8}(?:\\{1,4}[\"']([^\"'\\\n]{1,4096})|\"([^\"\n]{1,4096})\"|'([^'\n]{1,4096})'"
    r"|([^\s\"'`<>|;&(){}\[\]\\-][^\s\"'`<>|;&(){}\\]{2,4095}+))"
)
_SSHPASS = re.compile(r"[ \t]{1,8}-p[ \t]{0,8}(?:\"([^\"\n]{1,4096})\"|'([^'\n]{1,4096})'|([^\s\"'$]{3,4096}))")
_SHORT_OF = {
    # `-p` and what follows without a blank is a password to some, and with one to others; to most it is a port or a path.
    " -p": (
        re.compile(
            r" -p([^\s\"'$<{=-][^\s\"']{2,4095}+)| -p[ =](?:\"([^\"\n]{3,4096})\"|'([^'\n]{3,4096})'|([^\s\"'$<{-][^\s\"']{2,4095}+))"
        ),
        ("mysql", "mariadb", "docker login", "podman login", "buildah login", "oras login", "registry login"),
    ),
    "-u": (re.compile(r"-u(?:ser)?[ =]?[\"']?[^\s:\"'$<{]{1,256}+:([^\s\"'$<{][^\s\"']{2,4095}+)"), ("curl ",)),
}

_NETRC_WORDS = frozenset("machine default login account password macdef".split())
_NETRC = re.compile(r"[ \t]{1,8}(\S{1,4096})")
_NETRC_SAME = re.compile(r"(?:machine[ \t]+\S{1,256}|default)(?:[ \t]+(?:login|account)[ \t]+\S{1,256}+){0,2}+[ \t]+\Z")
_NETRC_LINE: Final = re.compile(
    r"[ \t+>-]*(?:machine[ \t]+\S{1,256}|default|(?:login|account)[ \t]+\S{1,256})(?:[ \t]+(?:login|account)[ \t]+\S{1,256})?[ \t\r]*\Z"
)
_PGPASS = re.compile(
    r"[ \t+>-]*[^\s:#\"'(){}\[\]<>,]{1,256}:(?:[0-9]{2,5}|\*):[^\s:\"'(){}]{1,256}:[^\s:\"'(){}]{1,256}:"
    r"((?:[^\s:\\\"']|\\[:\\]){1,1024})[ \t\r]*(?=\n|\Z)"
)

_IDENTIFIER = re.compile(r"[!*&~]*[A-Za-z_$][A-Za-z0-9_$]*(?:[?!]?[.:]+#?[A-Za-z_$][A-Za-z0-9_$]*)*[.!?]?")
_ENV_KEY = re.compile(r"[A-Z][A-Z0-9_]*")
_PATH = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][a-z0-9_.@-]{0,64})+|(?:~|\.{1,2})?(?:/[A-Za-z0-9_.@-]{0,64})+\.[a-z]{1,8}|(?:~|\.{1,2}|/)"
)
_VERSION = re.compile(r"[\^~=<>v]*[0-9]+(?:\.[0-9x*]+){1,3}(?:[-+][\w.]+)?|#[0-9A-Fa-f]{3,8}|/\^.*")
_KEBAB = re.compile(r"-?[A-Za-z]+(?:[-_ ][A-Za-z]+)+")
_DULL = frozenset(
    (
        "password passwd secret required optional undefined disabled enabled unknown redacted string boolean integer identifier "
        "function include same-origin use-credentials omit default number object property example placeholder"
    ).split()
)
_LONG_PHRASE = 24
_LONG_NAME = 32


class _Key(NamedTuple):
    """A name in a text, and the kind of secret that it names."""

    start: int
    end: int
    name: str
    kind: str


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
    compound = _COMPOUND.fullmatch(last)
    if compound and compound[1] not in _COUNTED:
        return compound[2]
    return "password" if last == "pass" and name.isupper() else None


def is_login(name: str, value: str) -> bool:
    """Tell whether a value is a name and a password in Base64, as registries keep them under `auth`."""
    return name.strip("_").lower() == "auth" and holds_pair(value)


def assigned_secrets(text: str, lower: str) -> Iterator[Span]:
    """Yield what is a secret by the name that it is given, as in `.env`, YAML, JSON, XML, headers and command lines."""
    yield from _schemes(text, lower)
    for literal in [each for each in _KEY_LITERALS if each in lower]:
        size = len(literal)
        at = lower.find(literal)
        while at >= 0:
            end = at + size
            if text[end : end + 1] in _KEY_LETTERS:
                tail = _KEY_TAIL.match(text, end)
                assert tail is not None
                end = tail.end()
            if text[end : end + 1] in _LEADS_ON:
                start = at
                while start > 0 and at - start < _MAX_KEY and text[start - 1] in _KEY_LETTERS:
                    start -= 1
                span, end = _named(text, start, end)
                if span:
                    yield span
            at = lower.find(literal, end)
    yield from _short_options(text)
    yield from _password_files(text)


def _schemes(text: str, lower: str) -> Iterator[Span]:
    for scheme, pattern in (("bearer", _BEARER), ("basic", _BASIC)):
        at = lower.find(scheme)
        while at >= 0:
            found = pattern.match(text, at)
            if found and (scheme == "bearer" or holds_pair(found[1])):
                yield Span(found.start(1), found.end(1), 2, scheme if scheme == "bearer" else "authorization", found[1])
            at = lower.find(scheme, at + len(scheme))


def _named(text: str, start: int, end: int) -> tuple[Span | None, int]:
    """Return the secret that a name has beside it, if it is one, and how far has been read."""
    assigns = _ASSIGNS.match(text, end)
    following = text[end]
    name = text[start:end]
    if assigns is None and following in " \t" and not name.startswith("--") and not name.endswith(("pass", "password", "passwd")):
        return None, end
    # A mask's own kind is no key.
    if text.startswith(MASK_START, max(0, start - len(MASK_START))):
        return None, end
    kind = is_secret_key(name)
    if kind is None:
        if assigns and name.strip("_-").lower() == "auth":
            return _login(text, name, assigns.end()), end
        return (_group(_SSHPASS.match(text, end), "password"), end) if name == "sshpass" else (None, end)
    key = _Key(start, end, name, kind)
    if assigns:
        return _assigned(text, key, assigns)
    if following == ">":
        return _in_element(text, key), end
    if following in " \t":
        return _option(text, key) or _netrc(text, key), end
    return (_paired(text, key) if following in "\"'\\" else None), end


def _login(text: str, name: str, at: int) -> Span | None:
    found = _LOGIN.match(text, at)
    return Span(found.start(1), found.end(1), 2, "auth", found[1]) if found and is_login(name, found[1]) else None


def _quoted(text: str, at: int) -> tuple[int, int, str] | None:
    letters = _LETTERS_BEFORE.match(text, at)
    found = _QUOTED.match(text, letters.end() if letters else at)
    if found is None or found.lastindex is None:
        return None
    return found.start(found.lastindex), found.end(found.lastindex), found[found.lastindex]


def _group(found: re.Match[str] | None, kind: str) -> Span | None:
    if found is None or found.lastindex is None or _is_dull(found[found.lastindex]):
        return None
    return Span(found.start(found.lastindex), found.end(found.lastindex), 2, kind, found[found.lastindex])


def _assigned(text: str, key: _Key, assigns: re.Match[str]) -> tuple[Span | None, int]:
    """Return the secret that a name is given, if it is one, and how far has been read."""
    at = assigns.end()
    if key.kind in _HEADERS and assigns[2] == ":":
        return _header(text, key, at)
    if assigns[2] == ":" and assigns[3] and (block := _BLOCK.match(text, at)):
        return _in_block(text, key.start, block.end(), key.kind), at
    below = _BREAK.match(text, at)
    annotated = _ANNOTATED.match(text, at) if assigns[2] == ":" else None
    found = _quoted(text, below.end() if below else annotated.end() if annotated else at)
    if found and below and _IS_KEY.match(text, found[1]):
        return None, at
    if found:
        start, end, value = found
        return Span(start, end, 2, key.kind, value) if _is_telling(value, key.kind, quoted=True) else None, at
    return _bare(text, key, assigns)


def _bare(text: str, key: _Key, assigns: re.Match[str]) -> tuple[Span | None, int]:
    """Return a secret that stands without quotes."""
    at = assigns.end()
    spaced = bool(assigns[1] or assigns[3])
    is_variable = assigns[2] == "=" and not spaced and bool(_ENV_KEY.fullmatch(key.name))
    at_line_start = not text[max(0, key.start - 80) : key.start].rpartition("\n")[2].removeprefix("export ").strip(" \t-")
    is_firm = is_variable and at_line_start
    found = (_TO_BLANK if is_firm else _UNQUOTED).match(text, at)
    if found is None or found[0].startswith(("$(", "${")):
        return None, at
    value = found[0].rstrip(".:;&|)") if is_firm else found[0].rstrip(".:")
    is_entry = at_line_start and key.kind.startswith("pass")
    is_firm = is_firm or (is_entry and assigns[2] == ":" and value.isalpha() and value.islower())
    if _is_telling(value, key.kind, quoted=False, firm=is_firm, short=is_entry):
        return Span(found.start(), found.start() + len(value), 2, key.kind, value), found.end()
    return None, found.end()


def _header(text: str, key: _Key, at: int) -> tuple[Span | None, int]:
    opening = _HEADER_QUOTE.match(text, at)
    header = _HEADER.match(text, opening.end() if opening else at)
    if header is None:
        return None, at
    if MASK_START in header[0]:
        # Whatever else begins before that mask would run into it as well.
        return None, header.start() + header[0].index(MASK_START)
    span = _in_header(header, key.kind)
    return span, header.end()


def _in_header(header: re.Match[str], kind: str) -> Span | None:
    """Return the secret part of a header, if it is one."""
    group = 1 if header[1] else 3
    secret = header[group].rstrip()
    if header[2]:
        parameters = _PARAMETERS.match(secret)
        secret = "" if parameters is None else parameters[0]
    elif kind != "authorization" and not _COOKIES.fullmatch(secret) and (listed := _COOKIE_LIST.match(secret)):
        secret = listed[0]
    if not _is_header(secret, kind, has_scheme=bool(header[1] or header[2])):
        return None
    return Span(header.start(group), header.start(group) + len(secret), 2, kind, secret)


def _is_header(secret: str, kind: str, *, has_scheme: bool) -> bool:
    if not secret or _is_dull(secret) or secret.endswith(":"):
        return False
    if kind == "authorization":
        return has_scheme or bool(_CREDENTIALS.fullmatch(secret) and not _IDENTIFIER.fullmatch(secret))
    return bool(_COOKIES.fullmatch(secret))


def _in_block(text: str, key: int, at: int, kind: str) -> Span | None:
    """Return the secret that fills the lines below a YAML key; what has blanks in it is prose."""
    start = max(0, key - 80)
    start = max(start, text.rfind("\n", start, key) + 1)
    indent = key - start
    if text[start:key].strip(" \t+-\"'"):
        return None
    words: list[str] = []
    first = last = at
    for _ in range(MOST_BLOCK_LINES + 1):
        line = _BLOCK_LINE.match(text, at)
        is_deeper = at < len(text) and not text[at : at + indent + 1].strip(" \t+-")
        if line is None and is_deeper:
            return None
        if line is None or (line[2] and len(line[1]) <= indent):
            return Span(first, last, 2, kind, text[first:last]) if _is_telling("".join(words), kind, quoted=True) else None
        if line[2]:
            first, last = first if words else line.start(2), line.end(2)
            words.append(line[2])
        at = line.end()
    return None


def _in_element(text: str, key: _Key) -> Span | None:
    """Return what is between `<password>` and the next `<`."""
    opens = text.rfind("<", max(0, key.start - _MAX_KEY), key.start)
    if opens < 0 or text[opens + 1 : key.start].strip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:"):
        return None
    found = _ELEMENT.match(text, key.end)
    if found is None:
        return None
    value = found[1].rstrip()
    if not _is_telling(value, key.kind, quoted=True):
        return None
    return Span(found.start(1), found.start(1) + len(value), 2, key.kind, value)


def _option(text: str, key: _Key) -> Span | None:
    """Return what follows an option such as `--password`."""
    if not key.name.startswith("--") or text[key.start - 1 : key.start] not in ("", " ", "\t", "\n", '"', "'", "`", "(", "[", ","):
        return None
    found = _OPTION.match(text, key.end)
    if found is None or found.lastindex is None:
        return None
    value = found[found.lastindex].rstrip(".:,")
    if not _is_telling(value, key.kind, quoted=True):
        return None
    return Span(found.start(found.lastindex), found.start(found.lastindex) + len(value), 2, key.kind, value)


def _netrc(text: str, key: _Key) -> Span | None:
    """Return what follows `password` in a `.netrc`."""
    if key.name not in ("password", "passwd"):
        return None
    found = _NETRC.match(text, key.end)
    if found is None or found[1].startswith(MASK_START) or found[1] in _NETRC_WORDS:
        return None
    begin = text.rfind("\n", max(0, key.start - 600), key.start) + 1
    before = text[begin : key.start]
    if not before.strip(" \t+>-"):
        above = text.rfind("\n", max(0, begin - 600), max(0, begin - 1)) + 1
        is_entry = begin > 0 and bool(is_netrc_line(text[above : begin - 1]))
        rest = text[found.end() : found.end() + 80].partition("\n")[0]
        is_entry = is_entry and not rest.strip()
    else:
        entry = max(before.rfind("machine"), before.rfind("default"))
        is_entry = entry >= 0 and bool(_NETRC_SAME.match(before, entry))
    return Span(found.start(1), found.end(1), 2, key.kind, found[1]) if is_entry and not _is_dull(found[1]) else None


def is_netrc_line(line: str) -> bool:
    """Tell whether a password may follow on the next line: `machine …` or `login …`."""
    return len(line) <= MAX_LINE and bool(_NETRC_LINE.match(line))


def _paired(text: str, key: _Key) -> Span | None:
    """Return the value of a pair whose name stands in quotes."""
    before = text[max(0, key.start - 100) : key.start]
    follows = _VALUE_FOLLOWS.match(text, key.end)
    is_tuple = False
    if follows is None or not _NAME_PRECEDES.search(before):
        follows = _PAIR_FOLLOWS.match(text, key.end) if _PAIR_OPENS.search(before) else None
        is_tuple = True
    found = _quoted(text, follows.end()) if follows else None
    if found is None:
        return None
    start, end, value = found
    if key.kind in _HEADERS:
        header = _HEADER.match(text, start, end)
        return None if header is None or MASK_START in header[0] else _in_header(header, key.kind)
    if is_tuple and not (_PAIR_CLOSES.match(text, end) and any(letter.isdigit() for letter in value)):
        # A list of words may begin with the name of a secret as well.
        return None
    return Span(start, end, 2, key.kind, value) if _is_telling(value, key.kind, quoted=True) else None


def _short_options(text: str) -> Iterator[Span]:
    """Yield what follows a one-letter option of a command that takes a password there."""
    for literal in [each for each in _SHORT_OF if each in text]:
        pattern, commands = _SHORT_OF[literal]
        at = text.find(literal)
        while at >= 0:
            found = pattern.match(text, at)
            line = text[max(text.rfind("\n", max(0, at - 400), at) + 1, at - 400) : at] if found else ""
            if any(command in line for command in commands):
                span = _group(found, "password")
                if span:
                    yield span
            at = text.find(literal, at + len(literal))


def _password_files(text: str) -> Iterator[Span]:
    """Yield the last field of lines such as `host:5432:database:user:password`."""
    for literal in [each for each in (":5432:", ":*:") if each in text]:
        at = text.find(literal)
        while at >= 0:
            begin = text.rfind("\n", max(0, at - 300), at) + 1
            found = _PGPASS.match(text, begin)
            if found and found.start(1) > at and not _is_dull(found[1]):
                yield Span(found.start(1), found.end(1), 2, "password", found[1])
            at = text.find(literal, at + len(literal))


def _is_dull(value: str) -> bool:
    return MASK_START in value or bool(PLACEHOLDER.fullmatch(value)) or value.lower() in _DULL


def _is_telling(value: str, kind: str, *, quoted: bool, firm: bool = False, short: bool = False) -> bool:
    """Say whether a value is more likely a secret than a word of code or prose."""
    if _is_dull(value) or any(letter.isspace() for letter in value) or _PATH.fullmatch(value) or _VERSION.fullmatch(value):
        return False
    digits = any(letter.isdigit() for letter in value)
    if len(value) < 8:
        return len(value) >= 6 and (firm or (digits and (quoted or (short and not value.isdigit()))))
    if not digits and not kind.startswith("pass") and "secret" not in kind and len(value) < _LONG_PHRASE and _KEBAB.fullmatch(value):
        return False
    if firm or not _IDENTIFIER.fullmatch(value):
        return firm or quoted or digits or not value.isalpha()
    if kind == "private-key" and len(value) < _LONG_NAME:
        return False
    if quoted:
        # `"access_token"` and `"AccessToken"` name something; a secret has digits, or is one long word.
        return digits or (value.islower() and "_" not in value and "." not in value and len(value) >= 12)
    return digits and "_" not in value and "." not in value
