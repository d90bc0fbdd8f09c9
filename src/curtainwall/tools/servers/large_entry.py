"""The program that reads one large message in a process beside ours: it leaves out what nobody could use, and prints the rest.

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
"""How many values a message may have in all, once that is done."""

TOO_MANY: Final = 3
"""The exit code for a message with more."""

_MOST_PARTS: Final = 1_000
_MEMORY: Final = 2 * 1024**3
_CPU_SECONDS: Final = 30


def reduced(frame: "JsonValue") -> "JsonValue":
    """Return a message without structured content and parts that are too many, and with words in their place."""
    told = frame.get("result") if isinstance(frame, dict) else None
    if not isinstance(frame, dict) or not isinstance(told, dict):
        return frame
    result = dict(told)
    if (many := count(result.get("structuredContent"))) > MOST_VALUES:
        result["structuredContent"] = f"[… {many} values, left out: at most {MOST_VALUES} are passed on …]"
    content = result.get("content")
    if isinstance(content, list) and len(content) > _MOST_PARTS:
        shown = content[: _MOST_PARTS - 1]
        result["content"] = [*shown, {"type": "text", "text": f"[… {len(content) - len(shown)} more parts left out …]"}]
    return {**frame, "result": result}


def count(value: "JsonValue") -> int:
    """Return how many values there are in a value, itself included."""
    many = 0
    left: list[JsonValue] = [value]
    while left:
        one = left.pop()
        many += 1
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return many


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def main() -> int:
    """Read a message and print what is passed on of it; `null` for what is not JSON."""
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
