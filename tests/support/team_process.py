"""A process that talks to teams for a test: told on stdin what to do, one line each, it says on stdout what came of it.

`ask THREAD TEXT` asks team `backend` as `frontend`. `fork TOKEN`: a child of this process, which has everything imported already, sends
TOKEN as a notice and goes on working until somebody kills it.
"""

import asyncio
import json
import os
import signal
import sys

from curtainwall import open_teams


def say(**words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


async def talk() -> None:
    loop = asyncio.get_running_loop()
    async with open_teams("frontend") as teams:
        say(ready=os.getpid())
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            thread, _, text = line.removeprefix("ask ").rstrip("\n").partition(" ")
            reply = await teams.ask("backend", text, thread=thread, wait=120)
            say(status=reply.status, text=reply.text, handle=reply.handle)


async def notify(token: str) -> None:
    async with open_teams("frontend") as teams:
        await teams.notify("backend", token)
        say(accepted=token, pid=os.getpid())
        await asyncio.Event().wait()


def fork_on_demand() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import curtainwall.app.teams
    import curtainwall.app.working

    del curtainwall.app.teams, curtainwall.app.working
    say(ready=os.getpid())
    for line in sys.stdin:
        token = line.removeprefix("fork ").strip()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(notify(token))
            os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["forks"]:
        fork_on_demand()
    else:
        asyncio.run(talk())
