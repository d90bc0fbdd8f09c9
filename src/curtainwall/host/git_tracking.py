"""Whether a git config says nothing new but which branch follows which: git and editors note that by themselves while others work."""

import re
from typing import Final

MOST: Final = 65_536
"""How many bytes of a config are looked at."""

_BRANCH: Final = re.compile(r'\[branch "[\w./@#+-]+"\]', re.ASCII)
# No remote by its URL: a push would go there.
_FOLLOWS: Final = re.compile(
    r"\t(?:remote = [\w.-]+|merge = refs/heads/[\w./@#+-]+|rebase = (?:true|false)|[a-z-]*merge-base = [\w./@#+-]+)", re.ASCII
)


def only_tracks(before: str, now: str) -> bool:
    """Tell whether two configs say the same, but for which branch follows which."""
    rest = _rest(before)
    return rest is not None and rest == _rest(now)


def _rest(text: str) -> list[tuple[str, str]] | None:
    """Return every other line, each with the head that it stands under; None where a line goes on with the next."""
    found: list[tuple[str, str]] = []
    head = ""
    for line in text.split("\n"):
        if line.endswith("\\"):
            return None
        if line.startswith("["):
            head = line
        if line and not (_BRANCH.fullmatch(head) and (line == head or _FOLLOWS.fullmatch(line))):
            found.append((head, line))
    return found
