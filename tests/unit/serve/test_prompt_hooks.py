"""`UserPromptSubmit` hooks for what jobs and webhooks bring: heard once, able to add context, and able to keep it from the agent."""

import asyncio
import re
from pathlib import Path

import pytest

from curtainwall.channels.cron import Firing
from curtainwall.channels.webhook import Delivery
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import MessageAccepted, SessionClosed, SessionId, session_stream
from curtainwall.serve.deliveries import WebhookDeliveries
from curtainwall.serve.firings import JobFirings
from tests.support.covers import covers
from tests.support.hooking import shell, told
from tests.support.in_process import Places

CONFIG = """
[[hooks.UserPromptSubmit]]
hooks = [{{type = "command", command = "{line}"}}]
[cron.good]
schedule = "0 3 * * *"
instructions = "look around"
[cron.bad]
schedule = "0 3 * * *"
instructions = "do something forbidden"
[webhooks.hooks.on]
secret-env = "HOOK_SECRET"
prompt = "look"
"""


@pytest.fixture
def heard(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configure a hook that writes down what it is given, refuses what is forbidden, and warns of the rest."""
    places.home.mkdir(mode=0o700, exist_ok=True)
    lines = f"tee -a {tmp_path}/heard | grep -q forbidden && {{ echo >> {tmp_path}/heard; echo 'not that' >&2; exit 2; }}"
    line = shell(tmp_path / "hook", f"{lines}\necho >> {tmp_path}/heard\necho be careful")
    (places.home / "config.toml").write_text(CONFIG.format(line=line))
    monkeypatch.setenv("HOOK_SECRET", "a secret of more than sixteen letters")
    return tmp_path / "heard"


def messages(wired: GatedSessions, session: SessionId) -> list[str]:
    events = [recorded.event for recorded in wired.sessions.registry.feed.read(session_stream(session))]
    return [event.text for event in events if isinstance(event, MessageAccepted)]


def why_closed(wired: GatedSessions, session: SessionId) -> list[str]:
    events = [recorded.event for recorded in wired.sessions.registry.feed.read(session_stream(session))]
    return [event.reason for event in events if isinstance(event, SessionClosed)]


@covers("hooks.prompts-of-jobs-and-webhooks")
def test_the_instructions_of_a_job_pass_the_hooks_once(heard: Path) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            firings = JobFirings(wired, lambda _session: None, "demo")
            for _ in range(2):
                session = await firings.fire(Firing("good", 1_700_000_000_000))
            assert messages(wired, session) == ["be careful", "look around"]
            for _ in range(2):
                kept = await firings.fire(Firing("bad", 1_700_000_000_000))
            assert (messages(wired, kept), firings.is_over(kept)) == ([], True)
            [why] = why_closed(wired, kept)
            assert why == "a hook keeps this message away from the agent: not that"

    asyncio.run(story())
    assert [it["prompt"] for it in told(heard)] == ["look around", "do something forbidden"]


@covers("hooks.every-event-fires")
def test_hooks_hear_of_a_session_before_they_hear_of_its_first_message(heard: Path, places: Places) -> None:
    config = places.home / "config.toml"
    table = config.read_text()
    (line,) = re.findall(r"^hooks = .*$", table, re.MULTILINE)
    config.write_text(f"[[hooks.SessionStart]]\n{line}\n{table}")

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            for _ in range(2):
                job = await JobFirings(wired, lambda _session: None, "demo").fire(Firing("good", 1_700_000_000_000))
                delivery = await WebhookDeliveries(wired, lambda _session: None, "demo").take(Delivery("on", "first", "look", "harmless"))
            assert messages(wired, job) == ["be careful", "be careful", "look around"]
            assert messages(wired, delivery) == ["be careful", "be careful", "harmless", "look"]

    asyncio.run(story())
    assert [it["hook_event_name"] for it in told(heard)] == ["SessionStart", "UserPromptSubmit"] * 2


@covers("hooks.prompts-of-jobs-and-webhooks")
def test_a_delivery_passes_the_hooks_with_its_data(heard: Path) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            deliveries = WebhookDeliveries(wired, lambda _session: None, "demo")
            for _ in range(2):
                session = await deliveries.take(Delivery("on", "first", "look", "harmless"))
            assert messages(wired, session) == ["be careful", "harmless", "look"]
            assert deliveries.outcome("on", session).status == "working"
            for _ in range(2):
                kept = await deliveries.take(Delivery("on", "second", "look", "forbidden words"))
            assert (messages(wired, kept), deliveries.outcome("on", kept).status) == ([], "failed")
            assert "not that" not in deliveries.outcome("on", kept).text, "the sender is not told what the hook said"

    asyncio.run(story())
    assert [it["prompt"] for it in told(heard)] == ["look\n\nharmless", "look\n\nforbidden words"]
