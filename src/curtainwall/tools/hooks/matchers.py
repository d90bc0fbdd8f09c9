"""Which hooks an event is for: matchers as Claude Code writes them, and the names by which a tool may be meant."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_EVERYTHING: Final = frozenset({"", "*"})
# A text of these alone is a list of names; the dot is ours, as in `filesystem.write_file`.
_NAMES = re.compile(r"[A-Za-z0-9_.\- ]+(?:[|,][A-Za-z0-9_.\- ]+)*")
_LONGEST: Final = 256

_CLAUDE: Final[Mapping[str, tuple[str, ...]]] = {
    "shell.run": ("Bash",),
    "filesystem.read_file": ("Read",),
    "filesystem.read_multiple_files": ("Read",),
    "filesystem.write_file": ("Write",),
    "filesystem.edit_file": ("Edit", "MultiEdit"),
    "filesystem.search_files": ("Glob", "Grep"),
    "filesystem.list_directory": ("LS",),
    "filesystem.directory_tree": ("LS",),
    "fetch.get": ("WebFetch",),
}
CLAUDE_NAMES: Final = frozenset(name for names in _CLAUDE.values() for name in names)
"""Claude Code's own tools that have a counterpart here."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A matcher, ready to be asked. `exact` are the names of a list; otherwise `pattern` has to fit a name from end to end."""

    text: str
    exact: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None

    def finds(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that is meant, or None."""
        for name in names:
            if self.exact is not None:
                is_meant = name in self.exact
            else:
                is_meant = self.pattern is None or self.pattern.fullmatch(name[:_LONGEST]) is not None
            if is_meant:
                return name
        return None


def compile_matcher(text: str) -> Matcher:
    """Return the matcher that a text writes: nothing or `*` for all, names with `|` between them, or a regular expression."""
    if text.strip() in _EVERYTHING:
        return Matcher(text)
    if _NAMES.fullmatch(text):
        return Matcher(text, exact=frozenset(part.strip() for part in re.split(r"[|,]", text)))
    try:
        return Matcher(text, pattern=re.compile(text))
    except (re.error, RecursionError, OverflowError) as fault:
        raise ValueError(f"the matcher `{text}` is no regular expression: {fault}") from None


def names_of(tool: str) -> tuple[str, ...]:
    """Return the names of a tool: ours, the one that MCP clients know, and Claude Code's where it has the like."""
    return (tool, f"mcp__{tool.replace('.', '__', 1)}", *_CLAUDE.get(tool, ()))
