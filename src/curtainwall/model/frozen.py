"""The base class of everything that is stored: immutable, and strict about unknown keys and about NaN."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes and refuses keys it does not know; infinity and NaN cannot be stored, nor compared with a budget."""

    # Start-up time: there are many such classes, and a command needs only a few of them, so each is built on first use.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
