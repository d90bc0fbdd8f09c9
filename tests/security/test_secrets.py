"""Secrets on their way into log, audit and screens, and masks that an agent would like to hide behind."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.facts import Masker
from curtainwall.model import CallRequest, GrantScope, NotAllowed
from curtainwall.policy import judge
from curtainwall.session import shows_all
from curtainwall.session.standing_answers import covers_of
from tests.support.git_server import git
from tests.support.given import answer, asked, given, ready, run, wish
from tests.support.in_process import Places, Said, opened, session_in
from tests.support.machines import Machine
from tests.support.policies import policy, session
from tests.unit.tools.stage import Stage

Run = Callable[..., Said]

TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("tool", "arguments", "secret"),
    [
        ("fetch.get", {"url": "https://user:hunter2secret@host.org/"}, "hunter2secret"),
        ("fetch.get", {"url": f"https://host.org/\\{TOKEN}"}, TOKEN[:16]),
        ("filesystem.read_file", {"path": f"~{TOKEN}"}, TOKEN[:16]),
        ("filesystem.read_file", {"path": f"~{'x' * 100}{TOKEN}"}, TOKEN[:12]),
        ("filesystem.read_file", {"path": f"/proc/self/{TOKEN}"}, TOKEN[:16]),
        ("git.clone", {"url": f"ext::sh -c {TOKEN}", "path": "x"}, TOKEN[:16]),
        (f"no.{TOKEN}", {}, TOKEN[:16]),
        ("filesystem.read_file", {TOKEN: 1}, TOKEN[:16]),
    ],
)
def test_a_refusal_quotes_no_secret(places: Places, tool: str, arguments: dict[str, str], secret: str) -> None:
    found, (answered,) = session_in(places.workspace, CallRequest(tool=tool, arguments=dict(arguments)))
    assert answered.verdict.effect == "deny"
    assert secret not in answered.verdict.reason
    for path in (*places.home.glob("curtainwall.db*"), places.home / "sessions" / found / "audit.jsonl"):
        assert secret.encode() not in path.read_bytes(), path


@pytest.mark.usefixtures("bubblewrap")
def test_what_a_push_would_publish_is_told_without_half_a_secret(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    where, branch = machine.workspace / "r", f"{'b' * 108}-{TOKEN}"
    git("init", "--quiet", f"--initial-branch={branch}", str(where))
    git("remote", "add", "origin", "https://git.example.org/ann/r", cwd=where)
    git("commit", "--quiet", "--allow-empty", "-m", f"{'x' * 189} {TOKEN}", cwd=where)
    told = str(machine.prepare("git.push", path="r").subject.canonical["pushes"])
    assert "xxxx" in told
    assert TOKEN[:8] not in told


@pytest.mark.parametrize(
    "command",
    [
        "git -C authorization: Digest username=u, push=x, response=0123456789abcdef",
        "git -C authorization: Digest realm=r, nonce=abc123, token=abc12345",
    ],
)
def test_a_mask_cannot_hide_words_of_a_command_from_a_rule(stage: Stage, command: str) -> None:
    (shell,) = [it for it in stage.prepare("shell.run", command=command).subject.resources if it.role == "run-command"]
    assert getattr(shell.facts, "parsed", True) is False
    rules = policy('@id("mine") permit(principal, action == Action::"run-command", resource) when { resource.parsed };'
                   '@id("no") forbid(principal, action == Action::"run-command", resource) when { !resource.parsed };')  # fmt: skip
    subject = stage.prepare("shell.run", command=command).subject
    assert judge(rules, subject, session(str(stage.workspace))).effect == "deny"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git -C authorization: Digest push x=1", ["push", "x=1"]),
        ("git log authorization: AWS4-HMAC-SHA256 --push origin", ["--push", "origin"]),
        ("git -C authorization: Digest push token=abc12345", ["push"]),
    ],
)
def test_words_that_are_no_credential_stay_visible_behind_a_scheme(stage: Stage, command: str, words: list[str]) -> None:
    shown = str(stage.prepare("shell.run", command=command).subject.canonical["command"])
    assert [word for word in words if word not in shown.split()] == []


@pytest.mark.parametrize(
    "command", ["git status", f"git log {TOKEN}", f"curl -H 'Authorization: Bearer {TOKEN}' https://a.org", "x --password=abc12345"]
)
def test_a_secret_in_one_word_leaves_the_others_to_be_seen(stage: Stage, command: str) -> None:
    (shell,) = [it for it in stage.prepare("shell.run", command=command).subject.resources if it.role == "run-command"]
    assert getattr(shell.facts, "parsed", False)
    assert TOKEN not in shell.value


def test_what_stands_behind_a_mask_is_granted_once_alone() -> None:
    # Two different secrets can be given the same short mask, and nobody saw either.
    rule = '@id("ask") forbid(principal, action == Action::"run-command", resource) unless { context.approved };'
    ask = wish("c1", run("deploy [masked:token:12345678]"))
    situation = given(ready()).under(policy=policy(rule)).happened(asked(ask))
    situation.when(answer(ask, scope=GrantScope.SESSION)).then_refused("granted once alone", NotAllowed)
    assert not shows_all(covers_of(judge(policy(rule), ask.subject, session("/srv/own")), ask.subject))


@pytest.mark.parametrize(
    "line", ["cookie: " * 1000 + "[masked:a:abcd]\n", "authorization: " * 500 + "[masked:a:abcd]\n", "token='a" * 1000 + "\n"]
)
def test_masking_hostile_text_takes_time_in_proportion_to_its_length(line: str) -> None:
    masker = Masker(b"k" * 32)

    def seconds(text: str) -> float:
        start = time.process_time()
        masker.mask_text(text)
        return time.process_time() - start

    assert seconds(line * 20) < 1.0


def test_a_refused_call_of_megabytes_is_not_masked_and_not_kept(places: Places) -> None:
    async def work() -> None:
        async with open_gate(load_setup()) as wired:
            found = await opened(wired, places.workspace)
            hostile = ("cookie: " * 1000 + "[masked:a:abcd]\n") * 500
            start = time.process_time()
            told = await wired.gate.request(found, CallRequest(tool="filesystem.write_file", arguments={"path": "x", "content": hostile}))
            assert told.verdict.because == ("masked-arguments",)
            assert time.process_time() - start < 3

    asyncio.run(work())
    assert sum(path.stat().st_size for path in places.home.glob("curtainwall.db*")) < 1_000_000


def test_files_of_the_house_are_ours_alone_whatever_the_umask(places: Places) -> None:
    before = os.umask(0)
    try:
        session_in(places.workspace, CallRequest(tool="filesystem.read_file", arguments={"path": "/etc/hosts"}))
    finally:
        os.umask(before)
    for path in (places.home, *places.home.rglob("*")):
        assert path.lstat().st_mode & 0o077 == 0, path
