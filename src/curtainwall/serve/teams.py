"""The tools of teams over HTTP, as a service of the house."""

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
    """A caller from outside with a door of its own."""

    def __init__(self, wired: GatedSessions, team: str) -> None:
        self._wired = wired
        self._team = team
        self._enter()

    async def connect(self) -> Streams:
        """Return a new connection, one JSON-RPC message a line."""
        if self._caller.is_deleted:
            await self._door.close()
            self._enter()
        return await self._door.enter()

    async def close(self, why: str) -> None:
        """End it, with everything that is connected."""
        await self._door.close()
        await self._caller.close(why)

    def _enter(self) -> None:
        self._caller = McpCaller(self._wired.teams, self._wired.gate, Who(name=self._team, channel=TEAMS), self._team, "over HTTP")
        self._door = team_mcp_server(self._wired.teams, self._wired.tools.native.listing, self._caller)


def services(serving: Serving) -> Iterable[Service]:
    """Return the service, where a team has a token."""
    wired = serving.wired
    tokens = tokens_of(wired.setup.config.teams, os.environ)
    if tokens:
        for team, token in tokens.items():
            wired.masker.learn(f"token of team {team}", token)
        endpoint = TeamEndpoint(tokens, lambda team: TeamConnection(wired, team))
        spot = ListenAddress(wired.setup.config.peers.address, "/mcp", "peers.listen", serving.book.say)
        yield HttpService(TEAMS, endpoint.app, spot, endpoint.close)


def tokens_of(teams: Mapping[str, TeamSection], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each team that has one; raise where one cannot be read, is short, or is another team's as well."""
    found: dict[str, str] = {}
    for name, team in teams.items():
        if team.token_env is None and team.token_file is None:
            continue
        token = shared_secret(f"the token of team `{name}`", team.token_env, team.token_file, environ)
        if token in found.values():
            raise Broken(f"team `{name}` has the token of another team; each needs one of its own")
        found[name] = token
    return found
