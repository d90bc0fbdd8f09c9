"""Whether a git config says nothing new but which branch follows which: git and editors note that by themselves while others work."""

import re
from typing import Final

MOST: Final = 65_536
"""How many bytes of a config are looked at."""

_BRANCH: Final = re.compile(r'\[branch "[\w./@#+-]+"\]', re.ASCII)
_REMOTE: Final = re.compile(r'^\[remote "([\w.-]+)"\]$', re.ASCII | re.MULTILINE)
_FOLLOWS: Final = re.compile(
    r"\t(?:remote = (?P<remote>[\w.-]+)|merge = refs/heads/[\w./@#+-]+|rebase = (?:true|false)|[a-z-]*merge-base = [\w./@#+-]+)", re.ASCII
)


def only_tracks(before: str, now: str) -> bool:
    """Tell whether two configs say the same, but for which branch follows which."""
    # Any other word could be the path of a directory, or a URL, and a push would go there.
    remotes = frozenset((".", *_REMOTE.findall(before)))
    rest = _rest(before, remotes)
    return rest is not None and rest == _rest(now, remotes)


def _rest(text: str, remotes: frozenset[str]) -> list[tuple[str, str]] | None:
    """Return every other line, each with the head that it stands under; None where a line goes on with the next."""
    found: list[tuple[str, str]] = []
    head = ""
    for line in text.split("\n"):
        if line.endswith("\\"):
            return None
        if line.startswith("["):
            head = line
        if line and not (_BRANCH.fullmatch(head) and (line == head or _follows(line, remotes))):
            found.append((head, line))
    return found


def _follows(line: str, remotes: frozenset[str]) -> bool:
    told = _FOLLOWS.fullmatch(line)
    return told is not None and told["remote"] in (None, *remotes)
