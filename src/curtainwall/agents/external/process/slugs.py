"""How Claude Code names a project's directory of conversations: its own rule, found in the program and checked against what it writes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LONGEST: Final = 200
_PLAIN: Final = re.compile(r"[A-Za-z0-9]")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def slug(project: str) -> str:
    """Return the name for a real path: each UTF-16 unit that is no ASCII letter or digit is a dash; of a long one, beginning and hash."""
    units = tuple(_units(project))
    plain = "".join(chr(unit) if unit < 128 and _PLAIN.match(chr(unit)) else "-" for unit in units)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}-{_hash(units)}"


def transcript_of(config: Path, project: Path, conversation: str) -> Path:
    """Return where a conversation is kept, whether it is there or not.

    Another version may hash otherwise, so a long name is also found by its beginning.
    """
    name = slug(str(project))
    expected = config / "projects" / name / f"{conversation}.jsonl"
    if expected.exists() or len(name) <= _LONGEST:
        return expected
    found = (path for path in (config / "projects").glob(f"{name[:_LONGEST]}-*/{conversation}.jsonl"))
    return next(iter(sorted(found)), expected)


def _units(text: str) -> Iterator[int]:
    data = text.encode("utf-16-le", errors="surrogatepass")
    return (int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


def _hash(units: tuple[int, ...]) -> str:
    """Return the hash of JavaScript programs of old: times 31 plus the unit, in 32 bits with a sign; of it the amount, in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    amount = abs(value - 2**32 if value >= 2**31 else value)
    digits = ""
    while amount:
        amount, digit = divmod(amount, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
