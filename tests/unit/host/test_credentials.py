"""Credentials: where values come from, where they may go, how they travel, and that they are learned before anyone has them."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from curtainwall.host import (
    Credential,
    Credentials,
    CredentialSource,
    FromCommand,
    FromEnvironment,
    FromFile,
    FromKeyring,
    Sending,
    Unavailable,
)
from curtainwall.model import HostFacts, Scope
from tests.support.covers import covers
from tests.support.houses import run, until

VALUE = "correct-horse-battery"


def facts(host: str = "api.example.org", *, secure: bool = True) -> HostFacts:
    return HostFacts(host=host, port=443 if secure else 80, secure=secure, scope=Scope.PUBLIC)


def credential(source: CredentialSource, sending: str = "bearer", tools: tuple[str, ...] = (), *, plain_http: bool = False) -> Credential:
    return Credential(
        "key", source, lambda there: there.host in {"api.example.org", "127.0.0.1"}, Sending.parse(sending), frozenset(tools), plain_http
    )


def in_environment(value: str = VALUE) -> FromEnvironment:
    return FromEnvironment("KEY", {"KEY": value})


def program(code: str, seconds: float = 20, **environ: str) -> FromCommand:
    return FromCommand((sys.executable, "-I", "-c", code), {"PATH": os.environ["PATH"], **environ}, seconds)


def value_of(source: CredentialSource) -> str:
    return run(source.read())


def refusal(source: CredentialSource) -> str:
    with pytest.raises(Unavailable) as fault:
        value_of(source)
    assert VALUE not in str(fault.value)
    return str(fault.value)


# Sources


def test_a_variable_is_read_anew_for_each_use() -> None:
    environ = {"KEY": f" {VALUE}\n"}
    source = FromEnvironment("KEY", environ)
    assert value_of(source) == VALUE
    environ["KEY"] = "another-value"
    assert value_of(source) == "another-value"
    assert "`GONE` is not set" in refusal(FromEnvironment("GONE", environ))


def test_a_file_holds_the_value_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert "no such file" in refusal(FromFile(path))
    path.write_text(f"{VALUE}\n")
    assert value_of(FromFile(path)) == VALUE
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(FromFile(path))
    path.write_bytes(b"x" * 100_000)
    assert "far bigger" in refusal(FromFile(path))
    assert "is not a file" in refusal(FromFile(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in refusal(FromFile(tmp_path / "pipe"))


def test_a_program_prints_the_value_in_its_first_line() -> None:
    assert value_of(program(f"print('{VALUE}'); print('user: ann')")) == VALUE


def test_a_program_that_fails_says_nothing_of_what_it_printed() -> None:
    assert "exit code 3" in refusal(program(f"import sys; print('{VALUE}'); print('{VALUE}', file=sys.stderr); sys.exit(3)"))
    assert "printed nothing" in refusal(program("print()"))
    assert "far more than a credential" in refusal(program("print('x' * 1_000_000)"))
    assert "cannot be started" in refusal(FromCommand(("/nowhere/pass",), {}))


@covers("credentials.a-command-gets-a-small-environment")
def test_a_program_gets_a_small_environment_and_no_input(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f"import os, sys; open({str(told)!r}, 'w').write(repr(dict(os.environ)) + sys.stdin.read()); print('{VALUE}')"
    source = program(code, HOME=str(tmp_path), GNUPGHOME="/g", OPENAI_API_KEY="sk-not-for-you", LD_PRELOAD="x.so", PYTHONSTARTUP="y")
    assert value_of(source) == VALUE
    seen = told.read_text()
    assert "GNUPGHOME" in seen
    assert not any(name in seen for name in ("sk-not-for-you", "LD_PRELOAD", "PYTHONSTARTUP"))


def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(told)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    assert "did not end within" in refusal(program(code, 3))

    async def gone() -> None:
        pid = int(told.read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3])

    asyncio.run(gone())


def test_a_missing_keyring_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    refused = refusal(FromKeyring("service", "ann"))
    assert "install it with `pip install 'curtainwall[keyring]'`, or use `env`, `file` or `command`" in refused


def test_the_keyring_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = f"    if user == 'eve': raise RuntimeError('{VALUE}')\n"
    (tmp_path / "keyring.py").write_text(f"def get_password(service, user):\n{failing}    return {{'ann': '{VALUE}'}}.get(user)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)
    assert value_of(FromKeyring("service", "ann")) == VALUE
    assert "has no entry" in refusal(FromKeyring("service", "bob"))
    assert "cannot be read (RuntimeError)" in refusal(FromKeyring("service", "eve"))
    monkeypatch.delitem(sys.modules, "keyring")


# How it is sent


def test_the_ways_to_send() -> None:
    assert Sending.parse("bearer").headers("v") == (("Authorization", "Bearer v"),)
    assert Sending.parse("header:X-Api-Key").headers("v") == (("X-Api-Key", "v"),)
    assert Sending.parse("basic:ann").headers("v") == (("Authorization", "Basic YW5uOnY="),)
    assert (Sending.parse("query:key").headers("v"), Sending.parse("query:key").query("a b&c")) == ((), "key=a%20b%26c")


@pytest.mark.parametrize(
    "text", ["", "Bearer", "bearer:x", "header", "header:", "header:a b", "header:Host", "basic", "basic:a:b", "query:", "x:y"]
)
def test_other_ways_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|is no"):
        Sending.parse(text)


# Where it may go


@covers("credentials.go-only-where-they-are-for")
def test_a_credential_goes_to_its_hosts_and_tools_alone_and_over_https() -> None:
    key = credential(in_environment(), tools=("fetch.get",))
    key.require_destination("fetch.get", facts())
    key.require_destination("fetch.get", facts("127.0.0.1", secure=False))
    for tool, there, words in (
        ("git.push", facts(), "is not for `git.push`"),
        ("fetch.get", facts("evil.example.org"), "is not for the host `evil.example.org`"),
        ("fetch.get", facts(secure=False), "only sent over https"),
    ):
        with pytest.raises(Unavailable, match=words):
            key.require_destination(tool, there)
    credential(in_environment(), plain_http=True).require_destination("git.push", facts(secure=False))


# The house's credentials


def test_a_value_is_learned_before_it_is_handed_out() -> None:
    learned: list[tuple[str, str]] = []
    known = Credentials([credential(in_environment(), "basic:ann")], lambda name, value: learned.append((name, value)))
    secret = run(known.resolve("key"))
    assert secret.reveal() == VALUE
    assert [name for name, _ in learned] == ["key", "key"]
    assert learned[0][1] == VALUE
    assert Sending.parse("basic:ann").headers(VALUE)[0][1] == f"Basic {learned[1][1]}"


def test_a_secret_does_not_show_itself() -> None:
    secret = run(Credentials([credential(in_environment())]).resolve("key"))
    assert VALUE not in f"{secret} {secret!r} {secret.credential!r}"


def test_what_is_at_hand_is_learned_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(VALUE)
    ran = tmp_path / "ran"
    learned: dict[str, str] = {}
    sources: dict[str, CredentialSource] = {
        "env": in_environment("env-value"), "file": FromFile(tmp_path / "key"), "gone": FromFile(tmp_path / "gone"),
        "command": program(f"open({str(ran)!r}, 'w'); print('command-value')"),
    }  # fmt: skip
    known = Credentials((Credential(name, source, lambda _there: True) for name, source in sources.items()), learned.__setitem__)
    run(known.learn_at_hand())
    assert learned == {"env": "env-value", "file": VALUE}
    assert not ran.exists()
    assert known.names() == ("command", "env", "file", "gone")


@pytest.mark.parametrize("value", ["abcd5", "two\nlines-of-it", "bell\a-and-more", "x" * 20_000, "ümlaut-value"])
def test_a_value_that_cannot_be_sent_or_masked_is_refused(value: str) -> None:
    known = Credentials([credential(in_environment(value))])
    with pytest.raises(Unavailable) as fault:
        run(known.resolve("key"))
    assert value not in str(fault.value)


def test_an_unknown_name_is_answered_with_the_one_that_was_meant() -> None:
    known = Credentials([credential(in_environment())])
    with pytest.raises(Unavailable, match="there is no credential `kee`; did you mean `key`"):
        known.find("kee")
    with pytest.raises(Unavailable, match=r"`\[credentials.NAME\]` in the configuration"):
        known.find("zzz")
    with pytest.raises(Unavailable, match="the credential `key` cannot be had: the environment variable `KEY` is not set"):
        run(Credentials([credential(FromEnvironment("KEY", {}))]).resolve("key"))
