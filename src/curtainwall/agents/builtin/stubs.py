"""The session's tools as Python: typed stubs for the model and the checker, the lines that make them callable, and calls as expressions."""

import keyword
import re
from collections.abc import Iterable, Mapping
from keyword import iskeyword

from pydantic import JsonValue

from curtainwall.model import ToolSpec, record

CALL = "_call_"
"""A placeholder for the name of the only external function, which every tool calls."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict[str, Any]", "null": "None"}
_LONGEST = 1_000
_DEEPEST = 8


@record
class ToolStubs:
    """The tools that a program can call: stubs for the model and the checker, and the code that makes each tool callable."""

    stubs: str
    methods: Mapping[str, Mapping[str, tuple[str, ...]]]

    def prelude_for(self, code: str, way_out: str) -> str:
        """Return the code that runs before a program: only the tools that it names, since all of it is part of every snapshot.

        `way_out` is the only external function, under a name that the program cannot know; it gets its arguments only as text.
        """
        lines: list[str] = []
        for server, methods in self.methods.items():
            if server in code:
                named = [line for name, method in methods.items() if name in code for line in method]
                lines += (f"class _{server}:", *(named or ("    pass",)), f"{server} = _{server}()")
        return "\n".join(lines).replace(CALL, way_out)


@record
class _Parameter:
    name: str
    type: str
    required: bool
    about: str


def stubs_for(tools: Iterable[ToolSpec]) -> ToolStubs:
    """Return the tools as classes of asynchronous methods, one object for each server. What has no Python name is left out."""
    servers: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        if _is_name(tool.server) and _is_name(tool.name):
            servers.setdefault(tool.server, []).append(tool)
    stubs = ["import asyncio", "from typing import Any"]
    methods: dict[str, dict[str, tuple[str, ...]]] = {}
    for server, its_tools in sorted(servers.items()):
        stubs.append(f"\nclass _{server}:")
        methods[server] = {}
        for tool in its_tools:
            parameters = _parameters(tool.schema_)
            stubs += _stub(tool, parameters)
            methods[server][tool.name] = _method(tool, parameters)
        stubs.append(f"\n{server}: _{server}")
    return ToolStubs("\n".join(stubs) + "\n", methods)


def _stub(tool: ToolSpec, parameters: list[_Parameter]) -> list[str]:
    signature = "".join(f", {each.name}: {each.type}{'' if each.required else ' | None = None'}" for each in parameters)
    about = [_inert(tool.description), *(f"{each.name}: {each.about}" for each in parameters if each.about)]
    # The text comes from a server: whatever it contains, it must stay text.
    return [f"    async def {tool.name}(self{signature}) -> Any:", f"        {_quoted(chr(10).join(about))}", "        ..."]


def _method(tool: ToolSpec, parameters: list[_Parameter]) -> tuple[str, ...]:
    signature = "".join(f", {each.name}{'' if each.required else '=None'}" for each in parameters)
    arguments = ", ".join(f"{each.name!r}: {each.name}" for each in parameters)
    return (
        f"    async def {tool.name}(self{signature}):",
        f"        return await {CALL}({tool.full_name!r}, _json.dumps({{{arguments}}}))",
    )


def _parameters(schema: Mapping[str, JsonValue]) -> list[_Parameter]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    wanted = frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset[str]()
    parameters = [
        _Parameter(name, _type(shape), name in wanted, _inert(_words(shape)))
        for name, shape in properties.items()
        if _is_name(name) and name != "self"
    ]
    return sorted(parameters, key=lambda parameter: not parameter.required)


def _type(shape: JsonValue, depth: int = 0) -> str:
    if not isinstance(shape, dict) or depth > _DEEPEST:
        return "Any"
    kind = shape.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_TYPES.get(str(each), "Any") for each in kind)) or "Any"
    if kind == "array":
        return f"list[{_type(shape.get('items'), depth + 1)}]"
    return _TYPES.get(str(kind), "Any")


def _words(shape: JsonValue) -> str:
    words = shape.get("description") if isinstance(shape, dict) else None
    return words if isinstance(words, str) else ""


def _inert(words: str) -> str:
    """Return a server's text as one line that every encoding and parser accepts."""
    line = " ".join(words.split())[:_LONGEST]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def _quoted(words: str) -> str:
    escaped = words.replace("\\", "\\\\").replace('"""', "'''").replace('"', "'")
    return '"""' + escaped.replace("\n", "\n        ") + '"""'


def _is_name(word: str) -> bool:
    return bool(_NAME.fullmatch(word)) and not keyword.iskeyword(word)


_UNFIT = re.compile(r"\W")
_TOOL = re.compile(r"[\w-]+(?:\.[\w-]+)+")


def is_tool_name(name: str) -> bool:
    """Tell whether a name has the form `server.tool`."""
    return _TOOL.fullmatch(name) is not None


def as_identifier(name: str) -> str:
    """Return a name as a Python identifier: `my-server` is `my_server`."""
    plain = _UNFIT.sub("_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else f"{plain}_" if iskeyword(plain) else plain


def call_expression(tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return the expression that calls a tool with these arguments, without the `await`."""
    function = ".".join(map(as_identifier, tool.split(".")))
    named = [f"{name}={value!r}" for name, value in arguments.items() if _is_plain(name)]
    others = {name: value for name, value in arguments.items() if not _is_plain(name)}
    return f"{function}({', '.join([*named, *([f'**{others!r}'] if others else [])])})"


def _is_plain(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)
