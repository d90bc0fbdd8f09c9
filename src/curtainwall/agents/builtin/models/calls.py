"""One call of a tool, written as Python that awaits it."""

import re
from collections.abc import Mapping
from keyword import iskeyword

from pydantic import JsonValue

_UNFIT = re.compile(r"\W")
_TOOL = re.compile(r"[\w-]+(?:\.[\w-]+)+")


def is_tool_name(name: str) -> bool:
    """Tell whether a name has the form `server.tool`."""
    return _TOOL.fullmatch(name) is not None


def as_identifier(name: str) -> str:
    """Return a name as Python can hold it: `my-server` is `my_server`."""
    plain = _UNFIT.sub("_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else f"{plain}_" if iskeyword(plain) else plain


def call_of(tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return the expression that calls a tool with these arguments; it is still to be awaited."""
    function = ".".join(map(as_identifier, tool.split(".")))
    named = [f"{name}={value!r}" for name, value in arguments.items() if _is_plain(name)]
    others = {name: value for name, value in arguments.items() if not _is_plain(name)}
    return f"{function}({', '.join([*named, *([f'**{others!r}'] if others else [])])})"


def _is_plain(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)
