"""The names of the Matrix library that we use, in one place: it has types, but does not say so."""

from aiohttp import ClientError
from nio import (  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
    AsyncClient,
    AsyncClientConfig,
    LoginResponse,
    RoomSendResponse,
    SyncResponse,
)
from nio.events import Event, MegolmEvent, ToDeviceEvent  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
from nio.exceptions import (  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
    LocalProtocolError,
    OlmUnverifiedDeviceError,
    SendRetryError,
)

__all__ = [
    "AsyncClient",
    "AsyncClientConfig",
    "ClientError",
    "Event",
    "LocalProtocolError",
    "LoginResponse",
    "MegolmEvent",
    "OlmUnverifiedDeviceError",
    "RoomSendResponse",
    "SendRetryError",
    "SyncResponse",
    "ToDeviceEvent",
]
