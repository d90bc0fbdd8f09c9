"""Claude Code as a local process, confined, with the session's tools and none of its own; its conversations, and a pool for all of them."""

from curtainwall.agents.external.process.agent import ProcessAgent
from curtainwall.agents.external.process.discovery import Standing, adoption, claim, standing
from curtainwall.agents.external.process.keeper import Around
from curtainwall.agents.external.process.launch import find_claude
from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.slugs import slug, transcript_of
from curtainwall.agents.external.process.terms import (
    BETWEEN_TURNS,
    EGRESS_SOCKET,
    EXTENSION,
    TOOLS_SOCKET,
    AgentCrashed,
    AgentErred,
    AgentGarbled,
    AgentSilent,
    ConversationTaken,
    Folders,
    Limits,
    LoginNeeded,
    NoAnswer,
    Outside,
    ProgramMissing,
    Reach,
    WrongVersion,
    folders_of,
)
from curtainwall.agents.external.process.transcripts import Found, conversations_in

__all__ = [
    "BETWEEN_TURNS",
    "EGRESS_SOCKET",
    "EXTENSION",
    "TOOLS_SOCKET",
    "AgentCrashed",
    "AgentErred",
    "AgentGarbled",
    "AgentSilent",
    "Around",
    "ConversationTaken",
    "Folders",
    "Found",
    "Limits",
    "LoginNeeded",
    "NoAnswer",
    "Outside",
    "Past",
    "ProcessAgent",
    "ProgramMissing",
    "Reach",
    "Standing",
    "WrongVersion",
    "adoption",
    "claim",
    "conversations_in",
    "find_claude",
    "folders_of",
    "slug",
    "standing",
    "transcript_of",
]
