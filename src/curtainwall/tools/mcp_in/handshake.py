"""The handshake before a client's first call: the protocol version, our identity, and the tools under names that MCP allows."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    PROTOCOL_VERSION_META_KEY,
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
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.methods import CLIENT_REQUESTS, serialize_server_result, validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from curtainwall import __version__
from curtainwall.model import ToolEffect, ToolSpec, explain_invalid
from curtainwall.tools.mcp_in.frames import FrameFault, McpRequest, Params

SERVED: Final = frozenset({"initialize", "logging/setLevel", "ping", "server/discover", "tools/call", "tools/list"})
_BEFORE_HANDSHAKE: Final = frozenset({"initialize", "ping"})


class ProtocolEra:
    """The protocol of one connection. The first valid request decides; a later request of the other era is refused."""

    def __init__(self) -> None:
        self._version: str | None = None

    @property
    def is_modern(self) -> bool:
        """Tell whether requests on this connection carry an envelope."""
        return self._version in MODERN_PROTOCOL_VERSIONS

    @property
    def version(self) -> str:
        """Return the agreed version, or the newest handshake version if there is none yet."""
        return self._version or LATEST_HANDSHAKE_VERSION

    def admit(self, request: McpRequest) -> str:
        """Return the version of a request after validating it against that version; raise `FrameFault`."""
        version = self._version_of(request)
        if request.method not in SERVED or (request.method, version) not in CLIENT_REQUESTS:
            raise FrameFault(METHOD_NOT_FOUND, "method not found")
        if self._version is None and version == LATEST_HANDSHAKE_VERSION and request.method not in _BEFORE_HANDSHAKE:
            raise FrameFault(INVALID_REQUEST, "send `initialize` first, or `server/discover` for the protocol without handshake")
        try:
            validate_client_request(request.method, version, request.params)
        except ValidationError as error:
            raise FrameFault(INVALID_PARAMS, f"invalid params: {_first(error)}") from None
        return version

    def agree(self, asked: JsonValue) -> str:
        """Settle the handshake: use the client's version if we support it, or else our newest."""
        self._version = asked if isinstance(asked, str) and asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        return self._version

    def _version_of(self, request: McpRequest) -> str:
        if request.method == "initialize":
            if self.is_modern:
                raise FrameFault(
                    UNSUPPORTED_PROTOCOL_VERSION,
                    f"this connection speaks {LATEST_MODERN_VERSION}, which has no `initialize`",
                    data=_supported(request.params.get("protocolVersion")),
                )
            return LATEST_HANDSHAKE_VERSION
        has_envelope = PROTOCOL_VERSION_META_KEY in _meta(request.params)
        if self._version in HANDSHAKE_PROTOCOL_VERSIONS:
            if has_envelope:
                raise FrameFault(
                    INVALID_REQUEST, "this connection began with `initialize`; requests with an envelope need one of their own"
                )
            return self.version
        if has_envelope or self.is_modern or request.method == "server/discover":
            version = envelope_version(request.params)
            self._version = version
            return version
        return LATEST_HANDSHAKE_VERSION


def envelope_version(params: Params) -> str:
    """Return the version in a request's envelope; raise `FrameFault` for an incomplete envelope or an unsupported version."""
    meta = _meta(params)
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        raise FrameFault(INVALID_PARAMS, f"`params._meta` lacks {' and '.join(f'`{key}`' for key in missing)}")
    version = meta[PROTOCOL_VERSION_META_KEY]
    if not isinstance(version, str):
        raise FrameFault(INVALID_PARAMS, f"`{PROTOCOL_VERSION_META_KEY}` must be a string")
    if version not in MODERN_PROTOCOL_VERSIONS:
        # The era is still undecided: a client without a common version may continue with `initialize`.
        raise FrameFault(UNSUPPORTED_PROTOCOL_VERSION, "unsupported protocol version", data=_supported(version))
    return version


def _meta(params: Params) -> Mapping[str, JsonValue]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _supported(requested: JsonValue) -> JsonValue:
    shortened = requested[:64] if isinstance(requested, str) else ""
    data = UnsupportedProtocolVersionErrorData(supported=list(MODERN_PROTOCOL_VERSIONS), requested=shortened)
    return cast("JsonValue", data.model_dump(mode="json"))


def _first(error: ValidationError) -> str:
    """Return the first error, without repeating the input."""
    place, message = explain_invalid(error)
    return f"`{'.'.join(str(part)[:64] for part in place[:8])}` {message[:160]}"


_LONGEST = 64
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")


class ToolNames:
    """A one-to-one mapping between full names and their spellings on the wire."""

    def __init__(self, full_names: Iterable[str], joint: str = "__") -> None:
        self._joint = joint
        self._wire: dict[str, str] = {}
        self._full: dict[str, str] = {}
        taken: set[str] = set()
        for full in full_names:
            wire = _spelled(full, joint)
            # A spelling that is taken or was altered gets the digest of the name appended.
            if wire in taken or _strictly(full, joint) != wire:
                wire = f"{wire[: _LONGEST - 9]}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"
            taken.add(wire)
            self._wire[full], self._full[wire] = wire, full

    def wire(self, full: str) -> str:
        """Return the spelling of a full name on the wire."""
        return self._wire[full]

    def full(self, name: str) -> str:
        """Return the full name for either spelling; an unknown name stays readable."""
        if name in self._wire:
            return name
        return self._full.get(name) or name.replace(self._joint, ".", 1)

    def knows(self, name: str) -> bool:
        """Tell whether a name is one of these, in either spelling."""
        return name in self._full or name in self._wire


def _strictly(full: str, joint: str) -> str:
    return full.replace(".", joint, 1)


def _spelled(full: str, joint: str) -> str:
    return _STRANGE.sub("_", _strictly(full, joint))[:_LONGEST]


Specs = Callable[[], tuple[ToolSpec, ...]]
"""Returns the current tools."""

SERVER: Final = Implementation(name="curtainwall", version=__version__, title="Curtainwall")
INSTRUCTIONS: Final = (
    "These are the tools of a Curtainwall session. Each call is judged by rules: it runs, it is refused, or a human is asked first, which "
    "can take a while. A refusal names the rule that decided; the same call would be refused again, so change it or do something else."
)
_LONGEST_DESCRIPTION = 4_000
_STAMP: Final[dict[str, JsonValue]] = {SERVER_INFO_META_KEY: cast("JsonValue", SERVER.model_dump(by_alias=True, exclude_none=True))}


class ServerDescription:
    """The list of tools and the greeting, encoded once per version."""

    def __init__(self, specs: Specs, joint: str = "__") -> None:
        self._source = specs
        self._joint = joint
        self._specs: tuple[ToolSpec, ...] | None = None
        self._names = ToolNames(())
        self._lists: dict[str, bytes] = {}

    def tools(self, version: str, params: Params) -> bytes:
        """Return the list of tools, which is a single page without cursors."""
        if params.get("cursor") is not None:
            raise FrameFault(INVALID_PARAMS, "unknown cursor; the list of tools has one page")
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
        result = InitializeResult(protocol_version=version, capabilities=_capabilities(), server_info=SERVER, instructions=INSTRUCTIONS)
        return _encoded("initialize", version, result)

    def discover(self, version: str) -> bytes:
        """Return the reply that replaces the handshake in newer versions."""
        result = DiscoverResult(supported_versions=list(MODERN_PROTOCOL_VERSIONS), capabilities=_capabilities(), instructions=INSTRUCTIONS)
        return _encoded("server/discover", version, result)

    def _refresh(self) -> None:
        specs = self._source()
        if specs != self._specs:
            self._specs, self._lists = specs, {}
            self._names = ToolNames((spec.full_name for spec in specs), self._joint)


def stamped(version: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the fields that newer versions require."""
    return {**result, "resultType": "complete", "_meta": _STAMP} if version in MODERN_PROTOCOL_VERSIONS else result


def _encoded(method: str, version: str, result: Result) -> bytes:
    payload = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return to_json(stamped(version, serialize_server_result(method, version, payload)))


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
