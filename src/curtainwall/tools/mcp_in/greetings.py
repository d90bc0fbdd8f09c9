"""What a client is told before it calls anything: who we are, what we can do, and the list of tools, in each version's own shape."""

from collections.abc import Callable
from typing import Any, Final, cast

from mcp_types import (
    SERVER_INFO_META_KEY,
    DiscoverResult,
    Implementation,
    InitializeResult,
    ListToolsResult,
    Result,
    ServerCapabilities,
    Tool,
    ToolAnnotations,
    ToolsCapability,
)
from mcp_types.jsonrpc import INVALID_PARAMS
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue
from pydantic_core import to_json

from curtainwall import __version__
from curtainwall.model import ToolEffect, ToolSpec
from curtainwall.tools.mcp_in.frames import Fault, Params
from curtainwall.tools.mcp_in.names import Names

Specs = Callable[[], tuple[ToolSpec, ...]]
"""Gives the tools that there are now."""

SERVER: Final = Implementation(name="curtainwall", version=__version__, title="Curtainwall")
INSTRUCTIONS: Final = (
    "These are the tools of a Curtainwall session. Each call is judged by rules: it runs, it is refused, or a human is asked first, which "
    "can take a while. A refusal names the rule that decided; the same call would be refused again, so change it or do something else."
)
_LONGEST_DESCRIPTION = 4_000
_STAMP: Final[dict[str, JsonValue]] = {SERVER_INFO_META_KEY: cast("JsonValue", SERVER.model_dump(by_alias=True, exclude_none=True))}


class Greetings:
    """The list of tools and the words before it, encoded once per version."""

    def __init__(self, specs: Specs, joint: str = "__") -> None:
        self._source = specs
        self._joint = joint
        self._specs: tuple[ToolSpec, ...] | None = None
        self._names = Names(())
        self._lists: dict[str, bytes] = {}

    def tools(self, version: str, params: Params) -> bytes:
        """Return the list of tools; it is one page, so no cursor leads anywhere."""
        if params.get("cursor") is not None:
            raise Fault(INVALID_PARAMS, "unknown cursor; the list of tools has one page")
        self._refresh()
        if version not in self._lists:
            tools = [_tool(spec, self._names.wire(spec.full_name)) for spec in self._specs or ()]
            self._lists[version] = _encoded("tools/list", version, ListToolsResult(tools=tools))
        return self._lists[version]

    def full_name(self, name: str) -> str:
        """Return the full name of the tool that a client means."""
        if not self._names.knows(name):
            self._refresh()
        return self._names.full(name)

    def initialize(self, version: str) -> bytes:
        """Return our half of the handshake."""
        told = InitializeResult(protocol_version=version, capabilities=_capabilities(), server_info=SERVER, instructions=INSTRUCTIONS)
        return _encoded("initialize", version, told)

    def discover(self, version: str) -> bytes:
        """Return what stands in place of the handshake in newer versions."""
        told = DiscoverResult(supported_versions=list(MODERN_PROTOCOL_VERSIONS), capabilities=_capabilities(), instructions=INSTRUCTIONS)
        return _encoded("server/discover", version, told)

    def _refresh(self) -> None:
        specs = self._source()
        if specs != self._specs:
            self._specs, self._lists = specs, {}
            self._names = Names((spec.full_name for spec in specs), self._joint)


def stamped(version: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with what every result of newer versions carries."""
    return {**result, "resultType": "complete", "_meta": _STAMP} if version in MODERN_PROTOCOL_VERSIONS else result


def _encoded(method: str, version: str, result: Result) -> bytes:
    told = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return to_json(stamped(version, serialize_server_result(method, version, told)))


def _capabilities() -> ServerCapabilities:
    return ServerCapabilities(tools=ToolsCapability(list_changed=False))


def _tool(spec: ToolSpec, name: str) -> Tool:
    return Tool(
        name=name,
        title=spec.full_name,
        description=spec.description[:_LONGEST_DESCRIPTION],
        input_schema=dict(spec.schema_),
        annotations=ToolAnnotations(
            title=spec.full_name,
            read_only_hint=spec.effect is ToolEffect.INSPECT,
            destructive_hint=spec.effect is not ToolEffect.INSPECT,
            open_world_hint=spec.effect is ToolEffect.SEND,
        ),
    )
