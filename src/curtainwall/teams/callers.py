"""Callers from outside: each has a session, opened with its first call, and each call of a team tool passes its gate."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from curtainwall.model import (
    MCP,
    NOBODY,
    OUTSIDE,
    SYSTEM,
    AddLabels,
    Answer,
    CallId,
    CallRequest,
    CloseSession,
    Gate,
    Label,
    LabelSource,
    Mode,
    NotFound,
    Presence,
    Save,
    SessionId,
    SessionQuery,
    ToolSpec,
    Who,
    session_stream,
)
from curtainwall.model.people import parse_place
from curtainwall.operations.open import SessionSpec, inherit_label, open_new
from curtainwall.teams.conversations import Conversations
from curtainwall.tools.team_specs import SERVER

if TYPE_CHECKING:
    # Start-up time: MCP takes longer to load than everything else.
    from curtainwall.tools.mcp_in import McpServer

_MANY = 1_000_000


def require_team(team: str, teams: Iterable[str]) -> None:
    """Raise `NotFound`, listing the configured teams, if the team is not one of them."""
    known = sorted(teams)
    if team not in known:
        choices = f"there are: {', '.join(f'`{each}`' for each in known)}" if known else "none is configured"
        raise NotFound(f"there is no team `{team}`; {choices}")


class OutsideCaller:
    """The gate for one caller from outside; it speaks for a team, or for nobody.

    INVARIANT: it may only talk to teams. Nobody meant to grant it anything else that its session could do.
    """

    def __init__(
        self, conversations: Conversations, gate: Gate, by: Who, team: str = "", mode: Mode = Mode.DEFAULT, name: str = ""
    ) -> None:
        team = "" if team == NOBODY else team
        if team:
            require_team(team, conversations.config.now.teams)
        self.session = SessionId(conversations.sessions.registry.mint())
        self.team = team or NOBODY
        self._conversations = conversations
        self._gate = gate
        self._by = by
        target = conversations.config.now.teams[team].approval_target if team else None
        routes = () if target is None else (parse_place(target),)
        self._wanted = SessionSpec(OUTSIDE, None, name or f"{self.team} from outside", OUTSIDE, mode, routes, team=team)
        self._is_open = False

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps in this caller's session, opening it first if needed."""
        await self.enter()
        return await self._gate.request(session, request.model_copy(update={"server": SERVER}), wait=wait, save=save, presence=presence)

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Continue a call that was requested before."""
        return await self._gate.resume(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Drop a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)

    async def close(self, why: str) -> None:
        """Close the session; it still records an answer that comes later."""
        if self._is_open and not self.is_deleted:
            await self._conversations.sessions.registry.send(self.session, CloseSession(by=self._by, reason=why))

    @property
    def is_deleted(self) -> bool:
        """Tell whether somebody has deleted the session since it was opened."""
        return self._is_open and self._conversations.sessions.registry.feed.head(session_stream(self.session)) == 0

    async def enter(self) -> SessionId:
        """Return the session, opening it if needed."""
        if not self._is_open:
            await open_new(self._conversations.sessions, self._wanted, self._by, self.session)
            self._is_open = True
        return self.session


class McpCaller(OutsideCaller):
    """A caller that speaks MCP. Reconnecting resets nothing: all of its sessions share their labels and spending."""

    def __init__(self, conversations: Conversations, gate: Gate, by: Who, team: str = "", how: str = "over stdio") -> None:
        super().__init__(conversations, gate, by, team, name=f"{team or NOBODY} {how}")
        self._wanted = replace(self._wanted, channel=MCP)

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps with the labels and the spending of every session that this caller has or had, as they are now."""
        await self.enter()
        known = {source.label for source in self._conversations.peers.labels(self.session)}
        new: dict[Label, LabelSource] = {}
        for other in self._sessions(labels_beyond=frozenset(known)):
            for source in self._conversations.peers.labels(other):
                if source.label not in known:
                    new.setdefault(source.label, inherit_label(source, other))
        if new:
            await self._conversations.sessions.registry.send(self.session, AddLabels(by=SYSTEM, labels=tuple(new.values())))
        await self._conversations.peers.budgets.share(self.session, self._sessions())
        return await super().request(session, request, wait=wait, save=save, presence=presence)

    def _sessions(self, labels_beyond: frozenset[str] | None = None) -> Iterator[SessionId]:
        """Yield this caller's other sessions, or only those with further labels; oldest first, so that the first origin is kept."""
        peers, index = self._conversations.peers, self._conversations.sessions.store.index
        query = SessionQuery(agent=OUTSIDE, channel=MCP, labels_beyond=labels_beyond, limit=_MANY)
        for row in reversed(index.sessions(query)):
            if row.session != self.session and peers.team_of(row.session) == self._wanted.team:
                yield row.session


def team_mcp_server(conversations: Conversations, listing: Callable[[], Iterable[ToolSpec]], caller: OutsideCaller) -> "McpServer":
    """Return an MCP server that offers one caller the tools of teams, under names such as `teams_ask`."""
    # Start-up time: as above.
    from curtainwall.tools.mcp_in import McpServer

    registry = conversations.sessions.registry
    return McpServer(
        caller.session, caller, registry.feed, lambda: tuple(spec for spec in listing() if spec.server == SERVER), registry.clock, joint="_"
    )


def waiting_calls(conversations: Conversations, caller: OutsideCaller) -> int:
    """Return how many calls of a caller wait for a human."""
    return len(conversations.peers.state(caller.session).approvals)
