"""Everything that working with the teams' conversations needs, in one process."""

from collections.abc import Callable
from dataclasses import dataclass

from curtainwall.config.schema import Config
from curtainwall.operations.sessions import Sessions
from curtainwall.teams.archive import Archive
from curtainwall.teams.requests import Wishes
from curtainwall.teams.sessions import HousePeers
from curtainwall.teams.talk import Talk


@dataclass(frozen=True, slots=True)
class Conversations:
    """The teams' conversations: their sessions, the talk in them, requests to whoever works for the teams, and what was summed up."""

    sessions: Sessions
    config: Callable[[], Config]
    peers: HousePeers
    talk: Talk
    requests: Wishes
    archive: Archive
