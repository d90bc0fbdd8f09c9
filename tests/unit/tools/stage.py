"""A small machine on which the native tools are tried."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from curtainwall.model import Place, Prepared
from curtainwall.tools import NativeTools

Git = Callable[..., None]


@dataclass(frozen=True)
class Stage:
    """A machine with a home directory, a workspace and a place outside, and the native tools on it."""

    root: Path
    tools: NativeTools
    place: Place

    @property
    def workspace(self) -> Path:
        return self.root / "home" / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def prepare(self, tool: str, **arguments: JsonValue) -> Prepared:
        return self.tools.prepare(tool, arguments, self.place)

    def told(self, tool: str, **arguments: JsonValue) -> list[tuple[str, str]]:
        """Return the resources of a call besides the tool itself, with `W` for the workspace, `H` for home and `O` for outside."""
        first, *others = self.prepare(tool, **arguments).subject.resources
        assert (first.role.value, first.value) == ("use-tool", tool)
        return [(resource.role.value, self.short(resource.value)) for resource in others]

    def short(self, path: str) -> str:
        for letter, real in (("W", self.workspace), ("H", self.home), ("O", self.outside)):
            if path == str(real) or path.startswith(f"{real}/"):
                return letter + path[len(str(real)) :]
        return path
