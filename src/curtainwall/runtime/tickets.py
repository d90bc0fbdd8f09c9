"""A command on its way through a session, and who waits for what comes of it."""

import asyncio
from dataclasses import dataclass

from curtainwall.model import AnyCommand, AnyEvent, CommandRefused, CurtainwallError, Outcome


@dataclass(slots=True)
class Ticket:
    """One command, what was decided about it, and whoever is told; one that is owed is brought again where it fails."""

    command: AnyCommand
    key: str | None = None
    done: "asyncio.Future[tuple[AnyEvent, ...]] | None" = None
    events: tuple[AnyEvent, ...] = ()
    refusal: CommandRefused | None = None
    is_owed: bool = False

    def outcome(self, seq: int) -> Outcome:
        """Return what the inbox keeps of it, where its events end the log at an entry."""
        if self.refusal is None:
            return Outcome(seq=seq)
        return Outcome(code=self.refusal.code, message=str(self.refusal))

    def tell(self) -> None:
        """Tell what was decided, now that it is durable."""
        if self.refusal is not None:
            self.fail(self.refusal)
        elif self.done is not None and not self.done.done():
            self.done.set_result(self.events)

    def fail(self, error: CurtainwallError) -> None:
        """Tell why nothing came of it."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)
