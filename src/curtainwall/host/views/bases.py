"""What the agent's work on each changed file started from, kept on disk between uses of a view."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtainwall.model import FileState

_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class BaseState:
    """What a path was when the agent changed it first: a state, nothing, or unknown because the project changed during that use."""

    state: FileState | None = None
    is_known: bool = True


UNKNOWN_BASE: Final = BaseState(is_known=False)


@dataclass(slots=True)
class Bases:
    """The bases of a view. `since` is when the use began that is under way, or that a crash ended, in nanoseconds.

    If they are complete, the project had nothing at a path that is not noted.
    """

    path: Path
    since: int | None = None
    known: dict[str, BaseState] = field(default_factory=dict[str, BaseState])
    is_complete: bool = False

    @classmethod
    def load(cls, path: Path) -> "Bases":
        """Read them from disk; there are none at first. Where a power cut has damaged them, every base is unknown."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(path)
        except ValueError:
            return cls(path, since=0)
        known = {name: _base_of(value) for name, value in stored["known"].items()}
        return cls(path, stored["since"], known)

    def save(self, *, durably: bool = True) -> None:
        """Write them to disk; unless durably, a power cut may damage them, but no kill."""
        draft = self.path.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as file:
            known = {name: _stored(base) for name, base in self.known.items()}
            json.dump({"since": self.since, "known": known}, file)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        draft.replace(self.path)

    def find(self, path: str) -> BaseState | None:
        """Return the base of a path, if it was noted; in a directory that the project did not have, there was nothing."""
        base = self.known.get(path)
        if self.is_complete:
            return base or BaseState()
        while base is None and (path := path.rpartition("/")[0]):
            above = self.known.get(path)
            if above is not None:
                return above if above.is_known and above.state is None else None
        return base

    def note(self, path: str, state: FileState | None, changed: int) -> None:
        """Note what the project has at a path after a use, unless it was noted before; `changed` is when that last changed."""
        if self.find(path) is None:
            self.known[path] = BaseState(state) if self.since is None or changed < self.since else UNKNOWN_BASE

    def drop(self, paths: Iterable[str]) -> None:
        """Forget the bases of these paths."""
        for path in paths:
            self.known.pop(path, None)


def _base_of(value: object) -> BaseState:
    if value == _UNKNOWN:
        return UNKNOWN_BASE
    return BaseState(None if value is None else FileState.model_validate(value))


def _stored(base: BaseState) -> object:
    if not base.is_known:
        return _UNKNOWN
    return None if base.state is None else base.state.model_dump(mode="json")
