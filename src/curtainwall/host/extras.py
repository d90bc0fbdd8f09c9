"""The optional parts of an installation, and how to get one that is missing."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from curtainwall.model import CurtainwallError

Extra = Literal["docker", "matrix", "otel", "web"]


class ExtraMissing(CurtainwallError):
    """Something needs libraries that are installed only on request."""


@contextmanager
def extra(name: Extra) -> Generator[None]:
    """Import the libraries of an extra in this context; if one is not installed, raise `ExtraMissing` with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("curtainwall"):
            raise
        raise ExtraMissing(f"`{error.name}` is not installed; install it with `pip install 'curtainwall[{name}]'`") from error
