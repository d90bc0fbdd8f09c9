"""Which paths run later by themselves, judged by their names: hooks, editor and agent settings, CI and start-up files."""

import re
from collections.abc import Collection
from typing import Final

from curtainwall.model.later_names import LATER_KINDS

_NAMES: Final = frozenset(name for kind in LATER_KINDS for name in kind.names if not {"/", "*"} & set(name))
_PAIRS: Final = frozenset(tuple(name.split("/")) for kind in LATER_KINDS for name in kind.names if "/" in name)
_HOLDERS: Final = frozenset(above for above, _ in _PAIRS)
_PATTERNS: Final = re.compile(
    "|".join(re.escape(name).replace(r"\*", ".*") for kind in LATER_KINDS for name in kind.names if "*" in name), re.DOTALL
)
# What was set aside keeps its name with this at the end, and must not be taken for what it was.
_SET_ASIDE: Final = re.compile(r"\.held\d*\Z")


def runs_later(path: str, workspace: str) -> bool:
    """Tell whether changing this path can make something run later by itself; names are compared without case.

    Inside the workspace only the part below it counts: a project that happens to lie in a directory `.claude` is still a project. A
    directory of which only a part runs counts itself, because a move could bring that part in.
    """
    below = path[len(workspace) :] if path == workspace or path.startswith(f"{workspace.rstrip('/')}/") else path
    above = ""
    for name in below.split("/"):
        if not name:
            continue
        if is_later_name(name, above):
            return True
        above = name
    return holds_later_names(above)


def is_later_name(name: str, above: str = "") -> bool:
    """Tell whether an entry of this name runs later by itself in a directory called `above`."""
    name = name.casefold()
    if name in _NAMES or (above.casefold(), name) in _PAIRS:
        return True
    return _PATTERNS.fullmatch(name) is not None and _SET_ASIDE.search(name) is None


def holds_later_names(name: str) -> bool:
    """Tell whether something in a directory of this name would run later, though the directory as such does not."""
    return name.casefold() in _HOLDERS


def is_git_directory(names: Collection[str]) -> bool:
    """Tell whether git takes a directory with these entries for a repository, and runs what its config says."""
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)
