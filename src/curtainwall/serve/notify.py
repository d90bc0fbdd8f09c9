"""Notifications out: a POST as ntfy takes it, and a program of the user's, when somebody is waited for."""

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
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")

Notifier = Callable[[Notice], Awaitable[None]]
"""One way to tell somebody; it raises where that failed."""


def services(serving: Serving) -> Iterable[Service]:
    """Return the notifications that the configuration asks for."""
    told, remind = serving.config.notify, serving.config.approvals.remind
    pace = NoticePace(told.after * 1000, None if remind is None else remind * 1000, float(told.every))
    for name, way in notifiers(told).items():
        # Each way remembers by itself what it has told: one that fails has none of the others repeat anything.
        yield Notifications(name, Announcer(name, serving.board(), serving.marks, serving.wired.house.clock, pace), way)


class Notifications:
    """The service that tells in one way: not too often, again where it failed, and otherwise nothing twice."""

    def __init__(self, name: str, announcer: Announcer, way: Notifier) -> None:
        self.name = name
        self._announcer = announcer
        self._way = way
        self._fault = ""

    async def run(self) -> None:
        """Tell what is due, for ever."""
        async with aclosing(self._announcer.follow()) as notices:
            async for notice in notices:
                await self._tell(notice)

    def health(self) -> str:
        """Return why the last message did not arrive."""
        return self._fault

    async def _tell(self, notice: Notice) -> None:
        """Tell it; where that fails it is tried again, with growing pauses."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._way(notice)
            except (CurtainwallError, OSError) as fault:
                self._fault = f"a message did not arrive: {fault}; it is tried again"
            else:
                self._fault = ""
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def notifiers(told: NotifySection) -> dict[str, Notifier]:
    """Return the ways that the configuration names, each with a name of its own."""

    async def post(notice: Notice) -> None:
        await _post(told, notice)

    async def run(notice: Notice) -> None:
        await _run(told, notice)

    return {**({"notify": post} if told.url else {}), **({"notify-command": run} if told.command else {})}


async def _post(told: NotifySection, notice: Notice) -> None:
    assert told.url is not None
    url = canonical_url(told.url)
    origin, facts = url.origin, url.facts
    token = _token(told)
    head = [("Host", origin.partition("://")[2]), ("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
    head += [("Title", f"Curtainwall: {notice.title}"), ("Tags", "raising_hand"), ("X-Sequence-ID", notice.id)]
    head += [("Click", told.link)] if told.link else []
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
    except ssl.SSLCertVerificationError as fault:
        raise TryLater(f"`{facts.host}` showed a certificate that is not valid for it: {fault.verify_message}") from None
    except OSError as fault:
        raise TryLater(f"`{facts.host}` cannot be reached: {(fault.strerror or type(fault).__name__).lower()}") from None
    if not 200 <= reply.status < 300:
        raise TryLater(f"`{facts.host}` answered with status {reply.status}")


def _command(told: NotifySection) -> tuple[str, ...]:
    program, *arguments = told.command
    return str(Path(program).expanduser()) if program.startswith("~/") else program, *arguments


async def _run(told: NotifySection, notice: Notice) -> None:
    """Give a program the message; it gets nothing of our environment but what programs need to run."""
    message = {"id": notice.id, "title": notice.title, "text": notice.text, "link": told.link or ""}
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        child = await asyncio.create_subprocess_exec(
            *_command(told),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
    except OSError as fault:
        raise TryLater(f"`{told.command[0]}` cannot be run: {(fault.strerror or '').lower()}") from None
    try:
        async with asyncio.timeout(_SECONDS):
            await child.communicate(json.dumps(message).encode())
    except TimeoutError:
        raise TryLater(f"`{told.command[0]}` did not end within {_SECONDS:g} seconds") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise TryLater(f"`{told.command[0]}` ended with {child.returncode}")


def _token(told: NotifySection) -> str:
    if told.token_env:
        return os.environ.get(told.token_env, "").strip()
    if told.token_file is None:
        return ""
    try:
        return read_plain(Path(told.token_file).expanduser()).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise Broken(f"the token in `{told.token_file}` cannot be read") from None
