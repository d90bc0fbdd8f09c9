"""What passes between sessions: a message from a team's session to another's, and the one answer that comes back."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from curtainwall.model.approvals import LabelSource
from curtainwall.model.budgets import Usage
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import MessageId, SessionId

TEAMS: Final = "teams"
"""The channel on which teams talk."""

MCP: Final = "mcp"
"""The channel of callers from outside that speak MCP."""

NOBODY: Final = "nobody"
"""Who asks where no team does; no team has this name, and rules can speak of it."""

OUTSIDE: Final = "outside"
"""The agent of a session that only stands for somebody who asks teams from outside: none of ours."""

AWAKE: Final = "awake"
"""What waking a session says where its agent is there."""

ANSWER: Final = "teams.answer"
"""What the house asks for before an answer leaves the session that wrote it."""

RECEIVE: Final = "teams.receive"
"""What rules are asked about before a message from a team is taken in."""


def _is_empty(text: str) -> bool:
    """Tell whether an answer has nothing here, as those of 0.1.0, which are written as they were."""
    return not text


class Peer(Frozen):
    """Whoever sent a message: the session where the answer goes, its team, and the teams through which the question came."""

    session: SessionId
    team: str
    path: tuple[str, ...]


class PeerStatus(StrEnum):
    """What became of a message to a team."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    WITHHELD = "withheld"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class PeerAnswer(Frozen):
    """The one answer to a message: what was said, what it was written from, and what it used."""

    message: MessageId
    status: PeerStatus
    text: str
    fault: str = ""
    """The name of what went wrong, for programs; the text has it in words."""
    partial: str = Field(default="", exclude_if=_is_empty)
    """What the team's agent had said before its turn failed or was interrupted."""
    labels: tuple[LabelSource, ...] = ()
    usage: Usage = Usage()
