"""What a user sets about sandboxes: how much those of one session, and of all sessions, may use together."""

from pydantic import Field, model_validator

from curtainwall.config.kinds import Count, Section

_LEFT_OUT = "left out, by the size of this machine"


class SandboxesSection(Section):
    """What commands, git, tool servers and local agents may use together; read when a process starts (docs/confinement.md)."""

    session_commands: Count = Field(
        4, alias="session-commands", description="commands of one session that run at once; others wait for a free place"
    )
    commands: Count | None = Field(
        None, description=f"commands of all sessions that run at once; {_LEFT_OUT} (4 for each core, at least 8)"
    )
    session_memory: Count | None = Field(
        None, alias="session-memory", description=f"memory of one session's sandboxes, in MiB; {_LEFT_OUT} (a quarter, at least 2048)"
    )
    memory: Count | None = Field(None, description=f"memory of all sandboxes, in MiB; {_LEFT_OUT} (half, at least 2048)")
    session_processes: Count = Field(1024, alias="session-processes", description="processes and threads in one session's sandboxes")
    processes: Count = Field(4096, description="processes and threads in all sandboxes")

    @model_validator(mode="after")
    def _a_session_has_a_part(self) -> "SandboxesSection":
        pairs = (("commands", self.session_commands, self.commands), ("memory", self.session_memory, self.memory))
        for name, one, every in (*pairs, ("processes", self.session_processes, self.processes)):
            is_written = {name, f"session_{name}"} <= self.model_fields_set
            if is_written and one is not None and every is not None and one > every:
                raise ValueError(f"`session-{name}` is {one}, more than the {every} that all sessions have; write at most that")
        return self
