"""An agent of the user's own, in a few lines: a program that reads the message from stdin and writes its answer to stdout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from curtainwall.agents.external import (
    AgentReport,
    ReportedEnd,
    TextDelta,
)
from curtainwall.agents.external.container.adapters.adapter import (
    AgentLaunch,
    Task,
    environment,
)
from curtainwall.agents.external.container.spec import BRIDGE


@dataclass(frozen=True)
class PlainAgent:
    """A command; `{conversation}` and `{model}` in it are filled in, `resume` is added where something was said before.

    Its variables `CURTAINWALL_TOOLS` and `CURTAINWALL_ORIENTATION` tell it how to reach the session's tools, and what is free here.
    """

    name: str
    command: tuple[str, ...]
    resume: tuple[str, ...] = ()
    providers: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        known = {"{conversation}": task.conversation, "{model}": task.model}
        parts = (*self.command, *(() if task.is_new else self.resume))
        own = {**self.variables, "CURTAINWALL_TOOLS": " ".join(BRIDGE), "CURTAINWALL_ORIENTATION": task.orientation}
        return AgentLaunch(command=tuple(known.get(part, part) for part in parts), environment=environment(self, task, **own))

    def ear(self) -> "PlainOutputParser":
        """Return whoever listens to one turn."""
        return PlainOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return nothing: only the program knows what it keeps."""
        del conversation
        return ()


class PlainOutputParser:
    """Takes every line as text; that it was all is told by the exit code."""

    def hear(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stdout."""
        return TextDelta(f"{line}\n"), ReportedEnd()

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stderr."""
        del line
        return ()
