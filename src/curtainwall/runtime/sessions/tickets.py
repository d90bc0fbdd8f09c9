"""A command on its way through a session, and who waits for what comes of it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from curtainwall.model import AnyCommand, AnyEvent, CommandRefused, Conflict, CurtainwallError, Outcome


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


def fail(tickets: Iterable[Ticket], error: CurtainwallError) -> None:
    """Tell why nothing came of any of them."""
    for ticket in tickets:
        ticket.fail(error)


async def shared(twin: "asyncio.Future[tuple[AnyEvent, ...]]") -> tuple[AnyEvent, ...]:
    """Return what came of the same command from somebody who was a moment earlier."""
    try:
        return await asyncio.shield(twin)
    except asyncio.CancelledError:
        if twin.cancelled():
            raise Conflict("whoever gave this command first went away before it was decided") from None
        raise
