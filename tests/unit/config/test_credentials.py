"""What the configuration says of credentials: one source each, hosts that are hosts, and errors that say what to write."""

from pathlib import Path

import pytest

from curtainwall.config.docs import effective
from curtainwall.config.loader import parse_config
from curtainwall.config.secrets import credential_files, credential_variables, credentials_in
from curtainwall.host import FromCommand, FromEnvironment, FromFile, FromKeyring, Unavailable
from curtainwall.model import Broken, HostFacts, Scope

WHOLE = """
[credentials.github]
env = "GITHUB_TOKEN"
hosts = ["api.github.com", "*.example.org", "localhost:8080"]
[credentials.from-file]
file = "~/keys/token"
hosts = ["a.org"]
send = "header:X-Api-Key"
[credentials.from_keyring]
keyring = "a/service/ann"
tools = ["git.push"]
[credentials."pass.1"]
command = ["pass", "show", "x"]
hosts = ["b.org"]
send = "basic:ann"
plain-http = true
"""


def facts(host: str, port: int = 443, scope: Scope = Scope.PUBLIC) -> HostFacts:
    return HostFacts(host=host, port=port, secure=True, scope=scope)


def test_each_table_is_a_credential_with_its_source() -> None:
    config = parse_config(WHOLE)
    environ = {"HOME": "/home/ann"}
    found = {credential.name: credential for credential in credentials_in(config, environ)}
    assert found["github"].source == FromEnvironment("GITHUB_TOKEN", environ)
    assert found["from-file"].source == FromFile(Path("/home/ann/keys/token"))
    assert found["from_keyring"].source == FromKeyring("a/service", "ann")
    assert found["pass.1"].source == FromCommand(("pass", "show", "x"), environ)
    assert (found["pass.1"].sending.way, found["pass.1"].sending.name, found["pass.1"].plain_http) == ("basic", "ann", True)
    assert credential_files(config) == ("~/keys/token",)
    assert credential_variables(config) == ("GITHUB_TOKEN",)
    assert parse_config(effective(config)) == config


def test_hosts_are_told_as_in_lists() -> None:
    github = credentials_in(parse_config(WHOLE), {})[0]
    for there in (facts("api.github.com"), facts("x.example.org"), facts("localhost", 8080, Scope.PRIVATE)):
        github.require_destination("fetch.get", there)
    for other in (facts("github.com"), facts("example.org"), facts("localhost", 8081, Scope.PRIVATE), facts("x.example.org.evil.com")):
        with pytest.raises(Unavailable, match="is not for the host"):
            github.require_destination("fetch.get", other)


def test_a_credential_for_tools_alone_goes_to_no_host() -> None:
    keyring = credentials_in(parse_config(WHOLE), {})[2]
    with pytest.raises(Unavailable, match="is not for the host"):
        keyring.require_destination("git.push", facts("a.org"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[credentials.x]\nhosts = ['a.org']", "write exactly one of `env`"),
        ("[credentials.x]\nenv = 'A'\nfile = '/a'\nhosts = ['a.org']", "write exactly one of `env`"),
        ("[credentials.x]\nenv = 'A'", "write the `hosts` or the `tools`"),
        ("[credentials.x]\nenv = 'A'\nhosts = ['*']", "not for every host"),
        ("[credentials.x]\nenv = 'A'\nhosts = ['a.org']\nsend = 'cookie'", "write `bearer`, `header:NAME`"),
        ("[credentials.x]\nfile = 'token'\nhosts = ['a.org']", "`credentials.x.file`"),
        ("[credentials.x]\nkeyring = 'token'\nhosts = ['a.org']", "`credentials.x.keyring`"),
        ("[credentials.'a b']\nenv = 'A'\nhosts = ['a.org']", "credentials.a b"),
        ("[credentials.x]\nenv = 'A'\nhosts = ['a.org']\nvalue = 'secret'", "unknown key `credentials.x.value`"),
    ],
)
def test_what_does_not_hold_together_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as fault:
        parse_config(text)
    assert words in str(fault.value)


def test_a_host_that_is_none_names_its_table() -> None:
    with pytest.raises(Broken, match=r"\[credentials\.x\]: `hosts`: `https://a\.org` is no host"):
        credentials_in(parse_config("[credentials.x]\nenv = 'A'\nhosts = ['https://a.org']"))
