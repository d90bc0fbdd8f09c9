"""What a revision names besides a commit: `HEAD:.env` is a file, under whatever commit it is looked up.

Git alone knows for certain where in such a text the path begins. So every reading is returned that git might have; one too many is
only judged as well.
"""

import os
import re
from posixpath import normpath

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import ancestors, is_beneath

_RANGE = re.compile(r"\.{2,}")


def paths_in_revision(text: str, directory: str, workspace: str) -> tuple[str, ...]:
    """Return the paths that a revision may name, for git started in a canonical directory; raise `Unclear` where one leaves the repository.

    They are taken as git takes them, by their names alone: what a link in the working tree leads to says nothing about a commit.
    """
    if ":" not in text:
        return ()
    found: dict[str, None] = {}
    tops = _tops(directory, workspace)
    for piece in dict.fromkeys((text, *_RANGE.split(text))):
        for colon in (at for at, letter in enumerate(piece) if letter == ":"):
            named_path = piece[colon + 1 :]
            for start in (directory,) if named_path.startswith(("./", "../")) else tops:
                path = normpath(f"{start}/{named_path}")
                if not any(is_beneath(path, top) for top in tops):
                    raise Unclear(f"the path in {quoted(text)} leaves the repository")
                found[path] = None
    return tuple(found)


def _tops(directory: str, workspace: str) -> tuple[str, ...]:
    """Return where the repository may begin: git passes over a `.git` that it does not like, and goes on above it."""
    limit = workspace if is_beneath(directory, workspace) else directory
    above = [place for place in reversed(ancestors(directory)) if is_beneath(place, limit) and os.path.lexists(f"{place}/.git")]
    return (*above, directory)
