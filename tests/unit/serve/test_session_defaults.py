"""What the configuration says about new sessions: their mode, their instructions, and which jobs, webhooks and channels are on."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.channels.cron import Firing
from curtainwall.compose.agents import default_mode, session_spec
from curtainwall.compose.approvals import operators_in
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Mode
from curtainwall.serve.deliveries import hooks_in
from curtainwall.serve.firings import JobFirings
from tests.support.covers import covers
from tests.support.in_process import Places

CONFIG = """
[sessions]
mode = "plan"
instructions = "Answer in French."
[cron.nightly]
schedule = "0 3 * * *"
instructions = "look around"
[cron.project]
schedule = "0 3 * * *"
instructions = "look around"
workspace = "{project}"
[channels.chat]
operators = ["ann"]
enabled = false
[channels.other]
operators = ["bob"]
[webhooks.hooks.on]
secret-env = "HOOK_SECRET"
prompt = "look"
[webhooks.hooks.off]
secret-env = "NO_SUCH_SECRET"
prompt = "look"
enabled = false
"""


def configure(places: Places) -> None:
    (places.home).mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text(CONFIG.format(project=places.workspace))


@covers("config.default-mode")
def test_the_mode_of_new_sessions_is_configured_and_what_somebody_says_wins(places: Places) -> None:
    configure(places)

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            modes = [session_spec(wired, "builtin", "demo", None, mode, "").mode for mode in (None, Mode.DEFAULT, Mode.ACCEPT_EDITS)]
            assert modes == [Mode.PLAN, Mode.DEFAULT, Mode.ACCEPT_EDITS]
            assert default_mode(wired.setup.config, "claude-code", Path("/srv/project")) is Mode.PLAN

    asyncio.run(story())


@covers("config.instructions-without-a-project")
def test_a_job_without_a_project_finds_the_instructions_in_its_workspace(places: Places) -> None:
    configure(places)

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            firings = JobFirings(wired, lambda _session: None, "demo")
            session = await firings.fire(Firing("nightly", 1_700_000_000_000))
            workspace = wired.setup.home.session(session).workspace
            assert (workspace / "AGENTS.md").read_text() == "Answer in French.\n"
            await firings.fire(Firing("project", 1_700_000_000_000))
            assert not (places.workspace / "AGENTS.md").exists()

    asyncio.run(story())


@covers("config.disabled-parts-do-not-run")
def test_a_disabled_webhook_takes_nothing_and_a_disabled_channel_has_no_operators(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(places)
    monkeypatch.setenv("HOOK_SECRET", "a secret of more than sixteen letters")

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            assert list(hooks_in(wired)) == ["on"]
            operators = operators_in(wired.setup.config)
            assert ("chat" in operators, operators["other"]) == (False, {"bob"})

    asyncio.run(story())
