"""How a tool runs once it may: the shape of a runner, and the way in which it says that it could not."""

from collections.abc import Awaitable, Callable

from curtainwall.model import CallPermitted, CurtainwallError, Place, Prepared, ToolResult

Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]


class CannotDo(CurtainwallError):
    """The tool ran into something that the agent can be told; the message is its result."""
