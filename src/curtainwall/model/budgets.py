"""The budgets of a session, and how certain we are of what it used."""

from enum import StrEnum
from typing import Final

from pydantic import NonNegativeFloat, NonNegativeInt

from curtainwall.model.frozen import Frozen


class BudgetKind(StrEnum):
    """The four things that run out."""

    TOKENS = "tokens"
    STEPS = "steps"
    SECONDS = "seconds"
    DOLLARS = "dollars"


class Basis(StrEnum):
    """How a figure came about."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class Usage(Frozen):
    """The usage of one model request. Negative figures are refused, because they would give budget back."""

    input_tokens: NonNegativeInt = 0
    output_tokens: NonNegativeInt = 0
    cached_tokens: NonNegativeInt = 0
    dollars: NonNegativeFloat = 0.0
    tokens_basis: Basis = Basis.UNKNOWN
    dollars_basis: Basis = Basis.UNKNOWN


NO_LIMIT: Final = 10**12
"""This limit and any higher one mean that there is no limit."""


class Limits(Frozen):
    """The caps of one session; reaching one parks it and asks for a raise."""

    tokens: int = 1_000_000
    steps: int = 200
    seconds: int = 7_200
    dollars: float = 5.0
    warn_at: float = 0.8
