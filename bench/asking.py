"""Askers in a process of their own: each line that comes in is a round of questions, and goes back out when all are answered."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.team_talk import ask, opened, talk
from curtainwall.host.user import local_user
from curtainwall.teams.callers import OutsideCaller


async def _main(home: Path, teams: Sequence[str]) -> None:
    async with opened(home) as wired:
        callers = {team: OutsideCaller(wired.teams, wired.gate, local_user()) for team in teams}
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip() == "begin":
                for team, caller in callers.items():
                    await ask(caller, team)
            else:
                await asyncio.gather(*(talk(caller, team) for team, caller in callers.items()))
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), [f"team{number}" for number in sys.argv[2:]]))
