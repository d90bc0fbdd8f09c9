"""What calls did to files, as far as their subjects tell."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from curtainwall.model import Role, Subject, ToolEffect, in_order

# What git and commands change is their own affair and not a list of files.
_NOT_FILES = frozenset({"git", "shell", "session", "fetch"})
_VERBS = {"write_file": "wrote", "edit_file": "edited", "delete_file": "deleted", "create_directory": "made"}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was done to one file."""

    verb: str
    path: str
    to: str = ""

    def words(self, workspace: str) -> str:
        """Return the change in words, with paths as seen from the workspace."""
        where = _seen_from(workspace, self.path)
        return in_order(f"{self.verb} {where} to {_seen_from(workspace, self.to)}" if self.to else f"{self.verb} {where}")


def changes_of(subject: Subject) -> tuple[Change, ...]:
    """Return what a call that went well did to files."""
    server, _, name = subject.tool.partition(".")
    if subject.effect is not ToolEffect.MODIFY or server in _NOT_FILES:
        return ()
    written = [it.value for it in subject.resources if it.role is Role.WRITE_PATH]
    deleted = [it.value for it in subject.resources if it.role is Role.DELETE_PATH]
    if server == "filesystem" and name == "move_file" and len(written) == len(deleted) == 1:
        return (Change("moved", deleted[0], written[0]),)
    verb = _VERBS.get(name, "changed") if server == "filesystem" else "changed"
    return (*(Change(verb, path) for path in written), *(Change("deleted", path) for path in deleted))


def _seen_from(workspace: str, path: str) -> str:
    inside = PurePosixPath(path)
    return str(inside.relative_to(workspace)) if inside.is_relative_to(workspace) else path
