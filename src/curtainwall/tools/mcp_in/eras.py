"""Which MCP a connection speaks: the handshake protocol, or the one without, where every request carries an envelope."""

from collections.abc import Mapping
from typing import Final, cast

from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY, UnsupportedProtocolVersionErrorData
from mcp_types.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.methods import CLIENT_REQUESTS, validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from curtainwall.model import misfit
from curtainwall.tools.mcp_in.frames import Fault, Params, Request

SERVED: Final = frozenset({"initialize", "logging/setLevel", "ping", "server/discover", "tools/call", "tools/list"})
_BEFORE_HANDSHAKE: Final = frozenset({"initialize", "ping"})


class Era:
    """The protocol of one connection. The first request that fits decides; a later claim to the other era is refused."""

    def __init__(self) -> None:
        self._version: str | None = None

    @property
    def is_modern(self) -> bool:
        """Tell whether requests carry an envelope here."""
        return self._version in MODERN_PROTOCOL_VERSIONS

    @property
    def version(self) -> str:
        """Return the version that was agreed upon, or the newest of the handshake where none was yet."""
        return self._version or LATEST_HANDSHAKE_VERSION

    def admit(self, request: Request) -> str:
        """Return the version that a request is made in, checked against what that version says; raise `Fault`."""
        version = self._version_of(request)
        if request.method not in SERVED or (request.method, version) not in CLIENT_REQUESTS:
            raise Fault(METHOD_NOT_FOUND, "method not found")
        if self._version is None and version == LATEST_HANDSHAKE_VERSION and request.method not in _BEFORE_HANDSHAKE:
            raise Fault(INVALID_REQUEST, "send `initialize` first, or `server/discover` for the protocol without handshake")
        try:
            validate_client_request(request.method, version, request.params)
        except ValidationError as fault:
            raise Fault(INVALID_PARAMS, f"invalid params: {_first(fault)}") from None
        return version

    def agree(self, asked: JsonValue) -> str:
        """Settle the handshake: the version that the client asked for where we speak it, else our newest."""
        self._version = asked if isinstance(asked, str) and asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        return self._version

    def _version_of(self, request: Request) -> str:
        if request.method == "initialize":
            if self.is_modern:
                raise Fault(
                    UNSUPPORTED_PROTOCOL_VERSION,
                    f"this connection speaks {LATEST_MODERN_VERSION}, which has no `initialize`",
                    data=_supported(request.params.get("protocolVersion")),
                )
            return LATEST_HANDSHAKE_VERSION
        has_envelope = PROTOCOL_VERSION_META_KEY in _meta(request.params)
        if self._version in HANDSHAKE_PROTOCOL_VERSIONS:
            if has_envelope:
                raise Fault(INVALID_REQUEST, "this connection began with `initialize`; requests with an envelope need one of their own")
            return self.version
        if has_envelope or self.is_modern or request.method == "server/discover":
            version = envelope_version(request.params)
            self._version = version
            return version
        return LATEST_HANDSHAKE_VERSION


def envelope_version(params: Params) -> str:
    """Return the version in a request's envelope; raise `Fault` for one that is not whole, or for a version that we do not speak."""
    meta = _meta(params)
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        raise Fault(INVALID_PARAMS, f"`params._meta` lacks {' and '.join(f'`{key}`' for key in missing)}")
    version = meta[PROTOCOL_VERSION_META_KEY]
    if not isinstance(version, str):
        raise Fault(INVALID_PARAMS, f"`{PROTOCOL_VERSION_META_KEY}` must be a string")
    if version not in MODERN_PROTOCOL_VERSIONS:
        # The era is still open: a client that finds no version here may go on with `initialize`.
        raise Fault(UNSUPPORTED_PROTOCOL_VERSION, "unsupported protocol version", data=_supported(version))
    return version


def _meta(params: Params) -> Mapping[str, JsonValue]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _supported(requested: JsonValue) -> JsonValue:
    asked = requested[:64] if isinstance(requested, str) else ""
    data = UnsupportedProtocolVersionErrorData(supported=list(MODERN_PROTOCOL_VERSIONS), requested=asked)
    return cast("JsonValue", data.model_dump(mode="json"))


def _first(fault: ValidationError) -> str:
    """Return the first thing that is wrong, without repeating what was sent."""
    place, words = misfit(fault)
    return f"`{'.'.join(str(part)[:64] for part in place[:8])}` {words[:160]}"
