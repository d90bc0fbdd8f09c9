"""The `demo` model in a conversation of its own: its programs run in a real interpreter, on real file tools in a real directory."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue
from pydantic_monty import AsyncMonty, CollectString

from curtainwall.agents.builtin.language_model import (
    AgentMessage,
    ConversationItem,
    Delta,
    LanguageModel,
    ModelReply,
    ProgramOutcome,
    Prompt,
    UserMessage,
)
from curtainwall.agents.builtin.models.demo import DemoModel
from curtainwall.agents.builtin.program_output import PRELUDE, with_value_printed
from curtainwall.agents.builtin.stubs import stubs_for
from curtainwall.facts import Masker
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from tests.support.machines import Machine

SURFACE = stubs_for(NATIVE_TOOLS)


def file_tools() -> NativeTools:
    """Return the tools of which those for files run."""
    masker = Masker(b"k" * 32)
    return NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=masker, runners=filesystem_runners(masker))


async def whole(model: LanguageModel, prompt: Prompt) -> ModelReply:
    """Return the whole reply of a model, which must be what it showed."""
    shown: list[str] = []
    async for piece in model.reply(prompt):
        match piece:
            case Delta(text=text):
                shown.append(text)
            case ModelReply():
                assert "".join(shown) == piece.message.text
                return piece
    raise AssertionError("the model gave no reply")


@dataclass
class Conversation:
    """A person, the stand-in, and the tools: files are real, the rest is told what to say. Paths elsewhere are refused."""

    machine: Machine
    pages: dict[str, str] = field(default_factory=dict)
    shell: dict[str, tuple[int, str]] = field(default_factory=dict)
    items: list[ConversationItem] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, JsonValue]]] = field(default_factory=list)
    replies: int = 0

    @classmethod
    def at(cls, root: Path, files: Mapping[str, str]) -> "Conversation":
        machine = replace(Machine.at(root), tools=file_tools())
        for name, text in files.items():
            path = machine.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return cls(machine)

    def file(self, name: str) -> str:
        return (self.machine.workspace / name).read_text()

    @property
    def tools(self) -> list[str]:
        return [name for name, _ in self.calls]

    def says(self, *texts: str) -> str:
        """Return the answer to what a person says, with its programs really run."""
        return asyncio.run(self._says(texts))

    async def _says(self, texts: Sequence[str]) -> str:
        self.items += [UserMessage(text=text) for text in texts]
        for _ in range(4):
            reply = await whole(DemoModel(), Prompt("system", tuple(self.items), self.replies))
            self.items.append(reply.message)
            self.replies += 1
            if not reply.message.programs:
                return reply.message.text
            for program in reply.message.programs:
                self.items.append(ProgramOutcome(id=program.id, text=await self.run(program.code)))
        raise AssertionError("it goes on and on")

    @property
    def code(self) -> str:
        """Return the last program."""
        return next(item.programs[0].code for item in reversed(self.items) if isinstance(item, AgentMessage) and item.programs)

    async def run(self, code: str) -> str:
        prints = CollectString()
        async with AsyncMonty() as pool, pool.checkout() as worker:
            await worker.feed_run(f"{PRELUDE}{SURFACE.prelude_for(code, '_out')}")
            await worker.feed_run(with_value_printed(code), external_lookup={"_out": self._call}, print_callback=prints)
        return prints.output

    async def _call(self, tool: str, arguments: str) -> Any:
        given = {name: value for name, value in json.loads(arguments).items() if value is not None}
        self.calls.append((tool, given))
        for name in ("path", "source", "destination"):
            if str(given.get(name, ".")).startswith(("/etc", "~", "..")):
                raise PermissionError(f"denied by `no-rule`: `{given[name]}` is outside of the workspace")
        if tool == "fetch.get":
            return self._page(str(given["url"]))
        if tool == "shell.run":
            code, out = self.shell.get(str(given["command"]), (127, "not found"))
            return {"exit_code": code, "stdout": out, "stderr": "", "cut": False, "timed_out": False}
        if tool == "session.remember":
            return {"remembered": "n1", "in": "memory.md"}
        if tool == "session.recall":
            return {"notes": [{"text": "the build needs make", "by": "the user", "memory": "memory.md"}]}
        if tool.startswith("filesystem."):
            result = await self.machine.run(self.machine.prepare(tool, **given))
            if not result.ok:
                raise RuntimeError(result.value)
            return cast("Any", result.value)
        return f"{tool} was called"

    def _page(self, url: str) -> dict[str, JsonValue]:
        if url not in self.pages:
            raise PermissionError(f"denied by `hosts`: `{url}` is not on the list")
        return {"status": 200, "url": url, "content_type": "text/plain", "headers": {}, "content": self.pages[url]}
