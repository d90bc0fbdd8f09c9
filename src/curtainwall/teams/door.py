"""Where a caller from outside finds the tools of teams."""

from collections.abc import Callable, Iterable

from curtainwall.model import ToolSpec
from curtainwall.teams.callers import OutsideCaller
from curtainwall.teams.conversations import Conversations
from curtainwall.tools.mcp_in import Door
from curtainwall.tools.team_specs import SERVER


def team_door(conversations: Conversations, listing: Callable[[], Iterable[ToolSpec]], caller: OutsideCaller) -> Door:
    """Return the door through which one caller finds the tools of teams, by the names that teams know them by: `teams_ask`."""
    house = conversations.sessions.house
    return Door(
        caller.session, caller, house.feed, lambda: tuple(spec for spec in listing() if spec.server == SERVER), house.clock, joint="_"
    )


def waiting_in(conversations: Conversations, caller: OutsideCaller) -> int:
    """Return how many calls of a caller wait for a human."""
    return len(conversations.peers.state(caller.session).approvals)
