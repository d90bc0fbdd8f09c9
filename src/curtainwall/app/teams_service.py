"""The tools of teams over HTTP, as a service of the house."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from curtainwall.app.callers import OutsideCaller
from curtainwall.app.config_teams import TeamSection
from curtainwall.app.listening import Listening, Spot
from curtainwall.app.services import Service
from curtainwall.app.serving import Serving
from curtainwall.app.team_server import team_door
from curtainwall.app.wiring import Wired
from curtainwall.channels.teams.endpoint import Streams, TeamEndpoint
from curtainwall.model import TEAMS, Broken, Who

SECTIONS = frozenset({"teams", "peers"})
_SHORTEST: Final = 16


class HouseVisit:
    """A caller from outside with a door of its own."""

    def __init__(self, wired: Wired, team: str) -> None:
        self._caller = OutsideCaller(wired, Who(name=team, channel=TEAMS), team, name=f"{team} over HTTP")
        self._door = team_door(wired, self._caller)

    async def connect(self) -> Streams:
        """Return a new connection, one JSON-RPC message a line."""
        return await self._door.enter()

    async def close(self, why: str) -> None:
        """End it, with everything that is connected."""
        await self._door.close()
        await self._caller.close(why)


def services(serving: Serving) -> Iterable[Service]:
    """Return the service, where a team has a token."""
    wired = serving.wired
    tokens = tokens_of(wired.setup.config.teams, os.environ)
    if tokens:
        for team, token in tokens.items():
            wired.masker.learn(f"token of team {team}", token)
        endpoint = TeamEndpoint(tokens, lambda team: HouseVisit(wired, team))
        spot = Spot(wired.setup.config.peers.address, "/mcp", "peers.listen", serving.book.say)
        yield Listening(TEAMS, endpoint.app, spot, endpoint.close)


def tokens_of(teams: Mapping[str, TeamSection], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each team that has one; raise where one cannot be read, is short, or is another team's as well."""
    found: dict[str, str] = {}
    for name, team in teams.items():
        if team.token_env is None and team.token_file is None:
            continue
        token, where = _read(name, team, environ)
        if len(token) < _SHORTEST:
            raise Broken(f"the token of team `{name}` in {where} has fewer than {_SHORTEST} characters; make a longer one")
        if token in found.values():
            raise Broken(f"team `{name}` has the token of another team; each needs one of its own")
        found[name] = token
    return found


def _read(name: str, team: TeamSection, environ: Mapping[str, str]) -> tuple[str, str]:
    if team.token_env is not None:
        return environ.get(team.token_env, "").strip(), f"the variable `{team.token_env}`"
    assert team.token_file is not None
    try:
        return Path(team.token_file).expanduser().read_text(encoding="utf-8").strip(), f"`{team.token_file}`"
    except (OSError, UnicodeDecodeError) as fault:
        raise Broken(f"the token of team `{name}` cannot be read: {fault}") from None
