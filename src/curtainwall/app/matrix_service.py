"""Matrix introduced to the house: rooms lead to sessions, and what they bring is decided like everything else."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from curtainwall.app.config import Config
from curtainwall.app.desk import HouseDesk
from curtainwall.app.home import Home, private_directory, user_homes
from curtainwall.app.keys import house_key
from curtainwall.app.openings import Wanted, open_new, state_of
from curtainwall.app.working import AtWork, default_model_of
from curtainwall.channels.asks import AskDesk, Board
from curtainwall.channels.line import Line
from curtainwall.channels.matrix import CHANNEL, Account, House, Matrix, Pace, People, Report, Terms
from curtainwall.host import FromEnvironment, FromFile
from curtainwall.model import (
    AddRoute,
    AnswerApproval,
    AnyCommand,
    Broken,
    Desk,
    NotFound,
    Opened,
    Opening,
    Route,
    RuleId,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionView,
    ShownAt,
    Who,
)

SECTIONS = frozenset({"matrix", "channels"})

_DIRECTORY = "matrix"


class KeyedDesk:
    """The desk for one event: whatever is sent over it is one command, however often it is sent."""

    def __init__(self, desk: HouseDesk, key: str) -> None:
        self._desk = desk
        self._key = key

    async def send(self, session: SessionId, command: AnyCommand) -> int:
        """Have a command decided once and return where the log ends then."""
        about = f" {command.approval}" if isinstance(command, AnswerApproval) else ""
        return await self._desk.send(session, command, f"{self._key}{about}")

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        return self._desk.view(session)

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._desk.find(query)

    async def open(self, wish: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        return await self._desk.open(wish, by)

    def explain(self, session: SessionId, what: Literal["rules", "why"], about: str = "") -> str:
        """Return in words which rules are in force, or why something was judged as it was."""
        return self._desk.explain(session, what, about)


@dataclass(frozen=True, slots=True)
class RoomsOfHouse:
    """Where rooms lead, as the house's log has it."""

    work: AtWork
    wanted: Wanted

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        return self.work.wired.store.index.session_at(_place(room))

    async def enter(self, room: str, by: Who) -> SessionId:
        """Return the session that a room leads to; where there is none, or it is closed, one is opened."""
        wired, place = self.work.wired, _place(room)
        found = self.session_at(room)
        if found is None or self._is_closed(found):
            found = await wired.house.bind(place, SessionId(wired.house.mint()), by, instead_of=found)
        # Also where a process ended between the promise of a session and its opening.
        await open_new(wired, self.wanted_in(room), by, session=found)
        self.work.turns.attend(found)
        return found

    def wanted_in(self, room: str) -> Wanted:
        """Return what the session of a room should be."""
        told = self.wanted
        return Wanted(told.model, told.workspace, f"matrix {room}", told.agent, told.mode, (_place(room),))

    async def lead(self, room: str, session: SessionId, by: Who) -> None:
        """Let a room lead to another session from here on, and its asks be shown there."""
        house, place = self.work.wired.house, _place(room)
        await house.send(session, AddRoute(by=by, route=place))
        await house.bind(place, session, by, instead_of=self.session_at(room))
        self.work.turns.attend(session)

    def desk(self, key: str) -> Desk:
        """Return a desk on which the same command under the same key is done once."""
        return KeyedDesk(self.work.desk, key)

    def board(self, room: str, desk: AskDesk | None = None) -> Board:
        """Return the asks that are shown in a room."""
        wired = self.work.wired
        return Board(desk or self.work.desk, wired.house.feed, wired.store.index, self._reason_of, ShownAt(CHANNEL, room))

    def _reason_of(self, rule: RuleId) -> str:
        card = self.work.wired.setup.policy.card(rule)
        return "" if card is None else card.reason or card.title

    def _is_closed(self, session: SessionId) -> bool:
        try:
            return state_of(self.work.wired, session).closed is not None
        except NotFound:
            return False


def matrix_of(work: AtWork, report: Report, pace: Pace | None = None, model: str = "") -> Matrix | None:
    """Return the channel that the configuration asks for, or None; raise `Broken` where its secret is not at hand."""
    setup, house = work.wired.setup, work.wired.house
    section, operators = setup.config.matrix, setup.config.channels.get(CHANNEL)
    if section.homeserver is None or section.user is None:
        return None
    if operators is None:
        raise Broken("`channels.matrix.operators` is missing; without anybody who may answer asks there, Matrix is not served")
    people = People(section.user, frozenset(operators.operators), frozenset(section.users), section.trust_homeserver)
    terms = Terms(people, frozenset(section.rooms), section.pinned, pace or Pace())
    workspace = None if section.workspace is None else Path(_expanded(section.workspace, os.environ))
    doors = RoomsOfHouse(work, Wanted(model or default_model_of(work.wired), workspace))
    line = Line(desk=work.desk, feed=house.feed, listening=work.journal, clock=house.clock)

    def log_places(session: SessionId) -> Sequence[str]:
        return (f"log: `curtainwall sessions show {session}`", f"audit: {setup.home.session(session).audit}")

    async def find_account() -> Account:
        return await account_of(setup.home, setup.config, work.wired.masker.learn)

    return Matrix(find_account, terms, House(doors, line, work.wired.store.marks, log_places), report)


async def account_of(home: Home, config: Config, learn: Callable[[str, str], None], environ: Mapping[str, str] = os.environ) -> Account:
    """Return who we are on the homeserver, with the secret that the configuration names; it is masked from here on."""
    section = config.matrix
    assert section.homeserver is not None
    assert section.user is not None
    directory = home.root / _DIRECTORY
    private_directory(directory)
    password = await _secret(section.password_env, section.password_file, environ)
    token = await _secret(section.token_env, section.token_file, environ)
    for name, value in (("matrix-password", password), ("matrix-token", token)):
        if value is not None:
            learn(name, value)
    seal = house_key(home.root / "keys" / "matrix.key").hex()
    return Account(section.homeserver.rstrip("/"), section.user, section.device, directory, seal, password, token)


async def _secret(variable: str | None, file: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is not None:
        return await FromEnvironment(variable, environ).read()
    return None if file is None else await FromFile(Path(_expanded(file, environ))).read()


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    return user_homes(environ)[0] + path[1:] if path.startswith("~/") else path


def _place(room: str) -> Route:
    return Route(channel=CHANNEL, reference=room)
