"""Processes people's messages before a session gets them: masks secrets, and lets the user's hooks block a message or add to it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    CloseSession,
    CommandRefused,
    Hooks,
    MessageId,
    Place,
    SendMessage,
    SessionId,
    Undecided,
    UserPromptSubmit,
    record,
    session_stream,
)
from curtainwall.runtime import SessionRegistry

_TEXT_FIELDS = ("text", "reason", "instructions", "name")
"""The fields of commands that hold text from people."""


@record
class IncomingMessages:
    """Masks people's text in commands, and passes messages to the hooks."""

    registry: SessionRegistry
    mask: Callable[[JsonValue], JsonValue]
    hooks: Hooks
    begun: Callable[[Place, int], Awaitable[None]]
    """Notifies hooks of a session's beginning, unless that was done; it was opened again so many times."""

    def masked(self, command: AnyCommand) -> AnyCommand:
        """Return the command with secrets in people's text masked."""
        texts = {name: getattr(command, name, None) for name in _TEXT_FIELDS}
        masked = {name: self.mask(text) for name, text in texts.items() if isinstance(text, str) and text}
        return command.model_copy(update=masked) if masked else command

    async def pass_hooks(self, session: SessionId, place: Place, text: str, key: str | None = None) -> None:
        """Run the hooks for a message; raise `CommandRefused` if one blocks it, and send the context that they add to the agent."""
        # A job's message can come before any process lets its agent work.
        await self.begun(place, self.registry.look_at(session).reopened)
        reply = await self.hooks.tell(UserPromptSubmit(prompt=text), place)
        if reply.blocked is not None:
            raise CommandRefused(f"a hook keeps this message away from the agent: {reply.blocked}")
        if reply.context:
            note = SendMessage(by=SYSTEM, message=MessageId(self.registry.mint()), text=reply.context, role="context")
            # If nobody decides it now, it waits in the inbox, and the message must still come after it.
            with suppress(Undecided):
                await self.registry.send(session, note, None if key is None else f"{key} context")

    async def admit(self, session: SessionId, text: str, key: str) -> bool:
        """Pass to the hooks what a job or a webhook brings as the message with this key, once; if one blocks it, close the session."""
        if self.registry.stores.inbox.outcome(session_stream(session), key) is not None:
            return True
        state = self.registry.look_at(session)
        if state.closed is not None:
            return False
        try:
            await self.pass_hooks(session, state.place, text, key)
        except CommandRefused as blocked:
            await self.registry.send(session, CloseSession(by=SYSTEM, reason=str(blocked)), f"{key} blocked")
            return False
        return True
