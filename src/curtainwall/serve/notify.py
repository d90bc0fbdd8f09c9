"""Notifications about open asks: a POST that ntfy understands, and a program of the user."""

import asyncio
import json
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path

from curtainwall.channels.asks.notices import Announcer, Notice, NoticePace
from curtainwall.config.loader import read_plain
from curtainwall.config.serve import NotifySection
from curtainwall.facts import canonical_url
from curtainwall.host import Connection, system_trust
from curtainwall.model import Broken, CurtainwallError, TryLater
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service
from curtainwall.tools.fetch.exchange import HttpRequest, exchange

SECTIONS = frozenset({"notify", "approvals"})

_SECONDS = 20.0
_ANSWER = 64 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")

Notifier = Callable[[Notice], Awaitable[None]]
"""One way to send a notice; raises if that fails."""


def services(serving: Serving) -> Iterable[Service]:
    """Return the notifications that the configuration asks for."""
    section, remind = serving.config.notify, serving.config.approvals.remind
    pace = NoticePace(section.after * 1000, None if remind is None else remind * 1000, float(section.every))
    for name, notifier in notifiers(section).items():
        # Each way records separately what it has sent, so that a failing one does not make others repeat anything.
        yield Notifications(name, Announcer(name, serving.board(), serving.marks, serving.wired.registry.clock, pace), notifier)


class Notifications:
    """The service that sends notices in one way: not too often, again if it failed, and otherwise never twice."""

    def __init__(self, name: str, announcer: Announcer, notifier: Notifier) -> None:
        self.name = name
        self._announcer = announcer
        self._notifier = notifier
        self._fault = ""

    async def run(self) -> None:
        """Send what is due, forever."""
        async with aclosing(self._announcer.follow()) as notices:
            async for notice in notices:
                await self._send(notice)

    def health(self) -> str:
        """Return why the last message did not arrive."""
        return self._fault

    async def _send(self, notice: Notice) -> None:
        """Send a notice; if that fails, retry with growing pauses."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._notifier(notice)
            except (CurtainwallError, OSError) as error:
                self._fault = f"a message did not arrive: {error}; it is tried again"
            else:
                self._fault = ""
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def notifiers(section: NotifySection) -> dict[str, Notifier]:
    """Return the ways that the configuration names, each under its own name."""

    async def post(notice: Notice) -> None:
        await _post(section, notice)

    async def run(notice: Notice) -> None:
        await _run(section, notice)

    return {**({"notify": post} if section.url else {}), **({"notify-command": run} if section.command else {})}


async def _post(section: NotifySection, notice: Notice) -> None:
    assert section.url is not None
    url = canonical_url(section.url)
    origin, facts = url.origin, url.facts
    token = _token(section)
    head = [("Host", origin.partition("://")[2]), ("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
    head += [("Title", f"Curtainwall: {notice.title}"), ("Tags", "raising_hand"), ("X-Sequence-ID", notice.id)]
    head += [("Click", section.link)] if section.link else []
    head += [("Authorization", f"Bearer {token}")] if token else []
    request = HttpRequest("POST", url.text[len(origin) :] or "/", tuple(head), notice.text.encode())
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(facts.host, facts.port, ssl=system_trust() if facts.secure else None)
            connection = Connection(reader, writer, facts.host)
            try:
                reply = await exchange(connection, request, _ANSWER)
            finally:
                await connection.close()
    except TimeoutError:
        raise TryLater(f"`{facts.host}` did not answer within {_SECONDS:g} seconds") from None
    except ssl.SSLCertVerificationError as error:
        raise TryLater(f"`{facts.host}` showed a certificate that is not valid for it: {error.verify_message}") from None
    except OSError as error:
        raise TryLater(f"`{facts.host}` cannot be reached: {(error.strerror or type(error).__name__).lower()}") from None
    if not 200 <= reply.status < 300:
        raise TryLater(f"`{facts.host}` answered with status {reply.status}")


def _command(section: NotifySection) -> tuple[str, ...]:
    program, *arguments = section.command
    return str(Path(program).expanduser()) if program.startswith("~/") else program, *arguments


async def _run(section: NotifySection, notice: Notice) -> None:
    """Pass the message to a program; of our environment it gets only what programs need to run."""
    message = {"id": notice.id, "title": notice.title, "text": notice.text, "link": section.link or ""}
    environ = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    try:
        child = await asyncio.create_subprocess_exec(
            *_command(section),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        raise TryLater(f"`{section.command[0]}` cannot be run: {(error.strerror or '').lower()}") from None
    try:
        async with asyncio.timeout(_SECONDS):
            await child.communicate(json.dumps(message).encode())
    except TimeoutError:
        raise TryLater(f"`{section.command[0]}` did not end within {_SECONDS:g} seconds") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise TryLater(f"`{section.command[0]}` ended with {child.returncode}")


def _token(section: NotifySection) -> str:
    if section.token_env:
        return os.environ.get(section.token_env, "").strip()
    if section.token_file is None:
        return ""
    try:
        return read_plain(Path(section.token_file).expanduser()).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise Broken(f"the token in `{section.token_file}` cannot be read") from None
