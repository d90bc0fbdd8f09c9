"""Rule files as text: those that ship, and those that a user adds. Who reads a user's files is not known here."""

from dataclasses import dataclass
from pkgutil import get_data


@dataclass(frozen=True, slots=True)
class Source:
    """One rule file: its name as people know it, its text, whether a user wrote it, and whether it may allow nothing."""

    name: str
    text: str
    user: bool
    narrows: bool = False


def _packaged(name: str) -> str:
    # The one place that reads: package data belongs to the code and is read once, when the module is.
    found = get_data("curtainwall.policy", f"shipped/{name}")
    assert found is not None, f"`{name}` is missing from the installation"
    return found.decode()


SCHEMA = _packaged("schema.cedarschema")
SHIPPED = ("default.cedar", "labels.cedar")
"""The names of the rule files that come with the house."""

_SOURCES = tuple(Source(name, _packaged(name), user=False) for name in SHIPPED)


def shipped() -> tuple[Source, ...]:
    """Return the rule files that come with the house."""
    return _SOURCES
