"""A pair: who asks, which team, in which thread; each has one place, which leads to one session."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from curtainwall.model import TEAMS, Route

_NAMED: Final = re.compile(r"([\w.-]+) → ([\w.-]+)(?: \((.+)\))?", re.ASCII | re.DOTALL)


class Pair(NamedTuple):
    """An ordered pair of teams and a thread; the main one has no name."""

    asker: str
    team: str
    thread: str = ""

    @property
    def route(self) -> Route:
        """Return the one place of this pair; no two pairs share one, because each part is written without slashes."""
        return Route(channel=TEAMS, reference="/".join(quote(part, safe="") for part in (self.asker, self.team, self.thread)))

    @staticmethod
    def at(route: Route) -> "Pair | None":
        """Return the pair whose place this is, or None for any other place."""
        parts = route.reference.split("/")
        if route.channel != TEAMS or len(parts) != len(Pair._fields):
            return None
        asker, team, thread = map(unquote, parts)
        found = Pair(asker=asker, team=team, thread=thread)
        return found if found.route == route else None

    @staticmethod
    def named(name: str) -> "Pair | None":
        """Return the pair that a session was opened for, by the name that it was given then, or None for any other name."""
        parts = _NAMED.fullmatch(name)
        return None if parts is None else Pair(asker=parts[1], team=parts[2], thread=parts[3] or "")

    def __str__(self) -> str:
        return f"{self.asker} → {self.team}{f' ({self.thread})' if self.thread else ''}"
