"""The words of this room: limits, folders, whoever opens the ways out, and each thing that can go wrong, named by what to do about it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from curtainwall.host.home import Home
from curtainwall.model import NotFound, SessionId, TryLater, TurnAt, TurnFailed, Workspace

EXTENSION: Final = "process"
"""Under this name the log keeps what only this room knows."""

BETWEEN_TURNS: Final = "between turns"
"""In the place of a turn, for what an agent does in none: making its history shorter."""

TOOLS_SOCKET: Final = "mcp.sock"
EGRESS_SOCKET: Final = "egress.sock"
"""The session's two sockets, in its run directory: its tools, and the way to the models."""

HOW_TO_SIGN_IN: Final = "set `ANTHROPIC_API_KEY` or `CLAUDE_CODE_OAUTH_TOKEN`; docs/models.md has the other places for keys"
"""What to do where the provider does not know who we are."""

_GIB = 1024**3


class ProgramMissing(NotFound):
    """The agent's program, or one that it needs, is not on this machine; the message says how to get it."""


class WrongVersion(TurnFailed):
    """The program does not know an option that we need; the message says which version does."""


class LoginNeeded(TurnFailed):
    """The provider does not know who we are; the message says where a key goes."""


class AgentErred(TurnFailed):
    """The agent says itself that the turn failed."""


class AgentCrashed(TurnFailed):
    """The process ended in the middle of a turn; the next message starts a new one."""


class AgentSilent(TurnFailed):
    """The process gave no sign of life for too long and was ended; the next message starts a new one."""


class AgentGarbled(TurnFailed):
    """The process wrote what is not stream-json and was ended."""


class NoAnswer(TurnFailed):
    """The process ended well, and without an answer."""


class ConversationTaken(TryLater):
    """Another process of this machine is in the conversation; two at once would spoil it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much processes may use. Times in seconds, sizes in bytes."""

    processes: int = 10
    """How many live at once, over all sessions of this process of ours."""
    idle: float = 5 * 60.0
    """When a process that has nothing to do is ended."""
    health: float = 30.0
    """How often a process that has nothing to do is asked for a sign of life."""
    silence: float = 180.0
    """How long a process at work may say nothing, unless a call of it runs or a human is asked."""
    turn: float = 2 * 3600.0
    """How long a turn may work; time at which a human is waited for does not count."""
    grace: float = 3.0
    """How long an interrupted turn, or a process that is to end, has for it."""
    back_off: float = 0.5
    """How long the second start after failures waits; each further one twice as long, up to half a minute."""
    memory: int = 4 * _GIB
    children: int = 256
    full: float = 0.92
    """The share of the model's context at which the conversation goes on, summarised, in a new one."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The directories of one session. Of the workspace only its path is told; the agent sees its files through the session's tools."""

    workspace: Path
    orientation: Path
    run: Path
    state: Path
    locks: Path


@dataclass(frozen=True, slots=True)
class Reach:
    """What an agent gets for its ways out: stand-in keys by provider, and the certificates (PEM) that it has to trust."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    hosts: str = ""
    """What it is told of the hosts that its tools may fetch from freely."""
    turn: Callable[[TurnAt], AbstractAsyncContextManager[object]] = nullcontext
    """Opened around each turn, so that what passes is counted and judged as the turn's; left when all of it is written down."""


class Outside(Protocol):
    """Whoever opens a session's two sockets, for as long as a process lives: its tools, and the way to the models."""

    def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AbstractAsyncContextManager[Reach]:
        """Serve `mcp.sock` and `egress.sock` in the directory, for that user alone, while the context is open."""
        ...


def folders_of(home: Home, session: SessionId, workspace: Workspace) -> Folders:
    """Return the directories of a session's local agent."""
    place, run = home.session(session), home.root / "run"
    return Folders(Path(workspace.path), place.root / "orientation", run / session, place.root / "state", run / "conversations")
