"""The names of the Matrix library that we use, in one place, because it has types but does not declare them."""

from curtainwall.host.extras import extra

with extra("matrix"):
    from aiohttp import ClientError
    from nio import (  # pyright: ignore[reportMissingTypeStubs] - its types are in its code
        AsyncClient,
        AsyncClientConfig,
        LoginResponse,
        RoomSendResponse,
        SyncResponse,
    )
    from nio.events import Event, MegolmEvent, ToDeviceEvent  # pyright: ignore[reportMissingTypeStubs] - its types are in its code
    from nio.exceptions import (  # pyright: ignore[reportMissingTypeStubs] - its types are in its code
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
