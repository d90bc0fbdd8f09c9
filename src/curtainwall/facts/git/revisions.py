"""The paths that a revision names besides a commit: `HEAD:.env` is a file in that commit.

Only git knows for certain where the path begins in such a text. So every possible reading is returned; an extra one does no harm,
it is only judged as well.
"""

import os
import re
from posixpath import normpath

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import ancestors, is_beneath, on_disk

_RANGE = re.compile(r"\.{2,}")


def paths_in_revision(text: str, directory: str, workspace: str) -> tuple[str, ...]:
    """Return the paths that a revision may name, for git started in a canonical directory; raise `Unclear` if one leaves the repository.

    As in git, links are not followed: a link in the working tree says nothing about a commit.
    """
    if ":" not in text:
        return ()
    paths: dict[str, None] = {}
    tops = _tops(directory, workspace)
    for piece in dict.fromkeys((text, *_RANGE.split(text))):
        for colon in (at for at, letter in enumerate(piece) if letter == ":"):
            named_path = piece[colon + 1 :]
            for start in (directory,) if named_path.startswith(("./", "../")) else tops:
                path = normpath(f"{start}/{named_path}")
                if not any(is_beneath(path, top) for top in tops):
                    raise Unclear(f"the path in {quoted(text)} leaves the repository")
                paths[path] = None
    return tuple(paths)


def _tops(directory: str, workspace: str) -> tuple[str, ...]:
    """Return the possible top directories of the repository: git skips an invalid `.git` and continues above it."""
    limit = workspace if is_beneath(directory, workspace) else directory
    above = [place for place in reversed(ancestors(directory)) if is_beneath(place, limit) and os.path.lexists(on_disk(f"{place}/.git"))]
    return (*above, directory)
