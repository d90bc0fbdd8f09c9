"""Where each kind of agent looks for skills by itself, and what has to be lent to its container so that it finds the user's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from curtainwall.agents.external.container.inside import HOME
from curtainwall.agents.external.container.terms import Program

DISCOVERY: Final[Mapping[str, str]] = {
    "claude-code": ".claude/skills",
    "codex": ".agents/skills",
    "opencode": ".agents/skills",
    "gemini": ".agents/skills",
    "goose": ".config/goose/skills",
}
"""Below the agent's home. What a workspace brings along, agents find in the workspace."""


def skill_mounts(agent: str, folders: Mapping[str, str]) -> tuple[Program, ...]:
    """Return what to lend, read-only, for skills in these folders by name; nothing for an agent of which we do not know where it looks.

    The directories above belong to the agent, which writes there too: whoever mounts sees to it that they are there.
    """
    root = DISCOVERY.get(agent)
    if root is None:
        return ()
    return tuple(Program(here=Path(path), inside=f"{HOME}/{root}/{name}") for name, path in sorted(folders.items()))
