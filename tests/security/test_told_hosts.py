"""What an agent is told of the network in its own instructions: no host that the rules keep from it, and nothing of the user's network."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import curtainwall
from curtainwall.model import LabelsAdded
from tests.support.covers import covers
from tests.support.program import finished, make_program
from tests.support.prompted import prompted_beside
from tests.support.real_parts import CLAUDE
from tests.support.talking import Home, of, place_of, playing, run, runs
from tests.support.upstream import KEY

FREE = ("docs.python.org", "*.github.com")
ASKED = ("wary.example.org",)
REFUSED = ("secret.example.org", "*.refused.example.net", "refused.example.net")
PRIVATE = ("localhost:8080", "10.0.0.5", "192.168.7.7:3000", "grafana.corp", "wiki.internal", "fd00::1")
RULES = """
@id("no-secret") forbid (principal, action, resource == Host::"secret.example.org");
@id("no-family") forbid (principal, action, resource in Host::"refused.example.net");
@id("ask-first") forbid (principal, action == Action::"fetch-url", resource == Host::"wary.example.org") unless { context.approved };
@id("asks") permit (principal, action == Action::"fetch-url", resource in Host::"approved.example.org") when { context.approved };
@id("ours") permit (principal, action == Action::"fetch-url", resource in Host::"vault.corp");
"""
KEPT = ("example.org", "example.net", "localhost:8080", "10.0.0.5", "192.168.7.7", "grafana.corp", "wiki.internal", "fd00::1", "vault.corp")
LISTED = f"[lists]\nhosts = {[*PRIVATE, *FREE, *ASKED, *REFUSED]}\n"


@pytest.fixture
def short_path(bubblewrap: str) -> Iterator[Path]:
    """Return a directory whose sockets have short names, on a machine that can confine."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        yield Path(name).resolve()


def ruled(root: Path) -> None:
    """Have the user keep rules about hosts."""
    (root / "policy").mkdir(parents=True, exist_ok=True)
    (root / "policy" / "mine.cedar").write_text(RULES)


def hosts_in(system: str) -> str:
    """Return the line of an agent's instructions that speaks of hosts."""
    (line,) = [line for line in system.splitlines() if line.startswith("Hosts:")]
    return line


@covers("agents.told-free-hosts")
def test_our_agents_model_hears_of_no_host_that_is_asked_about_refused_or_private(home: Home) -> None:
    home.configure(LISTED)
    ruled(home.root)
    model = playing("hello")

    async def work() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project) as session:
            await session.send("hi")

    run(work())
    system = model.prompts[0].system
    assert f"without anybody being asked: {', '.join(FREE)}, others that are not named here." in hosts_in(system)
    assert [name for name in KEPT if name in system] == []


@covers("agents.told-free-hosts")
def test_the_provider_of_a_foreign_agent_hears_of_none_of_them_either(short_path: Path, real_part: Callable[[str], str]) -> None:
    real_part("claude-code")
    program = make_program(short_path)
    with prompted_beside() as provider:
        program.configure(f'{LISTED}[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n')
        ruled(program.home)
        try:
            done = program.json(
                "start", "--agent", "claude-local", "--model", "anthropic:claude-sonnet-4-5", "word=a", ANTHROPIC_API_KEY=KEY
            )
        finally:
            finished(program)
        sent = [json.dumps(asked.body) for asked in provider.asked]
    assert done["status"] == "done"
    assert any(f"without anybody being asked: {', '.join(FREE)}" in body for body in sent)
    assert [name for name in KEPT if any(name in body for body in sent)] == []


def test_a_host_is_not_told_to_be_free_any_more_once_what_the_session_touched_has_it_asked_about(home: Home) -> None:
    home.configure(LISTED)
    model = playing(runs('print(await filesystem.read_file(path=".env"))'), "read", "hello again")

    async def work() -> None:
        async with curtainwall.open_session(model=model) as session:
            place_of(session, ".env").write_text("PASSWORD=1")
            await session.send("read it")
            assert of(LabelsAdded, session.timeline()) == []
            await session.send("and now?")

    run(work())
    assert "docs.python.org" in hosts_in(model.prompts[0].system)
    assert "docs.python.org" not in hosts_in(model.prompts[-1].system)
