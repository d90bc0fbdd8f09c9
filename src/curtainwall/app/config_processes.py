"""What a user sets about agents that are processes of this machine: where the program is, and how much they may use."""

from typing import Final

from pydantic import Field

from curtainwall.app.config_kinds import Count, Duration, Section

LOCAL: Final = "claude-local"
"""The name by which people ask for Claude Code as a process of this machine."""


class ProcessesSection(Section):
    """Claude Code as a confined process of this machine, the agent `claude-local` (docs/process-agents.md)."""

    program: str = Field("", description="Claude Code's program; left out, `claude` on the path")
    most: Count = Field(10, description="processes that live at once; the one that rested longest makes room, and more wait")
    memory: Count = Field(4096, description="memory of each, in MiB")
    idle: Duration = Field(300, description="one that has nothing to do is ended after so long; the next message resumes its conversation")
    health: Duration = Field(30, description="how often one that has nothing to do is asked for a sign of life")
    silence: Duration = Field(
        180, description="one that says nothing for so long in a turn is ended, unless a call runs or a human is asked"
    )
    turn: Duration = Field(7_200, description="how long one turn may work; waiting for a human does not count")
