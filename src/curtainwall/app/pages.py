"""An application for other programs at a port of its own, as a service of the house."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from starlette.applications import Starlette

_AT_ONCE = 256


class Endpoint(Protocol):
    """Whatever answers there."""

    def app(self) -> "Starlette":
        """Return the application."""
        ...


async def _nothing() -> None:
    pass


class PagesService:
    """Listens until cancelled."""

    def __init__(self, name: str, endpoint: Endpoint, address: tuple[str, int], close: Callable[[], Awaitable[None]] = _nothing) -> None:
        self.name = name
        self._endpoint = endpoint
        self._address = address
        self._close = close
        self._is_listening = False

    async def run(self) -> None:
        """Answer until cancelled, then let go of everybody."""
        # Start-up time: most houses need no web server for this.
        from curtainwall.app.http_server import listen, serve_pages

        ear = listen(*self._address)
        self._is_listening = True
        try:
            await serve_pages(self._endpoint.app(), ear, at_once=_AT_ONCE)
        finally:
            self._is_listening = False
            await self._close()

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return "" if self._is_listening else "nothing listens"
