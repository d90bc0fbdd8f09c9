"""Each command opens the lowest level that it needs, and imports no more than that."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.host.user import local_user
from curtainwall.model import MessageId, Post, SendMessage, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.houses import read
from tests.support.in_process import Places, Said, session_in

Run = Callable[..., Said]

OURS = "curtainwall"
HEAVY = {
    "aiodocker", "aiohttp", "anthropic", "cedarpy", "cryptography", "h11", "httpx", "jinja2", "markdown_it", "mcp", "nio", "openai",
    "prometheus_client", "prompt_toolkit", "pydantic_ai", "pydantic_monty", "rich", "starlette", "tree_sitter", "uvicorn", "yaml",
}  # fmt: skip
"""What judging, agents, tools and channels need, and looking up or answering does not."""


_TOLD = (
    "import atexit, os, sys; tell = lambda: print(*sys.modules, file=sys.stderr, flush=True); atexit.register(tell); "
    "leave = os._exit; os._exit = lambda code: (tell(), leave(code))"
)


def _program(words: Iterable[str]) -> list[str]:
    """Return what runs a command in a process that tells at its end what it had imported."""
    return [
        sys.executable,
        "-c",
        f"{_TOLD}; sys.argv = ['curtainwall', *{list(words)!r}]; from curtainwall.cli.entry import program; program()",
    ]


def modules_of(*words: str, code: int = 0) -> set[str]:
    """Run a command in a process of its own, and return what that had imported in the end."""
    done = subprocess.run(_program(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def served_modules() -> set[str]:
    """Run `serve` until its pages are served, and return what it had imported in the end."""
    with subprocess.Popen(_program(["serve"]), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen: list[str] = []
        for line in process.stderr:
            seen.append(line)
            if "the web is at" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, "".join(seen)
    return set(seen[-1].split())


def of_ours(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.partition(".")[0] == OURS)


@cache
def _of_the_environment() -> frozenset[str]:
    """Return what every process here imports, whatever it does: what an environment or a measuring tool brings along."""
    done = subprocess.run([sys.executable, "-c", _TOLD], capture_output=True, text=True, check=True)
    return frozenset(done.stderr.split())


def packages_of_others(modules: set[str]) -> set[str]:
    """Return the packages that are neither ours nor Python's own."""
    names = {name.partition(".")[0] for name in modules - _of_the_environment()}
    # Python's own build settings, and other names of a process's main module.
    return {name for name in names - {OURS} - sys.stdlib_module_names if not name.startswith(("_sysconfigdata", "__"))}


COMMAND_LINE = {"annotated_doc", "shellingham", "typer"}
MODEL = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
URLS = {"_cffi_backend", "ada_url"}
JUDGING = {"cedarpy", "fastjsonschema"}
AGENT = {"pydantic_monty"}
PAGES = {
    "anyio", "click", "cronsim", "h11", "jinja2", "markdown_it", "markupsafe", "mdurl", "pydantic_monty", "python_multipart", "sniffio",
    "starlette", "uvicorn", "watchfiles",
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["--help"], COMMAND_LINE),
        (["approvals", "list"], COMMAND_LINE | MODEL),
        (["sessions", "list"], COMMAND_LINE | MODEL),
        (["skills", "list"], COMMAND_LINE | MODEL | URLS),
        (["hooks", "list"], COMMAND_LINE | MODEL | URLS),
        (["memory", "list"], COMMAND_LINE | MODEL | URLS),
        (["policy", "explain", "filesystem.read_file", '{"path": "notes.txt"}'], COMMAND_LINE | MODEL | URLS | JUDGING),
        (["start", "--model", "demo", "--workspace", ".", "what can you do?"], COMMAND_LINE | MODEL | URLS | JUDGING | AGENT),
    ],
    # The order of a set is another one in each worker.
    ids=lambda value: " ".join(value[:2] if isinstance(value, list) else ()),
)
def test_a_command_imports_exactly_these_packages_of_others(words: list[str], packages: set[str], places: Places) -> None:
    session_in(places.workspace, read("/etc/hostname"))
    assert packages_of_others(modules_of(*words)) == packages


def test_serve_imports_for_its_pages_nothing_of_other_channels_agents_and_providers(places: Places) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text(f"[web]\nport = {port}\n")
    assert packages_of_others(served_modules()) == COMMAND_LINE | MODEL | URLS | JUDGING | PAGES


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["--help"], 10),
        (["approvals", "list"], 113),
        (["sessions", "list"], 86),
        (["grants", "list"], 76),
        (["audit", "verify"], 92),
        (["cron", "list"], 102),
        (["sessions", "held"], 120),
        (["tools", "list"], 71),
        (["skills", "list"], 93),
        (["hooks", "list"], 85),
        (["memory", "list"], 127),
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
    assert "curtainwall.store.disk.writer" not in loaded


@pytest.mark.parametrize(
    "words",
    [
        *(["approvals", "list"], ["sessions", "list"], ["grants", "list"], ["audit", "verify"], ["cron", "list"]),
        *(["tools", "list"], ["skills", "list"], ["memory", "list"]),
        ["policy", "explain", "filesystem.read_file", '{"path": "notes.txt"}'],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_looking_up_and_judging_import_no_event_loop_and_no_network(words: list[str], places: Places) -> None:
    session_in(places.workspace, read("/etc/hostname"))
    assert not {"asyncio", "concurrent.futures", "ssl", "http.client"} & modules_of(*words)


def test_tools_are_listed_without_the_classes_of_commands(places: Places) -> None:
    session_in(places.workspace, read("/etc/hostname"))
    assert "curtainwall.model.commands" not in modules_of("tools", "list")


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["policy", "explain", "filesystem.read_file", '{"path": "notes.txt"}'], 137),
        (["start", "--model", "demo", "--workspace", ".", "what can you do?"], 305),
    ],
    ids=str,
)
def test_judging_and_working_import_no_tools_that_are_not_used(words: list[str], most: int, places: Places) -> None:
    loaded = of_ours(modules_of(*words))
    assert len(loaded) <= most, loaded
    assert not [name for name in loaded if name.startswith(("curtainwall.tools.fetch", "curtainwall.tools.git.call", "curtainwall.egress"))]


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
    assert packages_of_others(loaded) == COMMAND_LINE | MODEL
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
