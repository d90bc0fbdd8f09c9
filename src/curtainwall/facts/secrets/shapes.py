"""Finds secrets by shape: credentials with a recognizable format, and private keys in PEM, whole or cut off.

Text is scanned in two ways: once for long words, of which we examine only those with the prefix of a token, and once for each literal of a
shape that has no such word. A pattern is tried only where its prefix occurs, and it only reads forward.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

MASK = re.compile(r"\[masked:[A-Za-z0-9._-]{1,64}:[0-9a-f]{4,16}\]")
MASK_START = "[masked:"

PLACEHOLDER: Final = re.compile(
    r"(?:\$\{?\{?[ \w.:@?-]+\}?\}?|\$\([^)]*\)|\{\{?[\w. $:!-]*\}?\}|<[\w .:/-]+>|%\(?\w+\)?s?%?|[*x.•-]+|[:/@=])++", re.IGNORECASE
)
"""A variable, a format or a placeholder: `$TOKEN`, `${{ secrets.X }}`, `{0}:{1}`, `<token>`, `****`."""

_EXAMPLES = frozenset("password passwd pass pwd pw secret".split())


class Span(NamedTuple):
    """A part of a text to mask; of overlapping spans, the one with the lower rank names the mask."""

    start: int
    end: int
    rank: int
    kind: str
    secret: str


class _Shape(NamedTuple):
    kind: str
    beginnings: tuple[str, ...]
    text: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """The shape as a pattern."""
        return _compiled(self.text)


@cache
def _compiled(text: str) -> re.Pattern[str]:
    # Start-up time: most shapes never begin anywhere in a text.
    return re.compile(text)


def _shape(kind: str, beginnings: str, text: str) -> _Shape:
    return _Shape(kind, tuple(beginnings.split()), text)


def holds_pair(encoded: str) -> bool:
    """Tell whether a text is Base64 of `name:password`, as in a Basic header or a registry's login."""
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False
    name, colon, word = data.partition(b":")
    return bool(colon and word) and all(0x20 < byte < 0x7F for byte in data) and len(name) <= 128


_ALONE = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_-])"
_HEX = "[0-9a-f]"
_WORDY = "[A-Za-z0-9_-]"
# A key in Base64, as Kubernetes stores it: only whole groups of three bytes, which do not depend on what follows.
_ENCODED_KEYS = " ".join(
    base64.b64encode(head[: len(head) // 3 * 3].encode()).decode()
    for head in (f"-----BEGIN {name}PRIVATE KEY" for name in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP "))
)

# Each begins inside a word of at least 15 letters, digits, `_` and `-`. A pattern with a group masks only the group.
_TOKENS = (
    _shape("anthropic-key", "sk-ant-", rf"sk-ant-{_WORDY}{{8,}}"),
    _shape("openai-key", "sk-proj- sk-svcacct- sk-admin-", rf"sk-[a-z]+-{_WORDY}{{8,}}"),
    _shape("api-key", "sk-", rf"{_ALONE}sk-(?:[A-Za-z0-9]{{20,}}{_WORDY}*|(?=[A-Za-z_-]{{0,200}}[0-9]){_WORDY}{{16,}})"),
    _shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    _shape("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{16,}"),
    _shape(
        "gitlab-token",
        "glpat- glrt- gldt- glptt- glcbt- glft- glimt- glagent- glsoat- glffct- glrtr-",
        r"gl[a-z]{2,6}-[A-Za-z0-9_.-]{16,}",
    ),
    _shape("gitlab-token", "GR1348941", rf"GR1348941{_WORDY}{{20}}"),
    _shape("google-key", "AIza", rf"AIza{_WORDY}{{30,}}"),
    _shape("google-secret", "GOCSPX-", rf"GOCSPX-{_WORDY}{{20,}}"),
    _shape("aws-key", "AKIA ASIA ABIA ACCA", r"(?<![A-Za-z0-9])A(?:[KS]I|BI|CC)A[A-Z0-9]{16,}"),
    _shape("slack-token", "xox", r"xox[a-z]-[A-Za-z0-9-]{10,}"),
    _shape("slack-token", "xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
    _shape("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    _shape("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=_-]{16,}"),
    _shape("npm-token", "npm_", rf"{_ALONE}npm_[A-Za-z0-9]{{30,}}"),
    _shape("pypi-token", "pypi-AgE", rf"pypi-AgE{_WORDY}{{20,}}"),
    _shape("huggingface-token", "hf_ api_org_", rf"{_ALONE}(?:hf|api_org)_[A-Za-z0-9]{{20,}}"),
    _shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_{_HEX}{{40,}}"),
    _shape("shopify-token", "shpat_ shpca_ shppa_ shpss_ shptka_", r"shp[a-z]{2,3}_[A-Fa-f0-9]{32}"),
    _shape("square-token", "sq0atp- sq0csp- sq0idp-", rf"sq0[a-z]{{3}}-{_WORDY}{{20,}}"),
    _shape("square-token", "EAAA", rf"{_ALONE}EAAA{_WORDY}{{60}}{_END}"),
    _shape("databricks-token", "dapi", rf"{_ALONE}dapi{_HEX}{{32}}(?:-[0-9])?{_END}"),
    _shape("twilio-key", "SK", rf"{_ALONE}SK{_HEX}{{32}}{_END}"),
    _shape("mailgun-key", "key-", rf"{_ALONE}key-{_HEX}{{32}}{_END}"),
    _shape("grafana-token", "glsa_ glc_", rf"{_ALONE}gl(?:sa|c)_[A-Za-z0-9+/=_]{{30,}}"),
    _shape("docker-token", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{_WORDY}{{20,}}"),
    _shape("atlassian-token", "ATATT3 ATCTT3 ATBB", rf"{_ALONE}AT(?:[AC]TT3|BB){_WORDY}{{24,}}"),
    _shape("linear-key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    _shape("notion-token", "ntn_", rf"{_ALONE}ntn_[A-Za-z0-9]{{40,}}"),
    _shape("figma-token", "figd_", rf"{_ALONE}figd_{_WORDY}{{30,}}"),
    _shape("postman-key", "PMAK-", rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}"),
    _shape("pulumi-token", "pul-", rf"{_ALONE}pul-{_HEX}{{40}}{_END}"),
    _shape("supabase-token", "sbp_ sb_secret_", rf"{_ALONE}(?:sbp|sb_secret)_{_WORDY}{{20,}}"),
    _shape("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_]{40,}"),
    _shape("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", rf"pscale_[a-z]{{2,5}}_{_WORDY}{{30,}}"),
    _shape("netlify-token", "nfp_", rf"{_ALONE}nfp_[A-Za-z0-9]{{36}}{_END}"),
    _shape("heroku-key", "HRKU-", rf"HRKU-{_WORDY}{{30,}}"),
    _shape("rubygems-key", "rubygems_", rf"rubygems_{_HEX}{{40,}}"),
    _shape("groq-key", "gsk_", rf"{_ALONE}gsk_[A-Za-z0-9]{{40,}}"),
    _shape("xai-key", "xai-", rf"{_ALONE}xai-[A-Za-z0-9]{{60,}}"),
    _shape("perplexity-key", "pplx-", rf"{_ALONE}pplx-[A-Za-z0-9]{{40,}}"),
    _shape("replicate-token", "r8_", rf"{_ALONE}r8_[A-Za-z0-9]{{37}}{_END}"),
    _shape("langsmith-key", "lsv2_pt_ lsv2_sk_", rf"lsv2_[ps][tk]_{_HEX}{{32}}_{_HEX}{{10}}"),
    _shape("tailscale-key", "tskey-", rf"tskey-[a-z]{{3,12}}-{_WORDY}{{16,}}"),
    _shape("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _shape("sonar-token", "squ_ sqp_ sqa_", rf"{_ALONE}sq[upa]_{_HEX}{{40}}{_END}"),
    _shape("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    _shape("onepassword-token", "ops_eyJ", rf"{_ALONE}ops_eyJ[A-Za-z0-9+/=_-]{{100,}}"),
    _shape("private-key", _ENCODED_KEYS, r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,65536}={0,2}"),
)
# Each prefix ends in a dot, after which such a word begins.
_DOTTED = (
    _shape("google-token", "ya29.", rf"{_ALONE}ya29\.[A-Za-z0-9_.-]{{20,}}"),
    _shape("sendgrid-key", "SG.", rf"{_ALONE}SG\.{_WORDY}{{16,}}\.{_WORDY}{{16,}}"),
    _shape("vault-token", "hvs. hvb. hvr.", rf"{_ALONE}hv[sbr]\.{_WORDY}{{20,}}"),
    _shape("slack-token", "xoxe.", r"xoxe\.xox[a-z]-[A-Za-z0-9-]{10,}"),
    _shape("doppler-token", "pt. st. ct. sa.", r"(?<=dp\.)(?:pt|st|ct|sa)\.[A-Za-z0-9_.-]{40,}"),
    _shape("dropbox-token", "sl.", rf"{_ALONE}sl\.{_WORDY}{{60,}}"),
    _shape("mapbox-token", "sk.", rf"{_ALONE}sk\.eyJ{_WORDY}{{40,}}\.{_WORDY}{{16,}}"),
    _shape("terraform-token", "atlasv1.", r"(?<=[A-Za-z0-9]{14}\.)atlasv1\.[A-Za-z0-9_=-]{40,}"),
    _shape("dynatrace-token", "dt0c01.", r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
)
# We search the whole text for each of these.
_LITERALS = (
    _shape("slack-webhook", "hooks", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{8,})"),
    _shape("discord-webhook", "hooks", r"hooks/([0-9]{8,}/[A-Za-z0-9_-]{20,})"),
    _shape("jwt", "eyJ", rf"{_ALONE}eyJ{_WORDY}{{6,}}\.{_WORDY}{{4,}}(?:\.{_WORDY}*){{0,3}}"),
    _shape("url-password", "://", r"://(?:[^\s/?#@:\"'<>`\\]*:([^\s/?#\"'<>`\\]+)|((?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{20,}))@"),
    _shape("url-signature", "sig=", r"(?<=[?&;])sig=([A-Za-z0-9%+/=_-]{20,})"),
)

_MIN_WORD = 15
_WORD_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_IN_WORD = bytes(120 if letter in _WORD_LETTERS else 32 for letter in range(256))
_DIGIT = re.compile(r"[0-9]")
_TOKEN_BY_PREFIX = {beginning: shape for shape in _TOKENS for beginning in shape.beginnings}
# A longer prefix comes before one that it starts with.
_TOKEN_PREFIX = re.compile("|".join(re.escape(each) for each in sorted(_TOKEN_BY_PREFIX, key=len, reverse=True)))
_FIRST_LETTERS = frozenset(beginning[:2] for beginning in _TOKEN_BY_PREFIX)
_DOTTED_BY_PREFIX = {beginning: shape for shape in _DOTTED for beginning in shape.beginnings}
_LAST_DOTTED = re.compile(rf"(?:{'|'.join(re.escape(each) for each in sorted(_DOTTED_BY_PREFIX, key=len, reverse=True))})\Z")
_MAX_DOTTED = max(map(len, _DOTTED_BY_PREFIX))
_SHAPES_BY_LITERAL = {
    literal: tuple(shape for shape in _LITERALS if literal in shape.beginnings) for shape in _LITERALS for literal in shape.beginnings
}

_TELEGRAM = re.compile(r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")
_DISCORD = re.compile(r"(?<![A-Za-z0-9_.-])[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])")
_MAIL_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_HEX}{{32}}-(?:us[0-9]{{1,2}}|{_HEX}{{8}}-{_HEX}{{8}})(?![A-Za-z0-9_-])")
_MAIL_KEY_SIZES = range(36, 51)
_DISCORD_SIZES = range(23, 30)


def shaped_secrets(text: str) -> Iterator[Span]:
    """Yield the secrets that have a recognizable format."""
    yield from _secrets_in_words(text)
    for literal in [literal for literal in _SHAPES_BY_LITERAL if literal in text]:
        position = text.find(literal)
        while position >= 0:
            end = position + 1
            for shape in _SHAPES_BY_LITERAL[literal]:
                match = shape.pattern.match(text, position)
                if match:
                    end = max(end, match.end())
                    span = _span_of_shape(shape, match)
                    if span is not None:
                        yield span
            position = text.find(literal, end)


def _long_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of words that are long enough for a token; this takes half the time of a pattern."""
    form = text.encode("ascii", "replace").translate(_IN_WORD)
    shortest = b"x" * _MIN_WORD
    start = form.find(shortest)
    while start >= 0:
        end = form.find(b" ", start + _MIN_WORD)
        end = len(form) if end < 0 else end
        yield start, end
        start = form.find(shortest, end)


def _secrets_in_words(text: str) -> Iterator[Span]:
    # This runs on every call, and most words are names, so it has to be fast.
    read = 0
    for start, end in _long_words(text):
        if text[start - 1 : start] == "." and start > read:
            dotted = _LAST_DOTTED.search(text, max(read, start - _MAX_DOTTED), start)
            span = dotted and _match_shape(_DOTTED_BY_PREFIX[dotted[0]], text, dotted.start())
            if span:
                yield span
                read = span.end
        if text[start : start + 2] in _FIRST_LETTERS or _DIGIT.search(text, start, end):
            for prefix in _TOKEN_PREFIX.finditer(text, max(start, read), end):
                if prefix.start() >= read and (span := _match_shape(_TOKEN_BY_PREFIX[prefix[0]], text, prefix.start())):
                    yield span
                    read = span.end
            if span := _token_by_form(text, start, end):
                yield span


def _token_by_form(text: str, start: int, end: int) -> Span | None:
    """Return a token that has no vendor prefix but a recognizable form."""
    if text.startswith(":AA", start - 1):
        begin = start - 1
        while begin > 0 and start - begin <= 11 and text[begin - 1].isdigit():
            begin -= 1
        return _span_of_match("telegram-token", _TELEGRAM.match(text, begin))
    if end - start in _DISCORD_SIZES and text[start] in "MNO" and text.startswith(".", end):
        return _span_of_match("discord-token", _DISCORD.match(text, start))
    if end - start in _MAIL_KEY_SIZES and text.startswith("-", start + 32):
        return _span_of_match("mail-key", _MAIL_KEY.match(text, start))
    return None


def _span_of_match(kind: str, match: re.Match[str] | None) -> Span | None:
    return None if match is None else Span(match.start(), match.end(), 1, kind, match[0])


def _match_shape(shape: _Shape, text: str, at: int) -> Span | None:
    match = shape.pattern.match(text, at)
    return None if match is None else _span_of_shape(shape, match)


def _span_of_shape(shape: _Shape, match: re.Match[str]) -> Span | None:
    group = next((number for number in range(1, shape.pattern.groups + 1) if match[number] is not None), 0)
    secret = match[group]
    if MASK_START in secret or (group and (PLACEHOLDER.fullmatch(secret) or secret.lower() in _EXAMPLES)):
        return None
    return Span(match.start(group), match.end(group), 1, shape.kind, secret)


def lowered(text: str) -> str:
    """Return the text in lower case with the same length."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()


PEM_START: Final = "-----BEGIN "
PEM_END: Final = "-----END "
MAX_PEM: Final = 32_768

_MAX_LINE_LENGTH = 1_200
_MAX_LINES = 1_000
_LONG_LINE, _FULL_LINE = 16, 40

_START = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_WHOLE = re.compile(r"(?:(?!-----BEGIN|\[masked:)[\s\S]){0,32000}?-----END [A-Z0-9 ]{0,60}-----")
_PEM_CLOSE = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

# What may precede a line: indentation, quotes, comment and diff marks; `12:` and `12` of `grep -n` and `cat -n`, `key.pem-12-` of
# `grep -r`, `web-1 | ` of logs. Names and numbers end in a character that is not Base64, so it is clear where the line itself begins.
_QUOTING = r"[ \t\"'+,>|#*/;%<-]{0,40}+"
_NUMBERING = r"(?:[\w./@+~-]{1,160}?[:|-]|[\w.-]{1,60}+[ \t]{1,20}+[:|-]|[0-9]{1,7}+(?=[ \t.)\\]))(?:[0-9]{1,7}+[:|.)-])?[.)]?"
_TABS = r"(?:\\{1,4}t){0,8}+"
_PREFIX = rf"{_QUOTING}{_TABS}(?:{_NUMBERING}{_TABS}{_QUOTING})?"
LINE_PREFIX: Final = re.compile(_PREFIX)
"""The text that may precede a part of a key in a line."""
BEGUN_PREFIX: Final = re.compile(rf"{_QUOTING}{_TABS}[\w./@+~:|.)-]{{0,180}}+{_TABS}{_QUOTING}(?:[0-9]{{1,7}}+[:|.)-]?)?{_QUOTING}")
"""The same if the rest of it may still arrive."""

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
    """Yield every private key, even an incomplete one."""
    read = 0
    position = text.find(PEM_START)
    while position >= 0:
        start = _START.match(text, position)
        if start is None:
            position = text.find(PEM_START, position + 1)
            continue
        whole = _WHOLE.match(text, start.end())
        read = whole.end() if whole else _end_of_incomplete_key(text, start.end())
        yield Span(position, read, 1, "private-key", text[position:read])
        position = text.find(PEM_START, max(read, position + 1))
    yield from _keys_without_beginning(text)


def _end_of_incomplete_key(text: str, at: int) -> int:
    """Return where a key without an end marker ends: after its lines of Base64 and headers, and the likely beginning of one more."""
    end = at
    for _ in range(_MAX_LINES):
        gap = _NEXT_BREAK.match(text, at)
        if gap is None or gap.end() == at:
            break
        following = _NEXT_BREAK.search(text, gap.end(), gap.end() + _MAX_LINE_LENGTH)
        stop = following.start() if following else min(len(text), gap.end() + _MAX_LINE_LENGTH)
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
        if body and body.re is _MARKED_LINE and len(body[1]) < _FULL_LINE:
            # A short line is the last one of a key; the lines after it belong to the surrounding listing.
            return end
    more = _MORE_WORDS.match(text, end)
    return more.end() if more else end


def _keys_without_beginning(text: str) -> Iterator[Span]:
    """Yield keys by their end marker, for a text that begins inside one."""
    read = 0
    position = text.find(PEM_END)
    while position >= 0:
        end = _PEM_CLOSE.match(text, position)
        if end:
            start = body_before(text, position, read)
            read = end.end()
            if start < position:
                yield Span(start, read, 1, "private-key", text[start:read])
        position = text.find(PEM_END, position + 1)


def body_before(text: str, end: int, floor: int = 0, prefix: re.Pattern[str] = LINE_PREFIX) -> int:
    """Return where the body of a private key begins if it ends here; all its lines are long except the last."""
    floor = max(floor, end - MAX_PEM)
    stop, begin = _break_before(text, end, floor)
    if stop < 0 or not prefix.fullmatch(text, begin, end):
        return end
    start, shortest = end, 1
    for _ in range(_MAX_LINES):
        above, begin = _break_before(text, stop, floor)
        line = text[begin:stop]
        body = None if "-----" in line else _PLAIN_LINE.fullmatch(line) or _MARKED_LINE.fullmatch(line)
        if body is not None and len(body[1]) >= shortest:
            # A `+` may be part of the key.
            marks = len(line) - len(line.lstrip(" \t\"',>|#*-")) if body.re is _PLAIN_LINE else body.start(1)
            start, shortest = begin + marks, _LONG_LINE
        elif line.strip(_EMPTY) or above < 0 or "\\" not in text[above] + text[stop]:
            # The first line may follow other text, as in the head of a hunk.
            behind = None if "-----" in line else _BEHIND_WORDS.fullmatch(line)
            return begin + behind.start(1) if behind else start
        if above < 0:
            break
        stop = above
    return start


def _break_before(text: str, end: int, floor: int) -> tuple[int, int]:
    """Return where the line break before a position begins and ends; -1 and the lower bound if there is none nearby."""
    low = max(floor, end - _MAX_LINE_LENGTH)
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
    """Return where the last private key before `end` ends; another body may begin right after it, without a new line."""
    at = text.rfind(PEM_END, 0, end)
    match = _PEM_CLOSE.match(text, at, end) if at >= 0 else None
    return match.end() if match else 0
