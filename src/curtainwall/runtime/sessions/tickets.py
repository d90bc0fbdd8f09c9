"""A command on its way through a session, what has to be saved for it, and who waits for what comes of it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from curtainwall.model import AnyCommand, AnyEvent, CommandRefused, Conflict, Outcome, RequestCall, Save, SavedProgram
from curtainwall.session import needs_program, with_program


@dataclass(slots=True, eq=False)
class Ticket:
    """One command, what was decided about it, and whoever is told; one that is owed is brought again where it fails."""

    command: AnyCommand
    key: str | None = None
    done: "asyncio.Future[tuple[AnyEvent, ...]] | None" = None
    events: tuple[AnyEvent, ...] = ()
    refusal: CommandRefused | None = None
    is_owed: bool = False
    save: Save | None = None
    """Saves the program that gives the command, where the decision must not be written without it."""

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

    @property
    def needs_program(self) -> bool:
        """Tell whether what was decided has to wait for its program to be saved."""
        return needs_program(self.command, self.events)

    def take_program(self, program: SavedProgram) -> None:
        """Let a program be written along with what was decided, and with whatever is decided in its place."""
        assert isinstance(self.command, RequestCall)
        self.events = with_program(self.command, self.events, program)
        self.command = self.command.model_copy(update={"program": program})

    def fail(self, error: Exception) -> None:
        """Tell why nothing came of it."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


def fail(tickets: Iterable[Ticket], error: Exception) -> None:
    """Tell why nothing came of any of them."""
    for ticket in tickets:
        ticket.fail(error)


async def save_programs(tickets: Iterable[Ticket]) -> list[Ticket]:
    """Save the programs without which decisions must not be written; return those that have come to nothing because of that."""
    needing = [ticket for ticket in tickets if ticket.needs_program]
    saved = await asyncio.gather(*map(_saved, needing), return_exceptions=True)
    failed: list[Ticket] = []
    for ticket, program in zip(needing, saved, strict=True):
        if isinstance(program, SavedProgram):
            ticket.take_program(program)
        else:
            ticket.fail(program if isinstance(program, Exception) else Conflict("the program that makes this call was not saved"))
            failed.append(ticket)
    return failed


async def _saved(ticket: Ticket) -> SavedProgram:
    assert ticket.save is not None
    if ticket.done is not None and ticket.done.cancelled():
        raise Conflict("whoever gave this command went away before it was decided")
    return await ticket.save()


async def shared(twin: "asyncio.Future[tuple[AnyEvent, ...]]") -> tuple[AnyEvent, ...]:
    """Return what came of the same command from somebody who was a moment earlier."""
    try:
        return await asyncio.shield(twin)
    except asyncio.CancelledError:
        if twin.cancelled():
            raise Conflict("whoever gave this command first went away before it was decided") from None
        raise
