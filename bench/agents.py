"""Our own agent at work in a house on disk, as the program wires it; its model replies at once, so that what is left is ours."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from curtainwall.agents.builtin import LanguageModel
from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelReply, Program, Prompt
from curtainwall.compose.agents import RunningAgents, run_agents
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Usage
from curtainwall.operations.open import SessionSpec

Script = Callable[[Prompt], AgentMessage]
"""Makes a reply to a prompt."""

USED = Usage(input_tokens=300, output_tokens=200)


class AtOnce:
    """A model that replies at once, with whatever its script makes of the prompt."""

    name = "at-once"
    context_size = 1_000_000_000

    def __init__(self, script: Script) -> None:
        self._script = script

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield the reply in one piece, then as a whole."""
        said = self._script(prompt)
        if said.text:
            yield Delta(said.text)
        yield ModelReply(said, {"text": said.text}, USED, "tool_use" if said.programs else "end_turn")


def runs(code: str, prompt: Prompt) -> AgentMessage:
    """Return a reply that wants one program to run."""
    return AgentMessage(text="", programs=(Program(id=f"program-{prompt.replies}", code=code),))


@asynccontextmanager
async def at_work(home: Path, model: LanguageModel) -> AsyncGenerator[tuple[RunningAgents, SessionSpec]]:
    """Lend a house in which our agent works with this model, and what a new session in it should be."""
    wanted = SessionSpec(model.name)
    ours = home / "home"
    ours.mkdir(parents=True, mode=0o700)
    # No session here may come to the end of its budget.
    (ours / "config.toml").write_text("[limits]\ntokens = 1_000_000_000\nsteps = 1_000_000\nseconds = 1_000_000\n", encoding="utf-8")
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(ours)})))
        work = await stack.enter_async_context(run_agents(wired, lambda _: model, wanted))
        yield work, wanted
