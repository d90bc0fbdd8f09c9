"""`curtainwall mcp`: the teams as an ordinary MCP server on stdin and stdout, for one named or anonymous caller."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.commands.mcp_proxy import pump
from curtainwall.cli.screen import note
from curtainwall.compose.agents import model_finder, run_agents
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import OUTSIDE, CommandRefused
from curtainwall.operations.open import SessionSpec
from curtainwall.teams.callers import McpCaller, team_mcp_server, waiting_calls


def mcp(
    team: Annotated[str, typer.Option(metavar="NAME", help="the team that asks; left out, nobody")] = "",
) -> None:
    """Speak MCP on stdin and stdout: tools to ask teams, tell them something and look back."""
    if sys.stdin.isatty():
        note("an MCP client is expected on stdin, which starts this by itself: docs/teams.md says how; Ctrl-C ends")
    asyncio.run(_serve(team))


async def _serve(team: str) -> None:
    async with open_gate(load_setup()) as wired:
        if not wired.setup.config.teams:
            raise CommandRefused("no team is configured; write `[teams.NAME]` with its `project` into the configuration, or import some")
        async with run_agents(wired, model_finder(wired), SessionSpec(OUTSIDE)):
            caller = McpCaller(wired.teams, wired.gate, local_user(), team)
            with tempfile.TemporaryDirectory(prefix="cw-") as directory:
                path = Path(directory) / "mcp.sock"
                async with team_mcp_server(wired.teams, wired.tools.native.listing, caller).open(path):
                    await asyncio.to_thread(pump, path, lambda: waiting_calls(wired.teams, caller))
            await caller.close("its client has left")
