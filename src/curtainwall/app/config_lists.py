"""The lists of `config.toml` as rules use them; an entry that cannot be one is told with the file and the line."""

from pathlib import Path

from curtainwall.app.config import Config
from curtainwall.app.config_lines import line_of
from curtainwall.model import Broken
from curtainwall.policy import Lists


def lists_of(path: Path, config: Config) -> Lists:
    """Return the lists of a configuration that was read from a file; raise `Broken`, which names it."""
    told = config.lists
    try:
        return Lists(told.hosts, told.remotes, told.push_remotes, told.teams)
    except Broken as fault:
        key = str(fault).split("`")[1]
        raise Broken(f"`{path}`: {_line(path, key)}{fault}") from None


def _line(path: Path, key: str) -> str:
    try:
        found = line_of(path.read_text(encoding="utf-8"), key.split("."))
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if found is None else f"line {found}: "
