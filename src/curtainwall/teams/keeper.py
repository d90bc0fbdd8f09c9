"""The process that works for the teams: one at a time holds the lease, and another takes over as soon as it ends."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress

from curtainwall.agents.registry import AgentRegistry
from curtainwall.config.agents import LOCAL
from curtainwall.host.user import local_user
from curtainwall.model import (
    SYSTEM,
    TEAMS,
    Broken,
    CommandRefused,
    CurtainwallError,
    Lease,
    Millis,
    SessionId,
    SessionQuery,
    SessionRow,
    StreamId,
    freed_lease,
    session_of,
    session_stream,
)
from curtainwall.operations.fork import fork
from curtainwall.runtime import Turns
from curtainwall.teams.archive import ArchivedLog
from curtainwall.teams.conversations import Conversations, KeeperRequest
from curtainwall.teams.keeper_mail import KEEPER, NEWS
from curtainwall.teams.pairs import Pair
from curtainwall.teams.storage import free_space, put_away

_LOG = logging.getLogger(__name__)
_INBOX = "inbox:"
_MANY = 100_000
_LOOK_AGAIN = 1.0
_AT_ONCE = 100


class Keeper:
    """Runs the teams' sessions in this process while it holds the lease."""

    def __init__(self, conversations: Conversations, turns: Turns, agents: AgentRegistry) -> None:
        self._conversations = conversations
        self._turns = turns
        self._agents = agents
        self._known: set[SessionId] = set()
        self._has_lease = asyncio.Event()

    @property
    def is_keeping(self) -> bool:
        """Tell whether this process works for the teams."""
        return self._has_lease.is_set()

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        """Run the teams' sessions and serve requests until the context ends."""
        jobs = {
            "keeper": self._keep(),
            "requests": self._serve_requests(),
            "mail": self._serve_mail(),
            "warming": self._warm(),
            "rousing": self._rouse(),
            "budgets": self._settle(),
        }
        tasks = [asyncio.create_task(job, name=name) for name, job in jobs.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        """Look after the teams, and start again after any failure."""
        while True:
            try:
                await self._keep_once()
            except CurtainwallError as fault:
                _LOG.warning("the teams are looked after again in a moment: %s", fault)
            except Exception:  # noqa: BLE001 - after any fault, the teams must still be served
                _LOG.exception("the teams are looked after again in a moment")
            await asyncio.sleep(_LOOK_AGAIN)

    async def _keep_once(self) -> None:
        """Wait for the lease, then look after every session of a team, old and new."""
        lease = await self._lease()
        self._has_lease.set()
        try:
            async with self._conversations.sessions.store.log.watch(_is_inbox) as changes:
                self._take_up_all()
                async for streams in changes:
                    if not streams:
                        self._take_up_all()
                    for name in streams:
                        self._take_up(session_of(StreamId(name.removeprefix(_INBOX))))
        finally:
            self._has_lease.clear()
            lease.release()
            self._conversations.sessions.store.leases.tell(freed_lease(KEEPER))

    async def _warm(self) -> None:
        """Get the agents of the most used pairs ready, one after the other; a failure shows again with their next message.

        Only a Claude Code process needs this: our own agent is always ready, and a container starts with its message.
        """
        await self._has_lease.wait()
        if not self._conversations.config.now.peers.warm:
            return
        rows = self._conversations.sessions.store.index.sessions(SessionQuery(channel=TEAMS, since=self._archive_threshold, limit=_MANY))
        cold = (row for row in rows if row.agent == LOCAL and row.status != "closed" and self._pair_of(row.session))
        used = sorted(cold, key=lambda row: -row.turns)
        for row in used[: self._conversations.config.now.peers.warm]:
            try:
                await self._agents.wake(row.session)
            except CurtainwallError as fault:
                _LOG.warning("the agent of `%s` could not be got ready: %s", row.name, fault)

    async def _settle(self) -> None:
        """Watch the spending of conversations that share a budget: none may go on with what another has used."""
        await self._has_lease.wait()
        async for streams in self._conversations.sessions.registry.feed.changes():
            for session in filter(None, map(session_of, streams)):
                if session in self._known:
                    # If this fails, the spending is counted with the next message.
                    with suppress(CurtainwallError):
                        await self._conversations.peers.settle_budgets(session)

    async def _rouse(self) -> None:
        """Take up archived pairs with a message that arrived while nobody worked for the teams, one after the other."""
        await self._has_lease.wait()
        store, archive = self._conversations.sessions.store, self._conversations.archive
        rows = store.index.sessions(SessionQuery(channel=TEAMS, before=self._archive_threshold, limit=_MANY))
        await archive.forget_all_but({row.session for row in rows})
        at_rest, read = archive.at_rest(), list[ArchivedLog]()
        for row in rows:
            if row.session in self._known or row.status == "closed":
                continue
            if store.inbox.waiting(session_stream(row.session)):
                self._take_up(row.session)
            elif at_rest.get(row.session) != row.changed:
                # Each such log is read once, from its beginning; current requests come first.
                await asyncio.sleep(0)
                with suppress(CurtainwallError):
                    new = list(self._inspect(row))
                    read += new
                    if any(rest.figures is not None for rest in new):
                        await free_space(self._conversations, row.session)
            if len(read) >= _AT_ONCE:
                await archive.keep(read)
                read.clear()
        await archive.keep(read)

    def _inspect(self, row: SessionRow) -> Iterator[ArchivedLog]:
        """Take up an archived pair in which a message waits; yield the log to remember for any other."""
        head, pair = self._conversations.sessions.registry.feed.head(session_stream(row.session)), self._pair_of(row.session)
        if self._conversations.peers.state(row.session).queue:
            self._take_up(row.session)
            return
        figures = None if pair is None else self._conversations.talk.figures_of(pair)
        if figures is None or figures.status == "archived":
            yield ArchivedLog(row.session, row.changed, head, figures)

    def _pair_of(self, session: SessionId) -> Pair | None:
        """Return the pair that leads to a session."""
        return next((pair for route in self._conversations.sessions.store.index.routes_to(session) if (pair := Pair.at(route))), None)

    @property
    def _archive_threshold(self) -> Millis:
        """The time before which a pair counts as archived."""
        return self._conversations.sessions.registry.clock.now() - self._conversations.config.now.peers.archive_after * 1000

    async def _lease(self) -> Lease:
        while True:
            lease = self._conversations.sessions.store.leases.take(KEEPER)
            if lease is not None:
                return lease
            await self._conversations.sessions.registry.until_free(KEEPER, _LOOK_AGAIN)

    def _take_up_all(self) -> None:
        """Look after every pair that was used recently or is in the middle of a turn."""
        long_ago = self._archive_threshold
        for row in self._conversations.sessions.store.index.sessions(SessionQuery(channel=TEAMS, limit=_MANY)):
            if row.status != "closed" and (row.changed > long_ago or row.status in ("working", "waiting")):
                self._known.add(row.session)
                self._turns.attend(row.session)

    def _take_up(self, session: SessionId | None) -> None:
        if session is None:
            return
        if session not in self._known:
            if not self._conversations.sessions.store.index.sessions(SessionQuery(channel=TEAMS, prefix=session, limit=1)):
                return
            self._known.add(session)
        self._turns.attend(session)

    async def _serve_requests(self) -> None:
        async with self._conversations.requests.taking() as requests:
            while True:
                request = await requests.get()
                try:
                    reply = await self._serve(request)
                except CurtainwallError as fault:
                    _fail(request, fault)
                except Exception as fault:  # noqa: BLE001 - the waiting caller must learn of any fault
                    _fail(request, Broken(f"a fault of ours: {type(fault).__name__}: {fault}"))
                else:
                    with suppress(asyncio.InvalidStateError):
                        request.result.set_result(reply)

    async def _serve(self, request: KeeperRequest) -> str:
        mail = self._conversations.requests.mail
        if not self.is_keeping and mail is not None and mail.has_keeper:
            return await mail.request(request.what, request.session)
        if request.what == "wake":
            self._take_up(request.session)
            return await self._agents.wake(request.session)
        state = self._conversations.peers.state(request.session)
        if (state.turn is not None and not state.turn_waits) or (state.queue and not state.exhausted):
            # Nobody would continue an unfinished turn before the next message comes.
            raise CommandRefused("its agent is at work; it rests by itself when it is done, and `cancel` stops it")
        await self._turns.leave(request.session)
        await self._agents.sleep(request.session)
        return "asleep" if request.what == "sleep" else await put_away(self._conversations, request.session)

    async def _serve_mail(self) -> None:
        """Serve the requests that come from other processes, while this one works for the teams."""
        mail = self._conversations.requests.mail
        if mail is None:
            return
        await self._has_lease.wait()
        async with self._conversations.sessions.store.log.watch(lambda name: name == NEWS) as changes:
            async for _ in changes:
                for request in mail.waiting() if self.is_keeping else ():
                    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                    try:
                        reply, is_refused = await self._serve(KeeperRequest(request.what, request.session, result)), False
                    except CurtainwallError as fault:
                        reply, is_refused = str(fault), True
                    except Exception as fault:  # noqa: BLE001 - one request must not be the last that is served
                        _LOG.exception("a request to the keeper failed")
                        reply, is_refused = f"a fault of ours: {type(fault).__name__}: {fault}", True
                    with suppress(CurtainwallError):
                        await mail.answer(request, reply, is_refused=is_refused)


async def fork_pair(conversations: Conversations, session: SessionId, into: Pair) -> SessionId:
    """Open another conversation that starts with the history of this one."""
    if conversations.sessions.store.index.session_at(into.route) is not None:
        raise CommandRefused(f"there is a conversation `{into}` already; choose another name")
    conversations.peers.require_room(into)
    forked = await fork(conversations.sessions, session, local_user(), str(into), conversations.peers.limits_of(into.team))
    if await conversations.sessions.registry.bind(into.route, forked.session, SYSTEM) != forked.session:
        raise CommandRefused(f"somebody else began the conversation `{into}` meanwhile; the fork is session `{forked.session}`")
    return forked.session


def _is_inbox(name: StreamId) -> bool:
    return name.startswith(_INBOX)


def _fail(request: KeeperRequest, fault: CurtainwallError) -> None:
    with suppress(asyncio.InvalidStateError):
        request.result.set_exception(fault)
