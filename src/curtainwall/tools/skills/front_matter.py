"""The head of a SKILL.md: `name` and `description` between two lines of dashes, of all that YAML could say."""

import json
import re
from typing import Final

_KEY: Final = re.compile(r"([A-Za-z][\w-]{0,63}):(?:\s+(.*))?")
_LINES: Final = 200


class NoHead(ValueError):
    """A SKILL.md without a head that can be read."""


def split_head(text: str) -> tuple[dict[str, str], str]:
    """Return the texts of the head by their keys, and the body; what is no text (a list, a map) is passed over."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise NoHead("it does not begin with a line `---`")
    end = next((number for number, line in enumerate(lines[1 : _LINES + 1], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise NoHead("its head has no end, a second line `---`")
    return _texts(lines[1:end]), "\n".join(lines[end + 1 :]).lstrip("\n")


def _texts(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    key = ""
    for line in lines:
        begins = _KEY.fullmatch(line.rstrip())
        if begins:
            key, value = begins[1], (begins[2] or "").strip()
            # A block of lines is told by its sign; which of the signs it is only matters for line ends, and those become spaces.
            found.setdefault(key, "" if value[:1] in ("|", ">") else value)
        elif key and line[:1] in (" ", "\t"):
            found[key] = f"{found[key]} {line.strip()}".strip()
        elif line.strip() and not line.lstrip().startswith("#"):
            key = ""
    return {name: _unquoted(value) for name, value in found.items()}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        try:
            told: object = json.loads(value)
        except ValueError:
            return value[1:-1]
        return told if isinstance(told, str) else value[1:-1]
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value
