"""A confined agent beside the gate: requests that its proxy refused, and tools of its own that it says it used."""

from typing import Literal

from pydantic import NonNegativeInt

from curtainwall.model.events.event import Event
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import TurnId

RefusalKind = Literal["key", "endpoint", "host", "malformed"]
"""Why a request was refused: a key that is not the session's, something not listed at a provider, another host, or no proper request."""


class RefusedRequest(Frozen):
    """Refused requests that are alike. Neither body nor query is kept, and of a key only its mask."""

    kind: RefusalKind
    host: str = ""
    method: str = ""
    path: str = ""
    reason: str = ""
    key: str = ""
    count: NonNegativeInt = 1


class RequestsRefused(Event):
    """The proxy refused requests that came from inside; `more` were too many to be listed one by one."""

    turn: TurnId | None = None
    requests: tuple[RefusedRequest, ...] = ()
    more: NonNegativeInt = 0


class ReportedUse(Frozen):
    """A tool and its arguments as the agent wrote them, masked and cut."""

    tool: str
    arguments: str = ""


class ToolUsesReported(Event):
    """The agent says that it used tools of its own, which do not go through the gate; this is its own account, and proves nothing.

    `more` were too many to be listed one by one.
    """

    turn: TurnId
    uses: tuple[ReportedUse, ...] = ()
    more: NonNegativeInt = 0


ConfinedEvent = RequestsRefused | ToolUsesReported
"""What happened beside the gate: refused by the proxy, or told by the agent."""
