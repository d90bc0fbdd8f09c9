"""Each command opens the lowest level that it needs, and imports no more than that."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.host.user import local_user
from curtainwall.model import MessageId, Post, SendMessage, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.in_process import Places, Said, read, session_in

Run = Callable[..., Said]

OURS = "curtainwall"
HEAVY = {
    "aiodocker", "aiohttp", "anthropic", "cedarpy", "cryptography", "h11", "httpx", "jinja2", "markdown_it", "mcp", "nio", "openai",
    "prompt_toolkit", "pydantic_ai", "pydantic_monty", "rich", "starlette", "tree_sitter", "uvicorn",
}  # fmt: skip
"""What judging, agents, tools and channels need, and looking up or answering does not."""


def modules_of(*words: str, code: int = 0) -> set[str]:
    """Run a command in a process of its own, and return what that had imported in the end."""
    told = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    program = f"{told}; sys.argv = ['curtainwall', *{list(words)!r}]; from curtainwall.cli.entry import program; program()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def of_ours(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.partition(".")[0] == OURS)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["--help"], 6),
        (["approvals", "list"], 135),
        (["sessions", "list"], 100),
        (["grants", "list"], 95),
        (["audit", "verify"], 96),
        (["cron", "list"], 130),
        (["sessions", "held"], 140),
        (["tools", "list"], 105),
    ],
    ids=str,
)
def test_a_listing_imports_what_it_looks_up_and_nothing_that_judges_or_runs(words: list[str], most: int, places: Places) -> None:
    session_in(places.workspace, read("/etc/hostname"))
    loaded = modules_of(*words)
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert len(of_ours(loaded)) <= most, of_ours(loaded)
    assert "curtainwall.compose.gate" not in loaded
    assert "curtainwall.compose.setup" not in loaded


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["approve"], "granted"),
        (["approve", "--for", "session"], "granted"),
        (["approve", "--for", "project"], "granted"),
        (["deny"], "denied"),
    ],
    ids=str,
)
def test_an_answer_is_recorded_without_gate_and_rules(words: list[str], status: str, run: Run, places: Places) -> None:
    session_in(places.workspace, read("/etc/hostname"))
    (row,) = run("approvals", "list", "--output", "json").json
    loaded = modules_of(*words, row["id"])
    assert [it["status"] for it in run("approvals", "list", "--all", "--output", "json").json] == [status]
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert len(of_ours(loaded)) <= 120, of_ours(loaded)
    assert not {"curtainwall.compose.gate", "curtainwall.compose.setup", "curtainwall.policy.judgement"} & loaded


def test_an_answer_needs_no_rules_but_nothing_else_is_decided_without_them(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, read("/etc/hostname"), read("/etc/hosts"))
    first, second = (row["id"] for row in run("approvals", "list", "--output", "json").json)
    (places.home / "policy").mkdir(exist_ok=True)
    (places.home / "policy" / "mine.cedar").write_text("this is no rule")
    assert run("approve", first).code == 0
    refused = run("sessions", "rename", session, "other")
    assert (refused.code, "mine.cedar" in refused.err) == (1, True)

    async def leave_a_message() -> None:
        async with SqliteStore.open(places.home, SystemClock(), decode=lift) as store:
            message = SendMessage(by=local_user(), message=MessageId("m1"), text="hello")
            await store.inbox.post(Post(session_stream(session), "key", message))

    asyncio.run(leave_a_message())
    refused = run("approve", second)
    assert (refused.code, "mine.cedar" in refused.err) == (1, True)
    (places.home / "policy" / "mine.cedar").unlink()
    assert run("approve", second).code == 0
    with open_store(Home(places.home)) as store:
        kinds = [entry.kind for entry in store.log.read(session_stream(session))]
    assert kinds.count("MessageAccepted") == 1, "what waited was neither lost nor refused"
