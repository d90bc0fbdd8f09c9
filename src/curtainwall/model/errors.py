"""Errors, named by what the reader should do or whose fault it is."""


class CurtainwallError(Exception):
    """Everything that we raise on purpose; the message is lower-case, without a full stop, user input in backticks."""


class CommandRefused(CurtainwallError):
    """The command cannot be followed in the session's present state; nothing changed."""

    code = "refused"


class NotReady(CommandRefused):
    """The session is still opening."""

    code = "not-ready"


class Closed(CommandRefused):
    """The session has ended."""

    code = "closed"


class AlreadyAnswered(CommandRefused):
    """Someone else was first."""

    code = "already-answered"


class NotFound(CommandRefused):
    """There is nothing of that name here."""

    code = "not-found"


class NotAllowed(CommandRefused):
    """Whoever asked may not do this; an operator can."""

    code = "not-allowed"


class OverBudget(CommandRefused):
    """The session has used up its budget of logged calls."""

    code = "over-budget"


class OpeningFailed(CurtainwallError):
    """A session could not be opened; nothing of it is left."""


class TurnFailed(CurtainwallError):
    """The agent could not do its work; the message is kept with the failure, and the session can be used further."""


class BadCall(CurtainwallError):
    """An agent's call that means nothing certain; `rule` says which structural rule refuses it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class Conflict(CurtainwallError):
    """Someone else wrote to the stream first; read again and decide anew."""


class TryLater(CurtainwallError):
    """Nothing was written because of something that passes: a full disk, a locked database.

    Where whoever was writing died and nobody can look at what it wrote, the message says that this is not known.
    """


class Undecided(CurtainwallError):
    """Whoever owns the session has not decided yet. The command is kept, and sending it again would be saying it twice.

    Whatever would have come after the command was not done; whoever had that in mind says so in place of the usual `meanwhile`.
    """

    def __init__(self, session: str, owner: int | None, meanwhile: str = "this is kept and counts as soon as it does") -> None:
        self.session = session
        self.owner = owner
        self.who = f"process {owner}" if owner else "another process"
        remedy = f" (if it was stopped, `kill -CONT {owner}` lets it go on)" if owner else ""
        super().__init__(f"{self.who} holds session `{session}` and has not decided yet; {meanwhile}{remedy}")


class Broken(CurtainwallError):
    """Data or a rule file is damaged; nothing goes on until it is repaired."""


REFUSALS: dict[str, type[CommandRefused]] = {
    kind.code: kind for kind in (CommandRefused, NotReady, Closed, AlreadyAnswered, NotFound, NotAllowed, OverBudget)
}
