"""Lengths of time as people write them: `90s`, `30m`, `2h`, `7d`, `2w`, or a plain number of seconds."""

import re

_FORM = re.compile(r"([0-9]{1,9})\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> int:
    """Return the seconds that a text means; raise ValueError with what to write instead."""
    found = _FORM.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"`{text}` is no length of time; write `90s`, `30m`, `2h`, `7d` or `2w`")
    return int(found[1]) * _SECONDS[found[2]]


def show_duration(seconds: float) -> str:
    """Return a length of time in its biggest whole unit."""
    whole = int(seconds)
    for unit in ("w", "d", "h", "m"):
        if whole and whole % _SECONDS[unit] == 0:
            return f"{whole // _SECONDS[unit]}{unit}"
    return f"{whole}s"
