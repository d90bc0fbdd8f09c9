"""The team tools over HTTP, as a service."""

import os
from collections.abc import Iterable, Mapping

from curtainwall.compose.gate import GatedSessions
from curtainwall.config.secrets import shared_secret
from curtainwall.config.teams import TeamSection
from curtainwall.model import TEAMS, Broken, Who
from curtainwall.serve.listener import HttpService, ListenAddress
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service
from curtainwall.teams.callers import McpCaller, team_mcp_server
from curtainwall.teams.endpoint import Streams, TeamEndpoint

SECTIONS = frozenset({"teams", "peers"})


class TeamConnection:
    """The MCP connection of one external caller."""

    def __init__(self, wired: GatedSessions, team: str) -> None:
        self._wired = wired
        self._team = team
        self._connect()

    async def connect(self) -> Streams:
        """Return a new connection, with one JSON-RPC message per line."""
        if self._caller.is_deleted:
            await self._server.close()
            self._connect()
        return await self._server.enter()

    async def close(self, why: str) -> None:
        """Close it, and every connection made through it."""
        await self._server.close()
        await self._caller.close(why)

    def _connect(self) -> None:
        self._caller = McpCaller(self._wired.teams, self._wired.gate, Who(name=self._team, channel=TEAMS), self._team, "over HTTP")
        self._server = team_mcp_server(self._wired.teams, self._wired.tools.native.listing, self._caller)


def services(serving: Serving) -> Iterable[Service]:
    """Return the service, if a team has a token."""
    wired = serving.wired
    tokens = tokens_of(wired.setup.config.teams, os.environ)
    if tokens:
        for team, token in tokens.items():
            wired.masker.learn(f"token of team {team}", token)
        endpoint = TeamEndpoint(tokens, lambda team: TeamConnection(wired, team))
        address = ListenAddress(wired.setup.config.peers.address, "/mcp", "peers.listen", serving.book.say)
        yield HttpService(TEAMS, endpoint.app, address, endpoint.close)


def tokens_of(teams: Mapping[str, TeamSection], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each team that has one; raise if one cannot be read, is short, or belongs to another team as well."""
    tokens: dict[str, str] = {}
    for name, team in teams.items():
        if team.token_env is None and team.token_file is None:
            continue
        token = shared_secret(f"the token of team `{name}`", team.token_env, team.token_file, environ)
        if token in tokens.values():
            raise Broken(f"team `{name}` has the token of another team; each needs one of its own")
        tokens[name] = token
    return tokens
