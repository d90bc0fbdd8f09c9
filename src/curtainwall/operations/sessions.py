"""The sessions of a home and the terms in force for them. Every operation starts from here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.host.home import WORKSPACE, Home
from curtainwall.model import (
    CommandRefused,
    Limits,
    NotFound,
    Route,
    SessionId,
    SessionOpened,
    Workspace,
    is_beneath,
    record,
    session_stream,
)
from curtainwall.session import Rules

if TYPE_CHECKING:
    # Start-up time: commands that only judge a call open no sessions.
    from curtainwall.model import Log
    from curtainwall.policy import Protection
    from curtainwall.runtime import HomeStores, SessionRegistry
    from curtainwall.session import SessionState


class AgentNames:
    """The agent of each session, read from the log once."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._agents: dict[SessionId, str] = {}

    def of(self, session: SessionId) -> str:
        """Return the name of a session's agent; raise `NotFound`."""
        if session not in self._agents:
            # Start-up time: commands that only judge a call read no log.
            from curtainwall.session import lift

            first = self._log.read(session_stream(session), limit=1)
            opened = lift(first[0]) if first else None
            if not isinstance(opened, SessionOpened):
                raise NotFound(f"there is no session `{session}`")
            self._agents[session] = opened.agent
        return self._agents[session]


@record
class SessionTerms:
    """The current rules, the limits of a new session, and where its asks are shown besides its own channel."""

    rules: Rules
    limits: Limits
    targets: tuple[Route, ...]


@record
class Sessions:
    """The log of a home, its sessions and their directories, and the terms in force, which are looked up each time."""

    home: Home
    store: "HomeStores"
    registry: "SessionRegistry"
    names: AgentNames
    terms: Callable[[], SessionTerms]

    def state(self, session: SessionId) -> "SessionState":
        """Return a session's current state from the log; raise `NotFound`."""
        state = self.registry.look_at(session)
        if state.opened is None:
            raise NotFound(f"there is no session `{session}`")
        return state

    def workspace_at(self, path: Path | str, *, own: bool) -> Workspace:
        """Return a directory as a workspace, by its real path; raise `CommandRefused` if it conflicts with a protected path."""
        return workspace_at(path, self.home, self.terms().rules.policy.protection, own=own)


def workspace_at(path: Path | str, home: Home, protection: "Protection", *, own: bool, besides: frozenset[str] = frozenset()) -> Workspace:
    """Return a directory as a workspace, by its real path; raise `CommandRefused` on a conflict with a protected path not in `besides`."""
    # Imported here for start-up time: commands that only answer or list need no workspace.
    from curtainwall.facts import PathRoots, Unclear, canonical_path

    try:
        real = canonical_path(str(Path(path).absolute()), PathRoots(workspace="/", home="/"))
    except Unclear as fault:
        raise CommandRefused(f"`{path}` cannot be a workspace: {fault.message}") from None
    # Of all protected paths, only a session's own workspace in our home is allowed; next to it are the session's answers and audit.
    is_of_session = own and _is_in_a_workspace(real, str(home.sessions))
    workspace = Workspace(path=real, own=own)
    # The rule files given on the command line are the last protected paths, so any other conflict is reported before them.
    conflict = protection.conflict(Workspace(path=real, own=is_of_session))
    if conflict is not None and conflict not in besides:
        raise CommandRefused(f"`{path}` cannot be a workspace: it contains or lies in the protected path `{conflict}`; choose another")
    return workspace


def _is_in_a_workspace(real: str, sessions: str) -> bool:
    parts = real[len(sessions) + 1 :].split("/") if is_beneath(real, sessions) else []
    return parts[1:2] == [WORKSPACE]
