"""A user without programs around calls."""

from curtainwall.model import HookEvent, HookReply, Place, Subject, ToolResult

_NOTHING = HookReply()


class NoHooks:
    """The user has no programs around calls."""

    async def before_call(self, subject: Subject, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Want nothing."""
        return _NOTHING

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Say nothing."""
        return _NOTHING

    async def tell(self, event: HookEvent, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Say nothing."""
        return _NOTHING
