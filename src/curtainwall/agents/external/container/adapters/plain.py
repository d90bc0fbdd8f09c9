"""A user's own agent in a few lines: a program that reads the message from stdin and writes its answer to stdout."""

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
    """A command. Its `{conversation}` and `{model}` are filled in, and `resume` is added if the conversation has begun.

    Its variables `CURTAINWALL_TOOLS` and `CURTAINWALL_ORIENTATION` tell it how to reach the session's tools, and what is allowed.
    """

    name: str
    command: tuple[str, ...]
    resume: tuple[str, ...] = ()
    providers: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        values = {"{conversation}": task.conversation, "{model}": task.model}
        parts = (*self.command, *(() if task.is_new else self.resume))
        own = {**self.variables, "CURTAINWALL_TOOLS": " ".join(BRIDGE), "CURTAINWALL_ORIENTATION": task.orientation}
        return AgentLaunch(command=tuple(values.get(part, part) for part in parts), environment=environment(self, task, **own))

    def output_parser(self) -> "PlainOutputParser":
        """Return a parser for the output of one turn."""
        return PlainOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return nothing: only the program knows what it keeps."""
        del conversation
        return ()


class PlainOutputParser:
    """Treats every line as text; only the exit code shows whether the turn failed."""

    def parse_stdout(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stdout."""
        return TextDelta(f"{line}\n"), ReportedEnd()

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        del line
        return ()
