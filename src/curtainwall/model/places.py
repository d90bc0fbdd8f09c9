"""Canonical places, as whoever reads them and whoever judges them have to agree on: paths by whole components, and the known forges."""

from typing import Final

FORGES: Final = frozenset({"github.com", "gitlab.com", "bitbucket.org"})
"""Hosts that are known to take owner and repository in any case, and `git@host:a/b` for the same as `ssh://git@host/a/b`.

Elsewhere case counts: two repositories must never look like one.
"""


def is_beneath(path: str, root: str) -> bool:
    """Tell whether a canonical path is a canonical directory or lies in it, by whole components."""
    return path == root or path.startswith(root if root == "/" else f"{root}/")


def ancestors(path: str) -> tuple[str, ...]:
    """Return every directory above a canonical path, the nearest first, without the path itself."""
    found: list[str] = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return tuple(found)
