"""The ground that every stored word stands on: immutable, strict about unknown keys and about numbers that are none."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes and refuses keys it does not know; infinity and NaN cannot be stored, nor compared with a budget."""

    # Start-up time: there are many such classes, and a command reads and writes only a few of them. Each is built when it is first used.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
