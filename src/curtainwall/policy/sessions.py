"""What policy needs to know of a session, and nothing more."""

from dataclasses import dataclass

from curtainwall.model import Label, Mode, Workspace


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The session as a principal: who works where, in which mode, and what it has touched."""

    session: str
    agent: str
    workspace: Workspace
    mode: Mode
    channel: str
    labels: frozenset[Label]
    team: str = ""
