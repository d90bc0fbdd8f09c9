"""Forbids on paths, and tools that work on whole trees: no directory or commit leads around a rule about what is in it."""

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Answer, CallRequest, Effect, Mode, SessionId
from curtainwall.policy import import_permissions
from tests.support.covers import covers
from tests.support.in_process import Places, opened
from tests.support.talking import run

pytestmark = pytest.mark.usefixtures("bubblewrap")

WORDS = "words that nobody may read"
Ask = Callable[..., Awaitable[Answer]]


def git(where: Path, *words: str) -> str:
    named = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def work(places: Places) -> Path:
    """A repository with files that rules will be about."""
    where = places.workspace
    git(where, "init", "-q")
    for name, text in (
        ("private/nötes.txt", "\n".join(f"line {number}" for number in range(20)) + f"\n{WORDS}"),
        ("a/secret/k", WORDS),
        ("a/plain", "harmless"),
        ("prod.cfg", "safe"),
        ("x", "harmless"),
    ):
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(f"{text}\n")
    git(where, "add", "--all")
    git(where, "commit", "-qm", "first")
    git(where, "checkout", "-qb", "evil")
    (where / "prod.cfg").write_text("harm\n")
    git(where, "commit", "-qam", "evil")
    git(where, "checkout", "-q", "main")
    git(where, "checkout", "-qb", "good")
    (where / "x").write_text("harmless and new\n")
    git(where, "commit", "-qam", "good")
    git(where, "checkout", "-q", "main")
    return where


def with_rules(text: str) -> None:
    rules = load_setup().home.root / "policy" / "mine.cedar"
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(text)


def in_a_session(work: Path, story: Callable[[Ask], Awaitable[None]], mode: Mode = Mode.BYPASS) -> None:
    async def told() -> None:
        async with open_gate(load_setup()) as wired:
            await story(asking(wired, await opened(wired, work, own=False, mode=mode)))

    run(told())


def asking(wired: GatedSessions, session: SessionId) -> Ask:
    async def ask(tool: str, **arguments: JsonValue) -> Answer:
        return await wired.gate.request(session, CallRequest(tool=tool, arguments=arguments), wait=False)

    return ask


def said(answer: Answer) -> str:
    assert answer.result is not None, answer
    return str(answer.result.value)


@covers("policy.a-forbid-on-a-path-holds-in-trees")
def test_git_leaves_out_what_the_rules_deny_and_says_so(work: Path) -> None:
    denied: list[JsonValue] = ["Read(./private/**)", "Read(./a/secret/**)"]
    with_rules(import_permissions({"permissions": {"deny": denied}}, workspace=str(work)).cedar_text)
    (work / "moved.txt").write_text("\n".join(f"line {number}" for number in range(20)))
    git(work, "rm", "-qr", "private")
    git(work, "add", "moved.txt")
    git(work, "commit", "-qm", "renamed, without the words")
    (work / "x").write_text("harmless, changed\n")
    (work / "a" / "secret" / "k").write_text(f"{WORDS}, changed\n")
    git(work, "config", "diff.relative", "true")

    async def story(ask: Ask) -> None:
        calls: tuple[tuple[str, dict[str, JsonValue]], ...] = (
            ("git.show", {"ref": "HEAD"}),
            ("git.show", {"ref": "HEAD~1"}),
            ("git.diff", {}),
            ("git.diff", {"path": "a"}),
            ("git.diff", {"ref": "HEAD~1"}),
            ("git.diff", {"ref": "HEAD~1", "files": ["."]}),
        )
        for tool, arguments in calls:
            words = said(await ask(tool, **arguments))
            assert WORDS not in words, (tool, arguments)
            assert "left out, because the rules of this session deny reading them" in words, (tool, arguments, words)
        words = said(await ask("git.diff"))
        assert "harmless, changed" in words
        assert "deny reading them: `a/secret/k`" in words
        assert "`private/nötes.txt`" in said(await ask("git.show", ref="HEAD"))
        assert (await ask("git.show", ref="HEAD~1:private/nötes.txt")).verdict.effect is Effect.DENY
        assert "`a/secret/k`" in said(await ask("git.add", files=["."]))
        assert git(work, "diff", "--cached", "--name-only") == "x"

    in_a_session(work, story)


@covers("policy.a-forbid-on-a-path-holds-in-trees")
def test_a_directory_is_not_moved_from_under_a_rule(work: Path) -> None:
    with_rules(f'@id("hidden") forbid (principal, action == Action::"read-path", resource in Path::"{work}/a/secret");')

    async def story(ask: Ask) -> None:
        moved = await ask("filesystem.move_file", source="a", destination="b")
        assert (moved.verdict.effect, moved.verdict.because, moved.result) == (Effect.DENY, ("hidden",), None)
        assert (await ask("filesystem.move_file", source="x", destination="y")).result is not None

    in_a_session(work, story, Mode.ACCEPT_EDITS)
    assert (work / "a" / "secret" / "k").exists()
    assert (work / "y").exists()


@pytest.mark.parametrize("mode", [Mode.ACCEPT_EDITS, Mode.BYPASS])
@covers("policy.a-forbid-on-a-path-holds-in-trees")
def test_a_switch_does_not_write_what_the_rules_deny(work: Path, mode: Mode) -> None:
    with_rules(f'@id("fixed") forbid (principal, action == Action::"write-path", resource == Path::"{work}/prod.cfg");')

    async def story(ask: Ask) -> None:
        assert "this would change `prod.cfg`, which the rules of this session deny" in said(await ask("git.checkout", ref="evil"))
        assert (work / "prod.cfg").read_text() == "safe\n"
        await ask("git.checkout", ref="good")
        assert (work / "x").read_text() == "harmless and new\n"

    in_a_session(work, story, mode)
