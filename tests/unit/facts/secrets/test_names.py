"""Secrets that are known by what stands in front of them, in the files and command lines where they are usually kept."""

import base64
import json
import re

import pytest

from curtainwall.facts import Masker
from tests.support.covers import covers

MASKER = Masker(b"key")
WORD = "Tr0ub4dor-and-3"
LOGIN = base64.b64encode(f"ann:{WORD}".encode()).decode()
LONG = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzKEY"


@pytest.mark.parametrize(
    "text",
    [
        f"machine example.org login ann password {WORD}", f"machine example.org\n  login ann\n  password {WORD}\n",
        f"machine example.org login ann\npassword {WORD}", f"default login ann password {WORD}",
        "machine h login ann password correcthorse",
        f"mysql -u root -p{WORD} shop", f"sshpass -p {WORD} ssh host", f"sshpass -p '{WORD}' ssh host",
        f"docker login -u ann -p {WORD} registry.example.org", f"curl -u ann:{WORD} https://example.org",
        f"curl --user 'ann:{WORD}' https://x",
        f"deploy --password {WORD} --force", f"deploy --password '{WORD}'", f"deploy --token={WORD}", f"deploy --api-key \"{WORD}\"",
        f"<password>{WORD}</password>", f"<ns:Password> {WORD} </ns:Password>", f'<user name="ann" password="{WORD}"/>',
        f'<add key="ApiKey" value="{WORD}" />', f"<add key='DbPassword' value='{WORD}' />",
        f'{{"auths": {{"r.example.org": {{"auth": "{LOGIN}"}}}}}}', f'"identitytoken": "{WORD}"',
        f"    client-key-data: {LONG}", f"    token: {LONG}", f"db.example.org:5432:shop:ann:{WORD}", f"*:*:*:ann:{WORD}\n",
        f"//registry.example.org/:_authToken={WORD}", f"_auth={LOGIN}", f"//r.example.org/:_password={LOGIN}",
        f"[pypi]\nusername = __token__\npassword = {WORD}", f"aws_secret_access_key = {LONG}", f"aws_session_token={LONG}",
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={LONG}==;EndpointSuffix=core",
        f"Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={LONG}=", f"Server=db;User Id=ann;Password={WORD};",
        f"Authorization: Basic {LOGIN}", f"Proxy-Authorization: Basic {LOGIN}", f"use Basic {LOGIN} for it", f"X-Api-Key: {WORD}",
        f'["authorization", "Bearer {WORD}"]', f"('Authorization', 'Basic {LOGIN}')", f"[b'cookie', b'sid={WORD}']",
        f'{{"name": "Authorization", "value": "Bearer {WORD}"}}', f'{{\n  "name": "Cookie",\n  "value": "sid={WORD}; x=1"\n}}',
        f'{{"name": "X-Auth-Token", "value": "{WORD}"}}', f'{{\\"name\\": \\"api_key\\", \\"value\\": \\"{WORD}\\"}}',
        f"Set-Cookie: session={WORD}; HttpOnly; Secure", f"Cookie: a=b12; session={WORD}",
        f'app.config["SECRET_KEY"] = "{WORD}"', f"os.environ['DB_PASSWORD'] = '{WORD}'", f'password: str = "{WORD}"',
        f"password = b'{WORD}'",
        'password = "it\'s-hunter22"', 'password = "hunter22\\$more"', "DB_PASSWORD=p@ss;w(o)rd&12", "DB_PASSWORD=hunter2",
        "password: hunter2",
        f"accesstoken={WORD}", f"clientsecret: '{WORD}'",
    ],
)  # fmt: skip
@covers("facts.secrets-are-found-where-they-are-kept")
def test_a_secret_is_found_where_such_files_and_commands_keep_it(text: str) -> None:
    masked = MASKER.mask_text(text)
    for secret in (WORD, LOGIN, LONG, "correcthorse", "hunter2", "p@ss", "more"):
        assert secret not in masked
    for line in json.dumps(text)[1:-1], f"+ {text}", f"> {text}":
        for secret in (WORD, LOGIN, LONG):
            assert secret not in MASKER.mask_text(line) or "\n" in text, line


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/app/src", "OLDPWD=/home/ann/Work", "export PWD=~/src", "token = next(tokens)", "password: str", "password: str | None = None",
        'password=os.environ["X"]', "secret_key = get_key()", "Authorization: Bearer $TOKEN", "Authorization: Bearer ${TOKEN}",
        "Authorization: Bearer {token}", "Authorization: Bearer <token>", "authorization: Optional[str] = None",
        "send authorization: Bearer $TOKEN, and go on", "(authorization: Bearer $TOKEN)", "“authorization: Bearer ${TOKEN}”",
        "cookies: list[Cookie] = []",
        "def __init__(self, cookies: CookieTypes | None = None) -> None:", 'header="Set-Cookie:", sep="\\015\\012"', "TOKEN=$(make token)",
        "PASSWORD=$OTHER_PASSWORD", "token=${{ secrets.DEPLOY_TOKEN }}", 'private_key: Ed25519PrivateKey | None', '"cookie": "^0.7.1"',
        '"@octokit/auth-token": "^6.0.0"', 'Token: "#f8f8f2"', "credentials: 'same-origin'", "setPassword: function (service) {",
        "const cookies = this.#headersList.cookies", "noAuthorization = !req.headers.authorization;",
        "credentials = '{0}:{1}'.format(a, b)",
        "let cookie = `${name}=${value}`;", 'GOOGLE_APPLICATION_CREDENTIALS="/path/to/credentials.json"', "--private-key ~/.ssh/id_ed25519",
        "use the --password option to log in", "--token TOKEN", "--password <password>", "the login page password reset",
        "mkdir -p some/dir",
        "docker run -p 8080:80 image", "ssh -p 2222 host", "git push -u origin:main", "<password>required</password>",
        '["password", "username"]', '("token", "kind", "value")', '"auth": "basic"', "auth = Auth(token)", '"auth": "YWJjZGVmZ2hpag=="',
        "Basic authentication is used", "basic dXNlcg", '{"name": "token", "value": "<token>"}', "10:*:20:a:b:c", "cpe:2.3:a:x:y:*:*:*:*",
        "tokens = ['a1b2c3d4', 'e5f6']", "password_file: /run/secrets/db", "PASSWORD_FILE=/run/secrets/db", "if token == 'a1b2c3d4':",
    ],
)  # fmt: skip
@covers("facts.code-is-not-masked")
def test_code_paths_variables_and_prose_are_left_alone(text: str) -> None:
    assert MASKER.mask_text(text) == text


@covers("secrets.the-working-directory-is-shown")
def test_the_working_directory_is_no_password() -> None:
    for value in ("/home/ann/MyProject", "/Users/Ann/Work/Shop-2", "/", "/srv/App_2/"):
        variables = f"export PWD={value}\nOLDPWD={value}\nHOME=/home/ann"
        assert MASKER.mask_text(variables) == variables
        assert MASKER.mask_text(f'{{"PWD": "{value}"}}') == f'{{"PWD": "{value}"}}'
        assert MASKER.mask_json({"PWD": value}) == {"PWD": value}
        assert MASKER.mask_json([{"name": "PWD", "value": value}]) == [{"name": "PWD", "value": value}]


@pytest.mark.parametrize(
    "text", [f"PWD={WORD}", f"pwd=/{WORD}", f"DB_PWD=/home/{WORD}", "PWD=/Xk29dJs0a9+1/22", "Pwd=/home/Ann/Xk29dJs0a9"]
)
def test_a_password_under_a_like_name_is_masked(text: str) -> None:
    name, _, value = text.partition("=")
    assert value not in MASKER.mask_text(text)
    assert MASKER.mask_json({name: value}) != {name: value}


def test_pairs_in_json_are_masked_and_lists_of_words_are_not() -> None:
    value = [["authorization", f"Bearer {WORD}"], ["password", "username"], {"auth": LOGIN}, {"auth": "basic"}, ["x-api-key", WORD]]
    masked = re.sub(r":[0-9a-f]{8}\]", "]", json.dumps(MASKER.mask_json(value)))
    assert json.loads(masked) == [
        ["authorization", "[masked:authorization]"], ["password", "username"], {"auth": "[masked:auth]"}, {"auth": "basic"},
        ["x-api-key", "[masked:api-key]"],
    ]  # fmt: skip
