"""Claude Code as a confined local process that has only the session's tools; its conversations, and a pool of processes."""

from curtainwall.agents.external.process.agent import ProcessAgent
from curtainwall.agents.external.process.conversation import (
    ConversationStatus,
    ProcessHistory,
    adoption_event,
    claim_conversation,
    conversation_status,
)
from curtainwall.agents.external.process.launch import (
    BETWEEN_TURNS,
    EGRESS_SOCKET,
    EXTENSION,
    TOOLS_SOCKET,
    AgentCrashed,
    AgentErred,
    AgentGarbled,
    AgentSilent,
    ConversationTaken,
    LoginNeeded,
    NoAnswer,
    ProcessFolders,
    ProcessLimits,
    ProcessNetwork,
    ProcessSockets,
    ProgramMissing,
    WrongVersion,
    find_claude,
    process_folders,
)
from curtainwall.agents.external.process.packed_state import pack_state
from curtainwall.agents.external.process.session_process import ProcessPorts
from curtainwall.agents.external.process.transcripts import StoredConversation, conversations_in, project_slug, transcript_path

__all__ = [
    "BETWEEN_TURNS",
    "EGRESS_SOCKET",
    "EXTENSION",
    "TOOLS_SOCKET",
    "AgentCrashed",
    "AgentErred",
    "AgentGarbled",
    "AgentSilent",
    "ConversationStatus",
    "ConversationTaken",
    "LoginNeeded",
    "NoAnswer",
    "ProcessAgent",
    "ProcessFolders",
    "ProcessHistory",
    "ProcessLimits",
    "ProcessNetwork",
    "ProcessPorts",
    "ProcessSockets",
    "ProgramMissing",
    "StoredConversation",
    "WrongVersion",
    "adoption_event",
    "claim_conversation",
    "conversation_status",
    "conversations_in",
    "find_claude",
    "pack_state",
    "process_folders",
    "project_slug",
    "transcript_path",
]
