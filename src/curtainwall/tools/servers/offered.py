"""What a server offers, taken as data: names that fit, words cut and cleaned, schemas made harmless, and a fingerprint of what it said."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from curtainwall.model import Broken, ToolSpec, canonical_json
from curtainwall.tools.servers.schemas import LARGEST, harmless
from curtainwall.tools.servers.spec import ToolRoles
from curtainwall.tools.servers.words import cleaned

LONGEST_DESCRIPTION: Final = 2_000
_TOLD: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool as its server described it; `told` is what the fingerprint is taken of."""

    name: str
    told: dict[str, JsonValue]
    fingerprint: str

    @property
    def description(self) -> str:
        """Return what it says about itself, for a model to read as data."""
        told = self.told.get("description")
        return cleaned(told, LONGEST_DESCRIPTION) if isinstance(told, str) else ""

    @property
    def schema(self) -> dict[str, JsonValue]:
        """Return the schema of its arguments; raise `Broken` for one that cannot be used."""
        return harmless(self.told.get("inputSchema"))

    def hint(self, name: str) -> bool | None:
        """Return one of its hints, which are claims of a stranger."""
        told = self.told.get("annotations")
        found = told.get(name) if isinstance(told, dict) else None
        return found if isinstance(found, bool) else None

    def spec(self, server: str, roles: ToolRoles) -> ToolSpec:
        """Return it as an entry of the catalogue; raise `Broken`."""
        about = f"The server `{server}` says: {self.description or 'nothing about it'}"
        return ToolSpec(server=server, name=self.name, description=about, schema_=self.schema, effect=roles.effect, meanings=roles.meanings)


def offered(tool: dict[str, JsonValue]) -> Offered | None:
    """Return a tool out of a server's list, or None for one that has no name we could use."""
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    told: dict[str, JsonValue] = {key: tool[key] for key in _TOLD if tool.get(key) is not None}
    try:
        exact = canonical_json(told)
    except (ValueError, RecursionError):
        return None
    if len(exact) > 4 * LARGEST:
        # Too big to keep; its schema would be refused anyway, and any change must still be seen.
        told = {"name": name, "description": "It says too much about itself to be used."}
    return Offered(name, told, hashlib.sha256(exact).hexdigest())


def by_name(tools: Iterable[Offered]) -> dict[str, Offered]:
    """Return tools by name; one that is named twice is two things at once, and therefore none."""
    found: dict[str, Offered] = {}
    twice: set[str] = set()
    for one in tools:
        if one.name in found:
            twice.add(one.name)
        found[one.name] = one
    return {name: one for name, one in found.items() if name not in twice}


def why_unusable(tool: Offered) -> str | None:
    """Return why a tool cannot be used whatever is said about it, or None."""
    try:
        _ = tool.schema
    except Broken as fault:
        return str(fault)
    return None
