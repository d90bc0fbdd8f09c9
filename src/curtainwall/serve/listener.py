"""A service that serves one application on a port of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_AT_ONCE: Final = 256


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a service can be reached, which key of the configuration says so, and whom to tell."""

    address: tuple[str, int]
    path: str
    setting: str
    say: Callable[[str], None]


class HttpService:
    """Serves an application until it is stopped, and tells whether anybody can reach it."""

    def __init__(
        self, name: str, pages: "Callable[[], ASGIApp]", spot: ListenAddress, close: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        self.name = name
        self._pages = pages
        self._spot = spot
        self._close = close
        self._is_listening = False

    async def run(self) -> None:
        """Listen until cancelled."""
        # Start-up time: a house that listens nowhere needs no web server.
        from curtainwall.serve.http import listen, serve_pages

        ear = listen(*self._spot.address, self._spot.setting)
        self._is_listening = True
        host, port = self._spot.address
        self._spot.say(f"{self.name}: at http://{f'[{host}]' if ':' in host else host}:{port}{self._spot.path}")
        try:
            await serve_pages(self._pages(), ear, at_once=_AT_ONCE)
        finally:
            self._is_listening = False
            await self._close()

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return "" if self._is_listening else "nothing listens"
