"""The event stream: one for each open page, with what that page shows and how many asks are open."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from curtainwall.channels.web.live.clients import Client
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.channels.web.pages.site import Site, visitor_of
from curtainwall.model import NotFound, SessionId, session_stream

_LARGEST = 2**62
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streaming:
    """Pages that listen."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/events", self._site.guarded(self._events), methods=["GET"])]

    async def _events(self, request: Request) -> Response:
        hub = await self._session_hub(request)
        visitor = visitor_of(request)
        assert visitor is not None
        hubs, cursor, topic = self._site.hubs, _cursor(request), request.query_params.get("on", "")
        hubs.see_that_there_is_room()

        def join(client: Client) -> None:
            # Nothing is waited for in here, so nothing can happen between looking back and listening.
            if hub is not None:
                hub.join(client, cursor)
            hubs.whole.join(client, topic)

        def part(client: Client) -> None:
            hubs.whole.part(client)
            if hub is not None:
                hub.part(client)

        def is_welcome() -> bool:
            return self._site.sign_ins.find(visitor.token) is not None and self._site.doors.may_enter(visitor.name)

        return StreamingResponse(hubs.stream(join, part, is_welcome), media_type="text/event-stream", headers=_HEADERS)

    async def _session_hub(self, request: Request) -> SessionHub | None:
        told = request.query_params.get("session")
        if told is None:
            return None
        if not (told.isascii() and told.isalnum() and self._site.house.line.feed.head(session_stream(SessionId(told)))):
            raise NotFound("there is no such session")
        return await self._site.hubs.session(SessionId(told))


def _cursor(request: Request) -> int:
    """Return the entry behind which a page goes on: what its browser saw last, else what the page was drawn with."""
    for told in (request.headers.get("last-event-id", ""), request.query_params.get("after", "")):
        if told.isascii() and told.isdecimal() and len(told) < len(str(_LARGEST)):
            return int(told)
    return 0
