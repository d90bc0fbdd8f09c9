"""The sessions of a home, ready to be worked with, and the terms in force for them. Every operation starts from here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.host.home import WORKSPACE, Home
from curtainwall.model import CommandRefused, Limits, Log, NotFound, Route, SessionId, SessionOpened, Workspace, is_beneath, session_stream
from curtainwall.runtime import HomeStores, SessionRegistry
from curtainwall.session import Rules, SessionState, lift

if TYPE_CHECKING:
    from curtainwall.policy import Protection


class AgentNames:
    """Asks the log once for each session."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[SessionId, str] = {}

    def of(self, session: SessionId) -> str:
        """Return the name of a session's agent; raise `NotFound`."""
        if session not in self._known:
            first = self._log.read(session_stream(session), limit=1)
            opened = lift(first[0]) if first else None
            if not isinstance(opened, SessionOpened):
                raise NotFound(f"there is no session `{session}`")
            self._known[session] = opened.agent
        return self._known[session]


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What decisions go by right now, what a new session may use up, and where its asks are shown besides its own channel."""

    rules: Rules
    limits: Limits
    targets: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Sessions:
    """The log of a home, the sessions in it, their directories, and the terms in force; these are asked for anew each time."""

    home: Home
    store: HomeStores
    house: SessionRegistry
    names: AgentNames
    terms: Callable[[], SessionTerms]

    def state(self, session: SessionId) -> SessionState:
        """Return a session's state as the log has it now; raise `NotFound`."""
        state = self.house.look_at(session)
        if state.opened is None:
            raise NotFound(f"there is no session `{session}`")
        return state

    def workspace_at(self, path: Path | str, *, own: bool) -> Workspace:
        """Return a directory as a workspace, by its real path; raise `CommandRefused` where a protected path is in the way."""
        return workspace_at(path, self.home, self.terms().rules.policy.protection, own=own)


def workspace_at(path: Path | str, home: Home, protection: "Protection", *, own: bool, besides: frozenset[str] = frozenset()) -> Workspace:
    """Return a directory as a workspace, by its real path; raise `CommandRefused` where a protected path is in the way, `besides` some."""
    # Start-up time: whoever only answers or lists needs no workspace.
    from curtainwall.facts import PathRoots, Unclear, canonical_path

    try:
        real = canonical_path(str(Path(path).absolute()), PathRoots(workspace="/", home="/"))
    except Unclear as fault:
        raise CommandRefused(f"`{path}` cannot be a workspace: {fault.message}") from None
    # Among protected paths, only a session's own workspace in our home may be one; beside it lie its answers and its audit.
    is_of_session = own and _is_in_a_workspace(real, str(home.sessions))
    workspace = Workspace(path=real, own=own)
    # The rule files that were given stand last among the protected paths, so any other conflict is told before them.
    conflict = protection.conflict(Workspace(path=real, own=is_of_session))
    if conflict is not None and conflict not in besides:
        raise CommandRefused(f"`{path}` cannot be a workspace: it contains or lies in the protected path `{conflict}`; choose another")
    return workspace


def _is_in_a_workspace(real: str, sessions: str) -> bool:
    parts = real[len(sessions) + 1 :].split("/") if is_beneath(real, sessions) else []
    return parts[1:2] == [WORKSPACE]
