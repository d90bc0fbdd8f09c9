"""The instructions that `sessions.instructions` gives to external agents, which are told them with each turn and keep no file of them."""

from curtainwall.compose.gate import GatedSessions
from curtainwall.model import HOUSE_CHANNELS, MCP, TEAMS, SessionOpened

_OTHERS = frozenset((*HOUSE_CHANNELS, TEAMS, MCP))


def usual_instructions(wired: GatedSessions, opened: SessionOpened | None) -> str:
    """Return the instructions for a session, with secrets masked; empty if it has a project or was opened on the terminal or by a team."""
    if opened is None or not opened.workspace.own or opened.channel in _OTHERS:
        return ""
    return wired.masker.mask_text(wired.setup.config.sessions.instructions)
