"""Messages between the sessions of teams, each with exactly one answer."""

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
"""The asker's name if no team asks. No team has this name, and rules can refer to it."""

OUTSIDE: Final = "outside"
"""The agent of a session that only represents a caller from outside; no agent of ours works in it."""

AWAKE: Final = "awake"
"""The status after waking a session whose agent is ready."""

ANSWER: Final = "teams.answer"
"""The call that the house makes before an answer leaves its session."""

RECEIVE: Final = "teams.receive"
"""The call that rules judge before a message from a team is accepted."""


def _is_empty(text: str) -> bool:
    """Tell whether an answer has nothing here, as those of 0.1.0, which are written as they were."""
    return not text


class Peer(Frozen):
    """The sender of a message: the session that gets the answer, its team, and the teams that passed the question on."""

    session: SessionId
    team: str
    path: tuple[str, ...]


class PeerStatus(StrEnum):
    """The outcome of a message to a team."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    WITHHELD = "withheld"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class PeerAnswer(Frozen):
    """The one answer to a message: its text, the labels of its sources, and what it used."""

    message: MessageId
    status: PeerStatus
    text: str
    fault: str = ""
    """The name of the fault, for programs; the text describes it in words."""
    partial: str = Field(default="", exclude_if=_is_empty)
    """The agent's text from before its turn failed or was interrupted."""
    labels: tuple[LabelSource, ...] = ()
    usage: Usage = Usage()
