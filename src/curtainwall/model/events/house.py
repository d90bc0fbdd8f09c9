"""What is written in the log of the house, which all sessions share."""

from curtainwall.model.events.event import Event
from curtainwall.model.ids import SessionId
from curtainwall.model.people import Route, Who


class SessionDeleted(Event):
    """A session's log was deleted on purpose; the house keeps what it was and where it ended."""

    session: SessionId
    name: str
    entries: int
    head: str
    by: Who


class RouteSet(Event):
    """In the house's log: from here on a place leads to this session; without one, to none."""

    route: Route
    session: SessionId | None
    by: Who


HouseEvent = SessionDeleted | RouteSet
"""What is written in the log of the house alone."""
