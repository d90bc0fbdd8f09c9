"""The names of the Matrix library that we use, in one place: it has types, but does not say so."""

from nio import AsyncClient as AsyncClient  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
from nio import AsyncClientConfig as AsyncClientConfig
from nio import LoginResponse as LoginResponse
from nio import RoomSendResponse as RoomSendResponse
from nio import SyncResponse as SyncResponse
from nio.events import Event as Event  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
from nio.events import MegolmEvent as MegolmEvent
from nio.events import ToDeviceEvent as ToDeviceEvent
from nio.exceptions import LocalProtocolError as LocalProtocolError  # pyright: ignore[reportMissingTypeStubs] - its types stand in its code
from nio.exceptions import OlmUnverifiedDeviceError as OlmUnverifiedDeviceError
from nio.exceptions import SendRetryError as SendRetryError
