"""All servers together: which of their tools can be called, and the runner that carries a permitted call to one."""

import asyncio
from collections.abc import Iterable, Mapping

from curtainwall.model import CallPermitted, Feed, ModeChanged, Place, Prepared, SessionClosed, SessionId, ToolResult, session_stream
from curtainwall.tools.progress import listener
from curtainwall.tools.runners import CannotDo, Runner
from curtainwall.tools.servers.launch import CannotStart
from curtainwall.tools.servers.link import ServerLost, ServerRefused, ServerSilent
from curtainwall.tools.servers.results import result_of
from curtainwall.tools.servers.reviews import Reviews
from curtainwall.tools.servers.shelf import Shelf, Standing
from curtainwall.tools.servers.spec import ServerSpec
from curtainwall.tools.servers.supervisor import Grounds, Supervisor


class Servers:
    """The servers of the user's configuration. Whoever made this must close it."""

    def __init__(self, specs: Iterable[ServerSpec], reviews: Reviews, grounds: Grounds, feed: Feed | None = None) -> None:
        self._specs: Mapping[str, ServerSpec] = {spec.name: spec for spec in specs}
        self._feed = feed
        self._followed: dict[SessionId, asyncio.Task[None]] = {}
        self.shelf = Shelf(self._specs, reviews)
        self.supervisor = Supervisor(self._specs, grounds, self.shelf.seen)

    def __contains__(self, server: str) -> bool:
        return server in self._specs

    def runners(self, server: str) -> Mapping[str, Runner]:
        """Return a runner for each tool of a server."""
        return dict.fromkeys((spec.full_name for spec in self.shelf.catalogue(server).listing()), self.run)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Call a tool with its canonical arguments; whatever the server does, an outcome comes of it."""
        del permit
        server, _, tool = prepared.subject.tool.partition(".")
        self._follow(place.session)
        try:
            async with self.supervisor.using(server, place) as link:
                # The server has just said what it offers; what a human reviewed may be something else by now.
                if self.shelf.standing(server, tool) is not Standing.READY:
                    raise CannotDo(
                        f"tool-changed: `{server}.{tool}` describes itself otherwise than when it was reviewed, so it was not called; "
                        f"a human can look at it with `curtainwall servers annotate {server}`"
                    )
                told = await link.call(tool, prepared.arguments, self._specs[server].timeout, listener())
        except CannotStart as fault:
            raise CannotDo(str(fault)) from fault
        except ServerLost as fault:
            raise CannotDo(
                f"`{server}` died during the call, which may have had its effect; the next call starts it again: {fault}"
            ) from fault
        except ServerSilent as fault:
            raise CannotDo(f"`{server}` was told to stop: {fault}; the call may have had its effect") from fault
        except ServerRefused as fault:
            raise CannotDo(f"`{server}` refused the call: {fault}") from fault
        return result_of(told)

    async def leave(self, session: SessionId) -> None:
        """Stop the servers of a session that is over."""
        await self.supervisor.leave(session)

    async def close(self) -> None:
        """Stop all servers."""
        for task in (followers := tuple(self._followed.values())):
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await self.supervisor.close()

    def _follow(self, session: SessionId) -> None:
        """See to it that a session's servers end with it, and with what its mode allows, whichever process says so."""
        if self._feed is not None and session not in self._followed:
            self._followed[session] = task = asyncio.create_task(self._until_closed(session, self._feed), name=f"servers of {session}")
            task.add_done_callback(lambda _: self._followed.pop(session, None))

    async def _until_closed(self, session: SessionId, feed: Feed) -> None:
        stream = session_stream(session)
        async for recorded in feed.follow(stream, feed.head(stream)):
            match recorded.event:
                case SessionClosed():
                    break
                case ModeChanged() as event:
                    await self.supervisor.change_mode(session, event.mode)
                case _:
                    continue
        await self.supervisor.leave(session)
