"""Paths, URLs, remotes and whole lines made to mean one thing to the judge and another to the machine."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from curtainwall.compose.setup import load_setup
from curtainwall.compose.trial import Judge, judge_for
from curtainwall.model import Mode
from tests.support.fuzz import frames
from tests.support.in_process import Places, Said

Run = Callable[..., Said]


@pytest.fixture
def judge(places: Places) -> Judge:
    places.home.mkdir()
    (places.home / "config.toml").write_text('[lists]\nhosts = ["*", "listed.host"]\nremotes = ["github.com/me/*"]\n')
    (places.user / ".ssh").mkdir()
    setup = load_setup()
    return judge_for(setup, setup.workspace_at(places.workspace, own=True), Mode.DEFAULT, frozenset())


def effect(judge: Judge, tool: str, **arguments: Any) -> str:
    return judge.line(json.dumps({"tool": tool, "arguments": arguments}).encode()).verdict.effect.value


def test_paths_that_leave_the_workspace_are_never_free(places: Places, judge: Judge) -> None:
    workspace = places.workspace
    (workspace.parent / "W-evil").mkdir()
    (workspace / "out").symlink_to("/etc")
    (workspace / "dangling").symlink_to("/etc/none")
    (workspace / "hop").symlink_to("out")
    (workspace / "up").symlink_to("..")
    for path in (
        "../etc/passwd",
        f"{workspace}-evil/x",
        "out/passwd",
        "hop/passwd",
        "up/W-evil/x",
        "dangling",
        "out/../etc/passwd",
        "/",
        "//etc/x",
    ):
        assert effect(judge, "filesystem.read_file", path=path) == "ask", path
        assert effect(judge, "filesystem.write_file", path=path, content="") == "ask", path


def test_paths_into_protected_places_are_closed_by_every_way(places: Places, judge: Judge) -> None:
    workspace = places.workspace
    (workspace / "keys").symlink_to(places.user / ".ssh")
    (workspace / "new").symlink_to(places.user / ".ssh" / "not-there")
    (workspace / "us").symlink_to(places.home)
    for path in (
        "~/.ssh/id_rsa",
        "~/.ssh/../.ssh/x",
        "keys/id_rsa",
        "new",
        "us/config.toml",
        f"{places.home}/curtainwall.db",
        "../cw/policy/x.cedar",
    ):
        assert effect(judge, "filesystem.write_file", path=path, content="") == "deny", path
        assert effect(judge, "filesystem.read_file", path=path) == "deny", path
    assert effect(judge, "filesystem.move_file", source="..", destination="x") == "deny"
    assert effect(judge, "filesystem.move_file", source="~", destination="x") == "deny"


@pytest.mark.parametrize(
    "path",
    [
        "",
        " ",
        "\0",
        "a\0b",
        "~root/x",
        "~x",
        "/proc/self/environ",
        "/proc/1/root/etc/passwd",
        "/proc/thread-self/x",
        "/dev/fd/3",
        "/dev/stdin",
        "loop",
        "x" * 256,
        "a/" * 3000,
        "file/x",
        "file/..",
        "procfs",
        None,
        1,
        True,
        ["x", ["y"]],
        {"a": "b"},
        [],
    ],
    ids=lambda path: ascii(path)[:24],
)
def test_paths_without_one_certain_meaning_are_denied(places: Places, judge: Judge, path: object) -> None:
    (places.workspace / "loop").symlink_to("loop")
    (places.workspace / "file").write_text("")
    (places.workspace / "procfs").symlink_to("/proc/self/environ")
    assert effect(judge, "filesystem.read_file", path=path) == "deny"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://[::ffff:169.254.169.254]/",
        "http://localhost/",
        "http://①27.0.0.1/",
        "http://metadata.google.internal/",
        "http://metadata/",
        "http://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        "http://0/",
        "http://[::]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://loc\u00adalhost/",
        "http://localhost./",
        "http://x.localhost/",
        "http://foo.internal/",
        "file:///etc/passwd",
        "data:text/html,x",
        "https:listed.host",
        "https://listed.host\\@evil.com",
        "https://listed.host\t/",
        "http://a.org:0/",
        "https://u:p@listed.host/",
        "https://[fe80::1%25eth0]/",
        "https://a..b/",
        "https://xn--a/",
        "//listed.host/",
        "ftp://listed.host/",
        "HTTP:/listed.host",
    ],
)
def test_no_spelling_of_a_url_is_free_although_a_star_is_listed(judge: Judge, url: str) -> None:
    assert effect(judge, "fetch.get", url=url) != "allow"


def test_a_user_name_is_not_the_host(judge: Judge) -> None:
    ruling = judge.line(b'{"tool": "fetch.get", "arguments": {"url": "https://listed.host@evil.com/"}}')
    assert ruling.subject is not None
    assert ruling.subject.resources[1].value == "https://evil.com"


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/me/../evil/r",
        "https://github.com/me/%2e%2e/evil/r",
        "git@github.com:me/../evil/r",
        "https://github.com.evil.com/me/r",
        "https://github.com@evil.com/me/r",
        "ext::sh -c x",
        "file:///etc",
        "/etc",
        "./x",
        "-uX",
        "--upload-pack=x",
        "https://-x/me/r",
        "https://github.com/me/r\nx",
        "https://github.com/me%2f..%2fevil/r",
        "HTTPS://github.com/me/r",
        "ssh://-oProxyCommand=x/me/r",
        "https://127.1/me/r",
        "git@[::1]:me/r",
    ],
)
def test_no_spelling_of_a_remote_passes_for_a_listed_one(judge: Judge, remote: str) -> None:
    assert effect(judge, "git.clone", url=remote, path="x") != "allow"
    assert effect(judge, "git.clone", url="git@github.com:me/r.git", path="x") == "allow"


def test_the_config_of_a_repository_does_not_turn_a_push_into_a_listed_one(places: Places, judge: Judge) -> None:
    subprocess.run(["git", "init", "-q", places.workspace], check=True, env={"PATH": os.environ["PATH"], "HOME": str(places.user)})
    config = places.workspace / ".git" / "config"
    plain = config.read_text()
    for added in (
        '[remote "origin"]\nurl = https://github.com/me/r\npushurl = https://evil.com/x\n',
        '[remote "origin"]\nurl = https://github.com/me/r\n[url "https://evil.com/"]\npushInsteadOf = https://github.com/\n',
        '[remote "origin"]\nurl = https://github.com/me/r\n[url "https://evil.com/"]\ninsteadOf = https://github.com/\n',
        '[remote "https://github.com/me/r"]\nurl = https://evil.com/x\n[remote "origin"]\nurl = https://github.com/me/r\n',
        '[include]\npath = /tmp/x\n[remote "origin"]\nurl = https://github.com/me/r\n',
        '[remote "origin"]\nurl = https://github.com/me/r\nvcs = sh\n',
    ):
        config.write_text(plain + added)
        assert effect(judge, "git.push", remote="origin") != "allow", added


@pytest.mark.parametrize(
    "line",
    [
        b'{"tool":"filesystem.read_file","arguments":{"path":"a","path":"/etc/passwd"}}',
        b'{"tool":"x","tool":"filesystem.read_file","arguments":{"path":"a"}}',
        b'{"tool":"filesystem.read_file","arguments":{"path":"a"},"mode":"bypass"}',
        b'{"tool":"filesystem.read_file","arguments":{"path":NaN}}',
        b'{"tool":"filesystem.read_file","arguments":{"path":"a","head":1e999}}',
        b'{"tool":"filesystem.read_file","arguments":{"path":"a","head":1.0}}',
        b'{"tool":"filesystem.read_file","arguments":{"path":"a","head":true}}',
        b'{"tool":"filesystem.read_file","arguments":' + b"[" * 100_000,
        b'{"tool":"filesystem.read_file","arguments":{"path":"a","head":' + b"9" * 10_000 + b"}}",
        b'{"tool":"filesystem.read_file","arguments":{"path":"\\ud800"}}',
        b"\xff\xfe",
        b"",
        b"null",
        b"[]",
        b"0",
        b'{"tool":["filesystem.read_file"],"arguments":{"path":"a"}}',
    ],
    ids=lambda line: ascii(line[:40]),
)
def test_lines_that_parsers_read_differently_are_denied(judge: Judge, line: bytes) -> None:
    assert judge.line(line).verdict.effect.value == "deny"


def test_a_thousand_lines_of_garbage_give_a_thousand_verdicts_and_none_allows(
    places: Places, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [frame.replace(b"\n", b" ") for frame in frames(7, 1_000)]

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines) + b"\n")))
    said = run("policy", "check")
    verdicts = [json.loads(line)["effect"] for line in said.out.splitlines()]
    assert (said.code, len(verdicts)) == (0, 1_000)
    assert "allow" not in verdicts


def test_too_many_things_at_once_are_refused(judge: Judge) -> None:
    assert effect(judge, "filesystem.read_multiple_files", paths=[f"f{number}" for number in range(129)]) == "deny"
    assert effect(judge, "shell.run", command="; ".join(f"a{number}" for number in range(300))) == "deny"


def test_hostile_shell_text_is_read_in_time_or_not_at_all(judge: Judge) -> None:
    start = time.process_time()
    for text in (
        "(" * 60_000,
        "`" * 60_000,
        "$(" * 30_000,
        "<<A " * 15_000,
        "${" * 30_000,
        "a;" * 30_000,
        "'" + '"' * 60_000,
        "[[" * 30_000,
    ):
        judge.line(json.dumps({"tool": "shell.run", "arguments": {"command": text}}).encode())
    assert time.process_time() - start < 10
