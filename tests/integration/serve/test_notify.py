"""Somebody who is not there is told that an answer is wanted: once, over restarts and failures, and without a word of what is asked for."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import find_home
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.serving import Home, health, script_of
from tests.support.sites import Seen, Site, reply
from tests.support.sites import site as web_site
from tests.support.waiting import until

SECRET = "the-words-of-the-ask"


@pytest.fixture
def site() -> Iterator[Site]:
    with web_site() as there:
        yield there


class Phone:
    """A topic that can be out of order."""

    def __init__(self) -> None:
        self.is_broken = True

    def __call__(self, seen: Seen) -> bytes:
        return reply(503) if self.is_broken else reply(200, "{}")


def notify(port: int) -> str:
    """Return how the notifications are, or nothing while nobody is there to say it."""
    return str(health(port).get("services", {}).get("notify", ""))


def remembered(program: Program) -> bool:
    """Tell whether it is written down that the program was told."""
    with open_store(find_home(program.environ)) as store:
        return bool(store.marks.all("notify-command"))


@pytest.mark.timeout(300)
@covers("notify.once", "notify.says-little")
def test_an_ask_is_told_once_over_failures_and_restarts_and_says_nothing_of_the_ask(program: Program, site: Site) -> None:
    phone, port, told = Phone(), free_port(), program.scratch / "told.jsonl"
    site.pages["/topic"] = phone
    hook = Path(program.environ["HOME"]) / "hook"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ncat >> {told}\necho >> {told}\nenv >> {told}.env\n")
    hook.chmod(0o700)
    program.configure(
        f'[serve]\nstatus-port = {port}\n[web]\nenabled = false\n[channels.web]\noperators = ["ann"]\n'
        f'[notify]\nurl = "http://127.0.0.1:{site.port}/topic"\ntoken-env = "NTFY_TOKEN"\ncommand = ["~/hook"]\n'
        'link = "https://cw.example.org/inbox"\nafter = 1\nevery = 1\n'
    )
    home = Home(program.environ)
    ask = {"tool": "filesystem.read_file", "arguments": {"path": f"/etc/{SECRET}"}}
    home.born(script_of(program.scratch / "script", [ask]))
    running = program.begin("serve", NTFY_TOKEN="tk_very_secret_words")
    until(lambda: site.seen, 60)
    until(lambda: notify(port) == "failing")
    running.says("(notify: a message did not arrive: `127.0.0.1` answered with status 503)")
    until(lambda: remembered(program), 60)
    assert told.read_text().count("title") == 1, "what works is not kept waiting, nor repeated, because of what does not"
    running.kill_everything()
    running = program.begin("serve", NTFY_TOKEN="tk_very_secret_words")
    until(lambda: health(port).get("pid") == running.child.pid, 60)
    until(lambda: notify(port) == "failing")
    phone.is_broken = False
    until(lambda: notify(port) == "ok", 60)
    before = len(site.seen)
    assert told.read_text().count("title") == 1, "also where somebody died before the other way worked"
    assert len({seen.headers["x-sequence-id"] for seen in site.seen}) == 1, "a repeated message says that it is the same"
    running.child.send_signal(signal.SIGTERM)
    assert running.code() == 0
    running = program.begin("serve", NTFY_TOKEN="tk_very_secret_words")
    until(lambda: health(port).get("pid") == running.child.pid, 60)
    home.born(script_of(program.scratch / "other", [{"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}]))
    until(lambda: len(site.seen) > before, 60)
    assert len(site.seen) == before + 1, "the first ask was not told again"
    message = site.seen[-1]
    assert message.headers["title"] == "Curtainwall: an answer is wanted"
    assert message.headers["click"] == "https://cw.example.org/inbox"
    assert message.headers["authorization"] == "Bearer tk_very_secret_words"
    assert message.body.decode().startswith("filesystem.read_file in session ")
    everything = b"".join(seen.body for seen in site.seen).decode() + told.read_text()
    assert SECRET not in everything
    assert "tk_very" not in everything + Path(f"{told}.env").read_text()
    assert json.loads(told.read_text().splitlines()[0])["link"] == "https://cw.example.org/inbox"
    running.interrupt()
    assert running.code() == 0
