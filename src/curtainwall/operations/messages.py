"""Messages from people on their way into a session: secrets are masked, and the user's hooks may keep a message out or add to it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    CommandRefused,
    Hooks,
    MessageId,
    Place,
    SendMessage,
    SessionId,
    Undecided,
    UserPromptSubmit,
)
from curtainwall.runtime import SessionRegistry

_WRITTEN = ("text", "reason", "instructions", "name")
"""Where a command holds words of people."""


@dataclass(frozen=True, slots=True)
class IncomingMessages:
    """The way in for words of people."""

    house: SessionRegistry
    mask: Callable[[JsonValue], JsonValue]
    hooks: Hooks

    def masked(self, command: AnyCommand) -> AnyCommand:
        """Return the command with what people wrote in it masked."""
        written = {name: getattr(command, name, None) for name in _WRITTEN}
        masked = {name: self.mask(words) for name, words in written.items() if isinstance(words, str) and words}
        return command.model_copy(update=masked) if masked else command

    async def pass_hooks(self, session: SessionId, place: Place, text: str, key: str | None = None) -> None:
        """Tell the hooks of a message; raise `CommandRefused` if one blocks it, and add what they want the agent to know."""
        reply = await self.hooks.tell(UserPromptSubmit(prompt=text), place)
        if reply.blocked is not None:
            raise CommandRefused(f"a hook keeps this message away from the agent: {reply.blocked}")
        if reply.context:
            note = SendMessage(by=SYSTEM, message=MessageId(self.house.mint()), text=reply.context, role="context")
            # It is kept where nobody decides it now, and the message has to come after it all the same.
            with suppress(Undecided):
                await self.house.send(session, note, None if key is None else f"{key} context")
