"""Finds secrets by the name next to them: in assignments, headers, command options, XML elements and name-value pairs."""

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
# Words to ignore at the end of a name: `password_2` and `secret_value` name a secret, `token_type` does not.
_IGNORED_ENDINGS = frozenset(
    "value text raw base64 b64 b plain plaintext prod production dev staging test old new current default confirm confirmation data".split()
)
_NOT_SECRET_BEFORE_TOKEN = frozenset(
    "page next continuation sync cancellation cancel stop eos bos pad unk special sep cls mask prev previous".split()
)
# Written as one word, as in `identitytoken` and `aws_secretkey`.
_COMPOUND = re.compile(r"([a-z]{2,20})(token|secret|password|passwd|apikey|secretkey|accesskey|privatekey)")

# The words to search for, in lower case. Every name of a secret contains one of them.
_KEY_LITERALS = ("pass", "pwd", "secret", "token", "auth", "cookie", "credential", "key", "string")
EXPECTS: Final = re.compile(rf"bearer|basic|{'|'.join(_KEY_LITERALS)}", re.IGNORECASE)
"""Words after which a secret may follow in the same line."""

_KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_KEY_TAIL = re.compile(r"[A-Za-z0-9_-]{0,64}+")
_AFTER_KEY = frozenset(":= \t\"'\\>]")
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
# Most schemes are followed by one word.
_HEADER = re.compile(
    r"(?:(?:Basic|Bearer|Token|Negotiate|ApiKey)[ \t]+([^\s\"'`\\]{6,8192}+)|((?:Digest|AWS4-HMAC-SHA256)[ \t]+)?([^\n\"'`\\]{6,8192}+))",
    re.IGNORECASE,
)
# What a sentence has behind a word: `(Bearer $TOKEN)`, `Bearer $TOKEN, and`.
_AFTER_WORDS: Final = ".,;!?)]»”’…*"
_HEADER_QUOTE = re.compile(r"\\{0,4}[\"']")
_COOKIES = re.compile(
    r"[!#$%&*+.^_|~\w-]{1,256}=[^\s;,\"'()\[\]{}]{2,}(?:;[ \t]*[\w-]{1,64}(?:=(?:[A-Za-z]{3,9},[ \t][\w :-]{8,40}|[^;\s]*))?)*;?[ \t\r]*"
)
# The same, followed by other words.
_COOKIE_LIST = re.compile(
    r"[!#$%&*+.^_|~\w-]{1,256}=[^\s;,\"'()\[\]{}]{2,}"
    r"(?:;[ \t]*(?:(?:Secure|HttpOnly|Partitioned)\b|[\w-]{1,64}=(?:[A-Za-z]{3,9},[ \t][\w :-]{8,25} GMT|[^;\s]*))){1,64}+",
    re.IGNORECASE,
)
# Some schemes have parameters in place of one word. Any other words after them are not part of the header.
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
_SHORT_OPTIONS = {
    # After `-p`, some commands take a password without a blank and others with one; for most it is a port or a path.
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
# The value of `PWD` in a shell. No one is expected to keep a password that looks like this under that very name.
_DIRECTORY = re.compile(r"/(?:(?:[a-z]{1,16}|Users|Volumes)(?:/[\w.@+-]{1,255})*/?)?")
_VERSION = re.compile(r"[\^~=<>v]*[0-9]+(?:\.[0-9x*]+){1,3}(?:[-+][\w.]+)?|#[0-9A-Fa-f]{3,8}|/\^.*")
_KEBAB = re.compile(r"-?[A-Za-z]+(?:[-_ ][A-Za-z]+)+")
_HARMLESS_VALUES = frozenset(
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
    """Return the kind of secret that a name denotes (`password`, `token` …), in any naming style; None for other names."""
    words = [word.lower() for word in _WORDS.findall(name[-_MAX_KEY:])]
    while words and (words[-1] in _IGNORED_ENDINGS or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _SECRET_WORDS or last in ("passwords", "secrets", "cookies"):
        return None if last == "token" and before in _NOT_SECRET_BEFORE_TOKEN else last
    if f"{before}-{last}" in _SECRET_PAIRS:
        return f"{before}-{last}"
    compound = _COMPOUND.fullmatch(last)
    if compound and compound[1] not in _NOT_SECRET_BEFORE_TOKEN:
        return compound[2]
    return "password" if last == "pass" and name.isupper() else None


def is_working_directory(name: str, value: str) -> bool:
    """Tell whether a variable is the shell's working directory, whose name is also an abbreviation of `password`."""
    return name in ("PWD", "OLDPWD") and bool(_DIRECTORY.fullmatch(value))


def is_login(name: str, value: str) -> bool:
    """Tell whether a value is a user name and password in Base64, as registries store them under `auth`."""
    return name.strip("_").lower() == "auth" and holds_pair(value)


def assigned_secrets(text: str, lower: str) -> Iterator[Span]:
    """Yield the secrets that their names reveal, as in `.env`, YAML, JSON, XML, headers and command lines."""
    yield from _schemes(text, lower)
    for literal in [word for word in _KEY_LITERALS if word in lower]:
        size = len(literal)
        position = lower.find(literal)
        while position >= 0:
            end = position + size
            if text[end : end + 1] in _KEY_LETTERS:
                tail = _KEY_TAIL.match(text, end)
                assert tail is not None
                end = tail.end()
            if text[end : end + 1] in _AFTER_KEY:
                start = position
                while start > 0 and position - start < _MAX_KEY and text[start - 1] in _KEY_LETTERS:
                    start -= 1
                span, end = _secret_after_name(text, start, end)
                if span:
                    yield span
            position = lower.find(literal, end)
    yield from _short_options(text)
    yield from _password_files(text)


def _schemes(text: str, lower: str) -> Iterator[Span]:
    for scheme, pattern in (("bearer", _BEARER), ("basic", _BASIC)):
        position = lower.find(scheme)
        while position >= 0:
            match = pattern.match(text, position)
            if match and (scheme == "bearer" or holds_pair(match[1])):
                yield Span(match.start(1), match.end(1), 2, scheme if scheme == "bearer" else "authorization", match[1])
            position = lower.find(scheme, position + len(scheme))


def _secret_after_name(text: str, start: int, end: int) -> tuple[Span | None, int]:
    """Return the secret next to a name, if there is one, and how far we have read."""
    assigns = _ASSIGNS.match(text, end)
    following = text[end]
    name = text[start:end]
    if assigns is None and following in " \t" and not name.startswith("--") and not name.endswith(("pass", "password", "passwd")):
        return None, end
    # The kind in a mask is not a key.
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
    match = _LOGIN.match(text, at)
    return Span(match.start(1), match.end(1), 2, "auth", match[1]) if match and is_login(name, match[1]) else None


def _quoted(text: str, at: int) -> tuple[int, int, str] | None:
    prefix = _LETTERS_BEFORE.match(text, at)
    match = _QUOTED.match(text, prefix.end() if prefix else at)
    if match is None or match.lastindex is None:
        return None
    return match.start(match.lastindex), match.end(match.lastindex), match[match.lastindex]


def _group(match: re.Match[str] | None, kind: str) -> Span | None:
    if match is None or match.lastindex is None or _is_harmless(match[match.lastindex]):
        return None
    return Span(match.start(match.lastindex), match.end(match.lastindex), 2, kind, match[match.lastindex])


def _assigned(text: str, key: _Key, assigns: re.Match[str]) -> tuple[Span | None, int]:
    """Return the secret that is assigned to a name, if there is one, and how far we have read."""
    at = assigns.end()
    if key.kind in _HEADERS and assigns[2] == ":":
        return _header(text, key, at)
    if assigns[2] == ":" and assigns[3] and (block := _BLOCK.match(text, at)):
        return _in_block(text, key.start, block.end(), key.kind), at
    below = _BREAK.match(text, at)
    annotated = _ANNOTATED.match(text, at) if assigns[2] == ":" else None
    quoted_value = _quoted(text, below.end() if below else annotated.end() if annotated else at)
    if quoted_value and below and _IS_KEY.match(text, quoted_value[1]):
        return None, at
    if quoted_value:
        start, end, value = quoted_value
        is_secret = _looks_secret(value, key.kind, quoted=True) and not is_working_directory(key.name, value)
        return Span(start, end, 2, key.kind, value) if is_secret else None, at
    return _unquoted(text, key, assigns)


def _unquoted(text: str, key: _Key, assigns: re.Match[str]) -> tuple[Span | None, int]:
    """Return an assigned secret without quotes, if there is one, and how far we have read."""
    at = assigns.end()
    spaced = bool(assigns[1] or assigns[3])
    is_variable = assigns[2] == "=" and not spaced and bool(_ENV_KEY.fullmatch(key.name))
    at_line_start = not text[max(0, key.start - 80) : key.start].rpartition("\n")[2].removeprefix("export ").strip(" \t-")
    is_firm = is_variable and at_line_start
    match = (_TO_BLANK if is_firm else _UNQUOTED).match(text, at)
    if match is None or match[0].startswith(("$(", "${")):
        return None, at
    value = match[0].rstrip(".:;&|)") if is_firm else match[0].rstrip(".:")
    is_entry = at_line_start and key.kind.startswith("pass")
    is_firm = is_firm or (is_entry and assigns[2] == ":" and value.isalpha() and value.islower())
    if _looks_secret(value, key.kind, quoted=False, firm=is_firm, short=is_entry) and not is_working_directory(key.name, value):
        return Span(match.start(), match.start() + len(value), 2, key.kind, value), match.end()
    return None, match.end()


def _header(text: str, key: _Key, at: int) -> tuple[Span | None, int]:
    opening = _HEADER_QUOTE.match(text, at)
    header = _HEADER.match(text, opening.end() if opening else at)
    if header is None:
        return None, at
    if MASK_START in header[0]:
        # Anything else that begins before that mask would run into it too.
        return None, header.start() + header[0].index(MASK_START)
    span = _in_header(header, key.kind)
    return span, header.end()


def _in_header(header: re.Match[str], kind: str) -> Span | None:
    """Return the secret part of a header, if it has one."""
    group = 1 if header[1] else 3
    secret = header[group].rstrip()
    if header[2]:
        parameters = _PARAMETERS.match(secret)
        secret = "" if parameters is None else parameters[0]
    elif kind != "authorization" and not _COOKIES.fullmatch(secret) and (cookies := _COOKIE_LIST.match(secret)):
        secret = cookies[0]
    if not _is_header(secret, kind, has_scheme=bool(header[1] or header[2])):
        return None
    return Span(header.start(group), header.start(group) + len(secret), 2, kind, secret)


def _is_header(secret: str, kind: str, *, has_scheme: bool) -> bool:
    if not secret or _is_harmless(secret) or secret.endswith(":") or PLACEHOLDER.fullmatch(secret.rstrip(_AFTER_WORDS)):
        return False
    if kind == "authorization":
        return has_scheme or bool(_CREDENTIALS.fullmatch(secret) and not _IDENTIFIER.fullmatch(secret))
    return bool(_COOKIES.fullmatch(secret))


def _in_block(text: str, key: int, at: int, kind: str) -> Span | None:
    """Return the secret in the lines below a YAML key; lines with blanks are prose."""
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
            return Span(first, last, 2, kind, text[first:last]) if _looks_secret("".join(words), kind, quoted=True) else None
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
    match = _ELEMENT.match(text, key.end)
    if match is None:
        return None
    value = match[1].rstrip()
    if not _looks_secret(value, key.kind, quoted=True):
        return None
    return Span(match.start(1), match.start(1) + len(value), 2, key.kind, value)


def _option(text: str, key: _Key) -> Span | None:
    """Return what follows an option such as `--password`."""
    if not key.name.startswith("--") or text[key.start - 1 : key.start] not in ("", " ", "\t", "\n", '"', "'", "`", "(", "[", ","):
        return None
    match = _OPTION.match(text, key.end)
    if match is None or match.lastindex is None:
        return None
    value = match[match.lastindex].rstrip(".:,")
    if not _looks_secret(value, key.kind, quoted=True):
        return None
    return Span(match.start(match.lastindex), match.start(match.lastindex) + len(value), 2, key.kind, value)


def _netrc(text: str, key: _Key) -> Span | None:
    """Return what follows `password` in a `.netrc`."""
    if key.name not in ("password", "passwd"):
        return None
    match = _NETRC.match(text, key.end)
    if match is None or match[1].startswith(MASK_START) or match[1] in _NETRC_WORDS:
        return None
    begin = text.rfind("\n", max(0, key.start - 600), key.start) + 1
    before = text[begin : key.start]
    if not before.strip(" \t+>-"):
        above = text.rfind("\n", max(0, begin - 600), max(0, begin - 1)) + 1
        is_entry = begin > 0 and bool(is_netrc_line(text[above : begin - 1]))
        rest = text[match.end() : match.end() + 80].partition("\n")[0]
        is_entry = is_entry and not rest.strip()
    else:
        entry = max(before.rfind("machine"), before.rfind("default"))
        is_entry = entry >= 0 and bool(_NETRC_SAME.match(before, entry))
    return Span(match.start(1), match.end(1), 2, key.kind, match[1]) if is_entry and not _is_harmless(match[1]) else None


def is_netrc_line(line: str) -> bool:
    """Tell whether a password may follow on the next line: `machine …` or `login …`."""
    return len(line) <= MAX_LINE and bool(_NETRC_LINE.match(line))


def _paired(text: str, key: _Key) -> Span | None:
    """Return the value of a pair whose name is quoted."""
    before = text[max(0, key.start - 100) : key.start]
    follows = _VALUE_FOLLOWS.match(text, key.end)
    is_tuple = False
    if follows is None or not _NAME_PRECEDES.search(before):
        follows = _PAIR_FOLLOWS.match(text, key.end) if _PAIR_OPENS.search(before) else None
        is_tuple = True
    quoted_value = _quoted(text, follows.end()) if follows else None
    if quoted_value is None:
        return None
    start, end, value = quoted_value
    if key.kind in _HEADERS:
        header = _HEADER.match(text, start, end)
        return None if header is None or MASK_START in header[0] else _in_header(header, key.kind)
    if is_tuple and not (_PAIR_CLOSES.match(text, end) and any(letter.isdigit() for letter in value)):
        # A plain list of words may also begin with the name of a secret.
        return None
    return Span(start, end, 2, key.kind, value) if _looks_secret(value, key.kind, quoted=True) else None


def _short_options(text: str) -> Iterator[Span]:
    """Yield what follows a one-letter option of a command that takes a password there."""
    for literal in [option for option in _SHORT_OPTIONS if option in text]:
        pattern, commands = _SHORT_OPTIONS[literal]
        position = text.find(literal)
        while position >= 0:
            match = pattern.match(text, position)
            line = text[max(text.rfind("\n", max(0, position - 400), position) + 1, position - 400) : position] if match else ""
            if any(command in line for command in commands):
                span = _group(match, "password")
                if span:
                    yield span
            position = text.find(literal, position + len(literal))


def _password_files(text: str) -> Iterator[Span]:
    """Yield the last field of lines such as `host:5432:database:user:password`."""
    for literal in [literal for literal in (":5432:", ":*:") if literal in text]:
        position = text.find(literal)
        while position >= 0:
            begin = text.rfind("\n", max(0, position - 300), position) + 1
            match = _PGPASS.match(text, begin)
            if match and match.start(1) > position and not _is_harmless(match[1]):
                yield Span(match.start(1), match.end(1), 2, "password", match[1])
            position = text.find(literal, position + len(literal))


def _is_harmless(value: str) -> bool:
    return MASK_START in value or bool(PLACEHOLDER.fullmatch(value)) or value.lower() in _HARMLESS_VALUES


def _looks_secret(value: str, kind: str, *, quoted: bool, firm: bool = False, short: bool = False) -> bool:
    """Tell whether a value is more likely a secret than a word of code or prose."""
    if _is_harmless(value) or any(letter.isspace() for letter in value) or _PATH.fullmatch(value) or _VERSION.fullmatch(value):
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
