"""A service that serves one application on its own port."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from curtainwall.model import record

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_AT_ONCE: Final = 256


async def _nothing() -> None:
    pass


@record
class ListenAddress:
    """Where a service can be reached, the configuration key for it, and the function that announces it."""

    address: tuple[str, int]
    path: str
    setting: str
    say: Callable[[str], None]


class HttpService:
    """Serves an application until it is stopped, and reports whether it is reachable."""

    def __init__(
        self, name: str, pages: "Callable[[], ASGIApp]", address: ListenAddress, close: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        self.name = name
        self._pages = pages
        self._address = address
        self._close = close
        self._is_listening = False

    async def run(self) -> None:
        """Listen until cancelled."""
        # Start-up time: without listeners no web server is needed.
        from curtainwall.serve.http import listen, serve_pages

        server_socket = listen(*self._address.address, self._address.setting)
        self._is_listening = True
        host, port = self._address.address
        self._address.say(f"{self.name}: at http://{f'[{host}]' if ':' in host else host}:{port}{self._address.path}")
        try:
            await serve_pages(self._pages(), server_socket, at_once=_AT_ONCE)
        finally:
            self._is_listening = False
            await self._close()

    def health(self) -> str:
        """Return what is wrong, or ""."""
        return "" if self._is_listening else "nothing listens"
