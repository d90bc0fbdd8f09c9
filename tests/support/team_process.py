"""A process that talks to teams for a test: told on stdin what to do, one line each, it says on stdout what came of it.

`ask THREAD TEXT` asks team `backend` as `frontend`. With `forks`, each line is for a child of this process, which has everything imported
already: it asks and ends, or, for `notify TOKEN`, sends TOKEN as a notice and goes on working until somebody kills it.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
from contextlib import suppress

from curtainwall import open_teams
from curtainwall.library.teams import Teams

_NEEDED = (
    "curtainwall.library.teams",
    "curtainwall.compose.agents",
    "curtainwall.agents.builtin.models.clients",
    "curtainwall.agents.builtin.models.provider",
    "pydantic_ai.models.openai",
    "pydantic_ai.providers.openai",
)
"""What a child would otherwise load by itself, each time for a second: all that its talk and its team's model need."""


def say(**words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


async def talk() -> None:
    loop = asyncio.get_running_loop()
    async with open_teams("frontend") as teams:
        say(ready=os.getpid())
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await ask(teams, line)


async def ask(teams: Teams, line: str) -> None:
    thread, _, text = line.removeprefix("ask ").rstrip("\n").partition(" ")
    reply = await teams.ask("backend", text, thread=thread, wait=120)
    say(status=reply.status, text=reply.text, handle=reply.handle)


async def do(line: str) -> None:
    async with open_teams("frontend") as teams:
        if line.startswith("ask "):
            await ask(teams, line)
            return
        await teams.notify("backend", line.removeprefix("notify ").strip())
        say(pid=os.getpid())
        await asyncio.Event().wait()


def fork_on_demand() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in _NEEDED:
        importlib.import_module(name)
    say(ready=os.getpid())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(do(line))
            os._exit(0)
        if line.startswith("ask "):
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["forks"]:
        fork_on_demand()
    else:
        asyncio.run(talk())
