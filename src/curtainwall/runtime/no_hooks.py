"""The hooks of a user who has configured none."""

from curtainwall.model import HookEvent, HookReply, Place, Subject, ToolResult

_NOTHING = HookReply()


class NoHooks:
    """Hooks that do nothing."""

    async def before_call(self, subject: Subject, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Do nothing."""
        return _NOTHING

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Do nothing."""
        return _NOTHING

    async def tell(self, event: HookEvent, place: Place) -> HookReply:  # noqa: ARG002 - the port's signature
        """Do nothing."""
        return _NOTHING
