"""Masking leaves no secret, whatever stands around it and however it arrives."""

import base64
import json
from urllib.parse import quote

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from curtainwall.facts.secrets.masks import Masker, StreamMasker, contains_mask

KNOWN = 'Tr0ub4dor&3 "quoted"/é'
MASKER = Masker(b"a key of this house", {"wifi": KNOWN, "two-lines": "first line\nsecond line"})

ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def run(size: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=size, max_size=size + 8)


SHAPED = st.one_of(
    run(24).map("sk-ant-api03-".__add__),
    run(24).map("sk-proj-".__add__),
    run(24).map("sk-".__add__),
    st.tuples(st.sampled_from("pousr"), run(36)).map(lambda pair: f"gh{pair[0]}_{pair[1]}"),
    run(40, ALNUM + "_").map("github_pat_".__add__),
    run(20).map("glpat-".__add__),
    run(35).map("AIza".__add__),
    run(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789").map("AKIA".__add__),
    run(20).map("xoxb-".__add__),
    st.tuples(run(12), run(12), run(12)).map(lambda parts: f"eyJ{parts[0]}.eyJ{parts[1]}.{parts[2]}"),
    run(24).map("sk_live_".__add__),
    run(36).map("npm_".__add__),
    run(30).map("hf_".__add__),
    run(64, "0123456789abcdef").map("dop_v1_".__add__),
    run(32, "0123456789abcdef").map("shpat_".__add__),
    run(28, ALNUM + "_-").map("GOCSPX-".__add__),
    run(30).map("dckr_pat_".__add__),
    run(24).map("hvs.".__add__),
    st.tuples(run(22), run(43)).map(lambda parts: f"SG.{parts[0]}.{parts[1]}"),
)
PEM = st.tuples(st.sampled_from(["", "RSA ", "EC ", "OPENSSH "]), st.lists(run(60), min_size=1, max_size=6)).map(
    lambda pair: "\n".join([f"-----BEGIN {pair[0]}PRIVATE KEY-----", *pair[1], f"-----END {pair[0]}PRIVATE KEY-----"])
)
PREFIXED = st.tuples(
    PEM,
    st.sampled_from(["12:", "    12\t", "   12 ", "key.pem-12-", "a/key.pem:", "web-1  | ", "> ", "+", "-", "# ", "  12 | ", "12: "]),
    st.booleans(),
    st.booleans(),
).map(
    lambda told: "".join(
        f"{told[1]}{line}\n" for line in told[0].split("\n") if not (told[2] and "BEGIN" in line) and not (told[3] and "END" in line)
    )
)
HEADLESS = PEM.map(lambda key: key.partition("\n")[2])
LINES = st.lists(
    st.sampled_from(["password: |\n", "  hunter22\n", '"token":\n', ' "abcd1234"\n', "  word\n", "\n", "  two words\n", "a" * 20 + "\n"]),
    max_size=8,
).map("".join)
KEPT = st.lists(
    st.sampled_from(
        [
            "machine h.org\n", "  login ann\n", "machine h login ann password ", "password ", "hunter22\n", " -p",
            "mysql -u x -phunter22 ", "curl -u ",
            "ann:hunter22 ", "--password ", "--token=", "hunter22 ", "<password>", "</password>\n", '{"name": "Authorization",\n',
            '"value": "Bearer abc123def"}',
            '["cookie", ', '"sid=hunter22"]', '"auth": ', '"YW5uOmh1bnRlcjIy"', "Basic YW5uOmh1bnRlcjIy ", "h:5432:d:u:", "\n", " ",
            "12: ", "word ",
            'password: str = ', '"hunter22"', "Cookie: a=b12; c=d\n", "sshpass -p ", "key: ",
        ]
    ),
    max_size=8,
).map("".join)  # fmt: skip
PROSE = st.lists(
    st.sampled_from([*"abc XYZ\n.,:;=\"'{}[]()/\\-_", "token", "password: ", "Bearer ", "://", "sk-", "é", "[masked:", "hunter22"]),
    max_size=40,
).map("".join)
AROUND = st.sampled_from(["", " ", "\n", '"', "'", "(", ": ", "="])


@settings(deadline=None)
@given(before=PROSE, left=AROUND, secret=SHAPED, right=AROUND, after=PROSE)
def test_no_shaped_secret_survives(before: str, left: str, secret: str, right: str, after: str) -> None:
    neighbour = (before + left)[-1:]
    assume(not neighbour.isalnum() and neighbour not in ("_", "-"))
    masked = MASKER.mask_text(before + left + secret + (right or " ") + after)
    assert secret not in masked
    assert contains_mask(masked)


@settings(deadline=None)
@given(before=PROSE, secret=PEM, after=PROSE, cut=st.booleans(), escaped=st.booleans())
def test_no_line_of_a_private_key_survives(before: str, secret: str, after: str, cut: bool, escaped: bool) -> None:
    body = secret.split("\n")[1:-1]
    text = secret.partition("\n-----END")[0] if cut else secret
    masked = MASKER.mask_text(before + (json.dumps(text)[1:-1] if escaped else text) + "\n" + after)
    assert [line for line in body if line in masked] == []


@settings(deadline=None)
@given(before=PROSE, after=PROSE, lead=st.binary(max_size=5), tail=st.binary(max_size=5))
def test_no_spelling_of_a_known_secret_survives(before: str, after: str, lead: bytes, tail: bytes) -> None:
    data = KNOWN.encode()
    spellings = [
        KNOWN,
        quote(KNOWN, safe=""),
        quote(KNOWN),
        json.dumps(KNOWN)[1:-1],
        json.dumps(KNOWN, ensure_ascii=False)[1:-1],
        data.hex(),
    ]
    for spelling in spellings:
        assert spelling not in MASKER.mask_text(f"{before} {spelling} {after}")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(lead + data + tail).decode()
        assert encoded not in (masked := MASKER.mask_text(f"{before} {encoded} {after}"))
        assert "[masked:wifi:" in masked


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PROSE | SHAPED,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["password", "apiKey", "max_tokens", "name", "value", "X-Auth-Token", "a", "key"]) | PROSE, inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(value=JSON, secret=SHAPED, key=st.sampled_from(["a", "note", "password", "apiKey", "Authorization", "client_secret"]))
def test_no_secret_survives_in_json_and_masking_twice_is_masking_once(value: JsonValue, secret: str, key: str) -> None:
    masked = MASKER.mask_json([value, {key: [{"deep": [secret]}, secret]}])
    assert secret not in json.dumps(masked)
    assert MASKER.mask_json(masked) == masked


@settings(deadline=None)
@given(st.text(max_size=200) | st.lists(PROSE | SHAPED | PEM | HEADLESS | LINES | PREFIXED | KEPT, max_size=8).map("".join))
@example("password=ghp_" + "a" * 40 + "[masked:x:1234abcd]")
def test_masking_twice_is_masking_once(text: str) -> None:
    once = MASKER.mask_text(text)
    assert MASKER.mask_text(once) == once


@settings(deadline=None)
@given(
    parts=st.lists(
        PROSE
        | SHAPED
        | PEM
        | HEADLESS
        | LINES
        | PREFIXED
        | KEPT
        | st.sampled_from([KNOWN, "first line\nsecond line", "password = hunter22", "Authorization: Basic dXNlcjpwdw=="]),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_masking_in_pieces_is_masking_the_whole(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    stream = StreamMasker(MASKER)
    out = ""
    at = 0
    for cut in sorted(cuts):
        out += stream.feed(text[at:cut])
        at = max(at, cut)
    out += stream.feed(text[at:]) + stream.finish()
    assert out == MASKER.mask_text(text)


@settings(deadline=None)
@given(st.lists(SHAPED | PEM | HEADLESS | LINES | PREFIXED | KEPT | PROSE, min_size=1, max_size=5), st.integers(1, 7))
def test_no_secret_survives_letter_by_letter(parts: list[str], size: int) -> None:
    text = "\n".join(parts)
    stream = StreamMasker(MASKER)
    out = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.finish()
    assert out == MASKER.mask_text(text)
