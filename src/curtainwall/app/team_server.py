"""`curtainwall mcp`: the teams as an ordinary MCP server on stdin and stdout, for one caller who is known by name or is nobody."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.app.callers import McpCaller, OutsideCaller
from curtainwall.app.mcp_proxy import pump
from curtainwall.app.openings import Wanted
from curtainwall.app.screen import note
from curtainwall.app.wiring import Wired, local_user, open_house, set_up
from curtainwall.app.working import agents_at_work, models_of
from curtainwall.model import OUTSIDE, CommandRefused, ToolSpec
from curtainwall.tools.mcp_in import Door
from curtainwall.tools.teams import SERVER


def mcp(
    team: Annotated[str, typer.Option(metavar="NAME", help="the team that asks; left out, nobody")] = "",
) -> None:
    """Speak MCP on stdin and stdout: tools to ask teams, tell them something and look back."""
    if sys.stdin.isatty():
        note("an MCP client is expected on stdin, which starts this by itself: docs/teams.md says how; Ctrl-C ends")
    asyncio.run(_serve(team))


async def _serve(team: str) -> None:
    async with open_house(set_up()) as wired:
        if not wired.setup.config.teams:
            raise CommandRefused("no team is configured; write `[teams.NAME]` with its `project` into the configuration, or import some")
        async with agents_at_work(wired, models_of(wired), Wanted(OUTSIDE)):
            caller = McpCaller(wired, local_user(), team)
            with tempfile.TemporaryDirectory(prefix="cw-") as directory:
                path = Path(directory) / "mcp.sock"
                async with team_door(wired, caller).open(path):
                    await asyncio.to_thread(pump, path, lambda: waiting_in(wired, caller))
            await caller.close("its client has left")


def team_door(wired: Wired, caller: OutsideCaller) -> Door:
    """Return the door through which one caller finds the tools of teams, by the names that teams know them by: `teams_ask`."""

    def tools() -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in wired.tools.native.listing() if spec.server == SERVER)

    return Door(caller.session, caller, wired.house.feed, tools, wired.house.clock, joint="_")


def waiting_in(wired: Wired, caller: OutsideCaller) -> int:
    """Return how many calls of a caller wait for a human."""
    return len(wired.peers.state(caller.session).approvals)
