"""Errors, named by what the reader should do or whose fault it is, and plain descriptions of invalid data from outside."""

from collections.abc import Mapping

from pydantic import ValidationError


class CurtainwallError(Exception):
    """The base of all errors that we raise on purpose. Messages are lower-case, without a full stop, with user input in backticks."""


class CommandRefused(CurtainwallError):
    """The command cannot be carried out in the session's current state; nothing changed."""

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
    """Nothing here has that name."""

    code = "not-found"


class NotAllowed(CommandRefused):
    """The sender may not do this; an operator can."""

    code = "not-allowed"


class OverBudget(CommandRefused):
    """The session has used up its budget of logged calls."""

    code = "over-budget"


class OpeningFailed(CurtainwallError):
    """A session could not be opened; no trace of it remains."""


class TurnFailed(CurtainwallError):
    """The agent could not do its work; the message is kept with the failure, and the session remains usable."""


class ViewFailed(CurtainwallError):
    """A view could not be mounted, read or changed; the project is as it was."""


class BadCall(CurtainwallError):
    """An agent's call without one clear meaning; `rule` names the structural rule that refuses it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class Conflict(CurtainwallError):
    """Another process wrote to the stream first; read and decide again."""


class TryLater(CurtainwallError):
    """Nothing was written, for a temporary reason: a full disk, a locked database.

    If the writer died and its writes cannot be inspected, the message says that the outcome is unknown.
    """


class Undecided(CurtainwallError):
    """The session's owner has not decided yet. The command is kept, so sending it again would duplicate it.

    The steps that should have followed the command were not taken; a caller that had planned some describes them in `meanwhile`.
    """

    def __init__(self, session: str, owner: int | None, meanwhile: str = "this is kept and counts as soon as it does") -> None:
        self.session = session
        self.owner = owner
        self.who = f"process {owner}" if owner else "another process"
        remedy = f" (if it was stopped, `kill -CONT {owner}` lets it go on)" if owner else ""
        super().__init__(f"{self.who} holds session `{session}` and has not decided yet; {meanwhile}{remedy}")


class Broken(CurtainwallError):
    """Data or a rule file is damaged and must be repaired before anything continues."""


REFUSALS: dict[str, type[CommandRefused]] = {
    kind.code: kind for kind in (CommandRefused, NotReady, Closed, AlreadyAnswered, NotFound, NotAllowed, OverBudget)
}


Place = tuple[int | str, ...]

_WORDS: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is no JSON",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "is not written as it must be",
    "union_tag_invalid": "is of no kind that is known here",
    "union_tag_not_found": "does not say of which kind it is",
    "value_error": "cannot be used: {error}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_SHORT = ("string_too_short", "too_short")
_KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("string_",), "a text"),
    (("bool_",), "true or false"),
    (("int_",), "a whole number"),
    (("float_", "decimal_", "finite_"), "a number"),
    (("tuple_", "list_", "set_", "frozen_set_"), "a list"),
    (("dict_", "mapping_", "model_", "dataclass_"), "an object"),
)


def explain_invalid(error: ValidationError, which: int = 0) -> tuple[Place, str]:
    """Return where data is invalid, and why, in words that can follow its name; of several faults, the one that `which` selects."""
    first = error.errors(include_url=False, include_input=False)[which]
    values = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in first.get("ctx", {}).items()}
    # Only this part of Pydantic's messages contains quotes; the messages of our own checks are kept as written.
    values["expected"] = values.get("expected", "something else").replace("'", "`")
    words = _WORDS.get(first["type"])
    if first["type"] in _SHORT and values.get("min_length") == "1":
        words = "must not be empty"
    if words is not None:
        return first["loc"], words.format_map({"error": "something else", **values})
    kind = next((kind for starts, kind in _KINDS if first["type"].startswith(starts)), None)
    return first["loc"], "cannot be used" if kind is None else f"must be {kind}"
