"""Connects Matrix to the runtime: rooms lead to sessions, and what they bring is decided like everything else."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from curtainwall.channels.asks.board import AskDesk, Board
from curtainwall.channels.matrix import CHANNEL, Account, LoginRefused, MatrixChannel, MatrixPorts, MatrixSettings, People
from curtainwall.compose.agents import default_mode
from curtainwall.config.schema import Config
from curtainwall.config.secrets import house_key
from curtainwall.host import FromEnvironment, FromFile, Unavailable
from curtainwall.host.home import Home, private_directory, user_homes
from curtainwall.model import (
    SYSTEM,
    AddRoute,
    AnswerApproval,
    AnyCommand,
    CommandRefused,
    Desk,
    NotFound,
    Opened,
    Opening,
    RemoveRoute,
    Route,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionView,
    ShownAt,
    Undecided,
    Who,
    record,
)
from curtainwall.operations.desk import SessionDesk
from curtainwall.operations.open import ChannelPlaces, SessionSpec
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

_DIRECTORY = "matrix"
_MOST_SHOWN = 1_000


class KeyedDesk:
    """The desk for one event: the same command is executed once, however often it is sent."""

    def __init__(self, desk: SessionDesk, key: str) -> None:
        self._desk = desk
        self._key = key

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Submit a command once, and return the end of the log after it."""
        about = f" {command.approval}" if isinstance(command, AnswerApproval) else ""
        return await self._desk.send(session, command, key or f"{self._key}{about}")

    def view(self, session: SessionId) -> SessionView:
        """Return the current state of the session; raise `NotFound`."""
        return self._desk.view(session)

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._desk.find(query)

    async def open(self, opening: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        return await self._desk.open(opening, by)


@record
class RoomRoutes:
    """Where rooms lead, according to the house log."""

    serving: Serving
    places: ChannelPlaces

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        return self.places.session_at(_place(room))

    async def enter(self, room: str, by: Who, called: str) -> SessionId:
        """Return the session that a room leads to; if there is none or it is closed, open one named `called`."""
        return await self.places.open_at(_place(room), by, f"{CHANNEL} {called}")

    async def lead(self, room: str, session: SessionId, by: Who) -> None:
        """Make a room lead to another session, and show that session's asks there."""
        await self.places.move(_place(room), session, by, self.session_at(room))

    def desk(self, key: str) -> Desk:
        """Return a desk that executes the same command under the same key once."""
        return KeyedDesk(self.serving.work.desk, key)

    def board(self, room: str, desk: AskDesk | None = None) -> Board:
        """Return the asks that are shown in a room, answered through a desk."""
        serving, wired, at = self.serving, self.serving.wired, ShownAt(CHANNEL, room)
        return Board(desk or serving.work.desk, wired.registry.feed, wired.store.index, serving.reason_of, at, serving.who_may_on(CHANNEL))


@record
class RoomDisplays:
    """Which sessions' asks are shown in which room, according to the sessions' logs."""

    serving: Serving

    def shown_in(self, room: str) -> Sequence[SessionId]:
        """Return the sessions whose asks are shown in a room, except closed ones."""
        rows = self.serving.wired.store.index.sessions(SessionQuery(shown_at=ShownAt(CHANNEL, room), limit=_MOST_SHOWN))
        return [row.session for row in rows if row.status != "closed"]

    async def show(self, room: str, sessions: Iterable[SessionId], *, shown: bool) -> None:
        """Start or stop showing the asks of sessions in a room; skip sessions that are gone or closed."""
        place = _place(room)
        command = AddRoute(by=SYSTEM, route=place) if shown else RemoveRoute(by=SYSTEM, route=place)
        for session in sessions:
            # A session whose owner has not decided yet keeps the command, and decides later.
            with suppress(CommandRefused, NotFound, Undecided):
                await self.serving.work.desk.send(session, command)


def channels(serving: Serving) -> Iterable[Service]:
    """Return the channel, if the configuration asks for it."""
    section, operators = serving.config.matrix, serving.config.channels.get(CHANNEL)
    if section.homeserver is None or section.user is None or operators is None or not operators.enabled:
        return ()
    people = People(section.user, frozenset(operators.operators), frozenset(section.users), section.trust_homeserver)
    settings = MatrixSettings(people, frozenset(section.rooms), section.pinned)
    workspace = None if section.workspace is None else Path(_expanded(section.workspace))

    def wanted_at(place: Route) -> SessionSpec:
        spec = serving.spec_at(place)
        instructions = serving.config.sessions.instructions if workspace is None else ""
        mode = default_mode(serving.config, spec.agent, workspace)
        return replace(spec, workspace=workspace, mode=mode, instructions=instructions)

    async def find_account() -> Account:
        return await account_of(serving.wired.setup.home, serving.config, serving.wired.masker.learn)

    def log_places(session: SessionId) -> Sequence[str]:
        home = serving.wired.setup.home
        return f"log: {home.database}", f"audit: {home.session(session).audit}"

    router = RoomRoutes(serving, ChannelPlaces(serving.wired.sessions, serving.work.turns.attend, wanted_at))
    ports = MatrixPorts(router, RoomDisplays(serving), serving.line, serving.marks, log_places)

    def report(words: str, *, is_trouble: bool = False) -> None:
        serving.book.say(f"{CHANNEL}: {words}", "warning" if is_trouble else "info", service=CHANNEL)

    return (MatrixChannel(find_account, settings, ports, report),)


async def account_of(home: Home, config: Config, learn: Callable[[str, str], None]) -> Account:
    """Return our account on the homeserver, with the configured secret; from now on the secret is masked."""
    section = config.matrix
    assert section.homeserver is not None
    assert section.user is not None
    directory = home.root / _DIRECTORY
    private_directory(directory)
    password = await _secret(section.password_env, section.password_file)
    token = await _secret(section.token_env, section.token_file)
    for name, value in (("matrix-password", password), ("matrix-token", token)):
        if value is not None:
            learn(name, value)
    seal = house_key(home.root / "keys" / "matrix.key").hex()
    return Account(section.homeserver.rstrip("/"), section.user, section.device, directory, seal, password, token)


async def _secret(variable: str | None, file: str | None) -> str | None:
    if variable is not None:
        try:
            return await FromEnvironment(variable, os.environ).read()
        except Unavailable as error:
            # A file may still appear; our environment stays as it is.
            raise LoginRefused(f"what signs in to Matrix cannot be read: {error}") from None
    return None if file is None else await FromFile(Path(_expanded(file))).read()


def _expanded(path: str) -> str:
    return user_homes(os.environ)[0] + path[1:] if path.startswith("~/") else path


def _place(room: str) -> Route:
    return Route(channel=CHANNEL, reference=room)
