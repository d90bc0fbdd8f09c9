"""Protected paths: what no agent reads or writes, whatever the rules say."""

from dataclasses import dataclass, field

from curtainwall.model import Broken, Role, Workspace, ancestors, is_beneath
from curtainwall.policy.canonical import fault_of

_CHANGES = (Role.WRITE_PATH, Role.DELETE_PATH)


@dataclass(frozen=True, slots=True)
class Protection:
    """Canonical absolute paths: neither read nor written (`never`), never written (`readonly`), and places inside them that are free.

    `programs` are read by everybody, because others may need them too, never written, and in no workspace.
    """

    never: tuple[str, ...] = ()
    readonly: tuple[str, ...] = ()
    except_: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    _never: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    _readonly: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        for path in (*self.never, *self.readonly, *self.except_, *self.programs):
            fault = fault_of("Path", path)
            if fault is not None:
                raise Broken(f"the protected path `{path}` is not canonical: {fault}")
        object.__setattr__(self, "_never", frozenset(self.never))
        object.__setattr__(self, "_readonly", frozenset((*self.readonly, *self.programs)))

    def stops(self, role: Role, path: str, workspace: Workspace) -> bool:
        """Tell whether this role on a canonical path is out of the question; deleting what contains a protected path is, too."""
        for place in (path, *ancestors(path)):
            closed = place in self._never or (role in _CHANGES and place in self._readonly)
            if closed and not self._is_free(path, place, workspace):
                return True
        return role is Role.DELETE_PATH and any(is_beneath(inner, path) for inner in (*self.never, *self._readonly))

    def conflict(self, workspace: Workspace) -> str | None:
        """Return the protected path that a workspace contains or lies in, or None; a session's own may lie in our home."""
        for place in (*self.never, *self.programs):
            lies_in = is_beneath(workspace.path, place) and not (workspace.own and workspace.path != place)
            if lies_in or is_beneath(place, workspace.path):
                return place
        return None

    def _is_free(self, path: str, place: str, workspace: Workspace) -> bool:
        # INVARIANT: an exception opens what lies around it, never what is protected inside it.
        free = (*self.except_, workspace.path) if workspace.own else self.except_
        return any(opening != place and is_beneath(opening, place) and is_beneath(path, opening) for opening in free)
