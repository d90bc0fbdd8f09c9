"""Program that reads one large message in a separate process, leaves out what nobody could use, and prints the rest.

It imports the standard library only, so that it starts fast and runs as a file.
"""

import json
import resource
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import JsonValue

MOST_VALUES: Final = 20_000
"""How many values of structured content are passed on; masks and the log look at each of them."""

MOST_IN_ALL: Final = 200_000
"""How many values a message may have in all after that reduction."""

TOO_MANY: Final = 3
"""The exit code for a message with more."""

_MOST_PARTS: Final = 1_000
_MEMORY: Final = 2 * 1024**3
_CPU_SECONDS: Final = 30


def reduced(frame: "JsonValue") -> "JsonValue":
    """Return a message with oversized structured content and excess parts replaced by a note."""
    original = frame.get("result") if isinstance(frame, dict) else None
    if not isinstance(frame, dict) or not isinstance(original, dict):
        return frame
    result = dict(original)
    if (many := count(result.get("structuredContent"))) > MOST_VALUES:
        result["structuredContent"] = f"[… {many} values, left out: at most {MOST_VALUES} are passed on …]"
    content = result.get("content")
    if isinstance(content, list) and len(content) > _MOST_PARTS:
        shown = content[: _MOST_PARTS - 1]
        result["content"] = [*shown, {"type": "text", "text": f"[… {len(content) - len(shown)} more parts left out …]"}]
    return {**frame, "result": result}


def count(value: "JsonValue") -> int:
    """Count the values in a value, itself included."""
    many = 0
    pending: list[JsonValue] = [value]
    while pending:
        item = pending.pop()
        many += 1
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return many


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def main() -> int:
    """Read a message and print its reduced form, or `null` if it is not JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    try:
        frame = reduced(json.loads(sys.stdin.buffer.read(), parse_constant=_refuse))
        if count(frame) > MOST_IN_ALL:
            return TOO_MANY
        text = json.dumps(frame, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "null"
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
