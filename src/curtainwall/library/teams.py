"""Teams in the hands of a Python program, and of the command line: ask, tell, look back."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from curtainwall.compose.agents import model_finder, run_agents
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    OUTSIDE,
    SYSTEM,
    ApprovalQuery,
    BudgetKind,
    CallRequest,
    CommandRefused,
    CurtainwallError,
    ExpireMessages,
    Mode,
    SessionId,
    SessionQuery,
    TurnFailed,
    session_stream,
)
from curtainwall.operations.open import SessionSpec
from curtainwall.runtime import Turns
from curtainwall.session import SessionState
from curtainwall.teams.callers import OutsideCaller, require_team
from curtainwall.teams.chains import Chain
from curtainwall.teams.keeper import KEEPER
from curtainwall.teams.pairs import Pair, PairFigures, Shortage

JsonObject = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class TeamReply:
    """What came of a message: the answer and `done`, `waiting` with the handle that leads to it later, or why there is none."""

    team: str
    handle: str
    status: str
    text: str
    fault: str = ""
    """The name of what went wrong, as `AgentSilent` (docs/process-agents.md); the text has it in words."""
    approvals: tuple[str, ...] = ()
    """What a human has to answer before the team goes on, where the reply is `waiting`."""
    exhausted: tuple[str, ...] = ()
    """The conversation's budgets that are used up, where the reply is `waiting` because of that: a human has to allow more."""
    further: tuple[Shortage, ...] = ()
    """The same of the teams that this one has asked in turn, and waits for."""


class Teams:
    """The teams as one asker sees them. What the rules ask about is answered by whoever runs the program: it is their own wish."""

    def __init__(self, wired: GatedSessions, caller: OutsideCaller, turns: Turns | None = None) -> None:
        self._wired = wired
        self._caller = caller
        self._turns = turns

    @asynccontextmanager
    async def leaving(self) -> AsyncGenerator[None]:
        """Ask for the last time: once everything that was sent is answered, no work for others begins here, which would be broken off."""
        session = await self._caller.enter()
        has_sent = False

        def listen(state: SessionState) -> None:
            nonlocal has_sent
            if has_sent and not state.sent and self._turns is not None:
                self._turns.begin_no_more()
            has_sent = has_sent or bool(state.sent)

        async with self._wired.house.hold(session) as actor:
            with actor.observed_by(listen):
                yield

    async def ask(self, team: str, question: str, *, thread: str = "", wait: float | None = None) -> TeamReply:
        """Ask a team and wait; after `wait` seconds the reply says `waiting`, and its handle leads to the answer later."""
        reply = _reply(await self._call("ask", _given(team=team, question=question, thread=thread, timeout=_millis(wait))))
        return replace(reply, approvals=self.approvals(team, thread=thread)) if reply.status == "waiting" else reply

    async def send(self, team: str, message: str, *, thread: str = "") -> TeamReply:
        """Send a message without waiting; `reports` has the answer when it is there."""
        given = _given(toTeam=team, message=message, thread=thread, waitForResponse=False)
        return await self._handed_in(_reply(await self._call("send_message", given)), thread)

    async def notify(self, team: str, message: str, *, thread: str = "", days: float | None = None) -> TeamReply:
        """Tell a team something; it is delivered exactly once, within so many days."""
        given = _given(toTeam=team, message=message, thread=thread, ttlDays=days)
        return await self._handed_in(_reply(await self._call("notify", given)), thread)

    async def history(self, team: str, *, thread: str = "", limit: int | None = None) -> Sequence[JsonObject]:
        """Return the conversation with a team, oldest first."""
        told = await self._call("history", _given(team=team, thread=thread, limit=limit))
        return cast("Sequence[JsonObject]", told["messages"])

    async def reports(self, team: str | None = None, *, handle: str | None = None) -> Sequence[JsonObject]:
        """Return what became of earlier messages."""
        return cast("Sequence[JsonObject]", (await self._call("reports", _given(team=team, handle=handle)))["reports"])

    async def cancel(self, team: str, handle: str | None = None, *, thread: str = "") -> None:
        """Take back a message, or stop the team's work on it."""
        await self._call("cancel", _given(team=team, handle=handle, thread=thread))

    async def fork(self, team: str, new_thread: str, *, thread: str = "") -> None:
        """Begin another conversation that starts with what this one knows."""
        await self._call("fork", _given(team=team, newThread=new_thread, thread=thread))

    def approvals(self, team: str, *, thread: str = "") -> tuple[str, ...]:
        """Return what a human is asked in the conversation with a team, and in those that it waits for, oldest first in each."""
        return approvals_along(self._wired, self._wired.teams.talk.chain(Pair(asker=self._caller.team, team=team, thread=thread)))

    async def new_approvals(self, team: str, *, thread: str = "") -> AsyncGenerator[str]:
        """Yield for ever what a human is asked in the conversation with a team or further on, each as soon as it is known."""
        pair, chain = Pair(asker=self._caller.team, team=team, thread=thread), None
        told: set[str] = set()
        async for _ in self._wired.house.feed.changes():
            chain = chain or self._wired.teams.talk.chain(pair)
            for approval in approvals_along(self._wired, chain):
                if approval not in told:
                    told.add(approval)
                    yield approval

    async def new_shortages(self, team: str, *, thread: str = "") -> AsyncGenerator[Shortage]:
        """Yield for ever which budget keeps a team from answering, its own or that of one that it waits for, as soon as it is known."""
        pair, chain = Pair(asker=self._caller.team, team=team, thread=thread), None
        told = set[tuple[SessionId, BudgetKind]]()
        async for _ in self._wired.house.feed.changes():
            chain = chain or self._wired.teams.talk.chain(pair)
            if chain is None:
                continue
            short = {(it.session, kind): it._replace(kinds=(kind,)) for it in chain.shortages() for kind in it.kinds}
            told &= short.keys()
            for key, each in short.items():
                if key not in told:
                    told.add(key)
                    yield each

    def figures(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        return self._wired.teams.talk.figures()

    async def _handed_in(self, reply: TeamReply, thread: str) -> TeamReply:
        """Let the conversation take in what was sent, where nobody here works for it: whoever looks sees that it waits there."""
        session = self._wired.teams.talk.session_of(Pair(asker=self._caller.team, team=reply.team, thread=thread))
        if self._turns is None and session is not None:
            # It has left in any case, and whoever works next takes it in.
            with suppress(CurtainwallError):
                await self._wired.house.send(session, ExpireMessages(by=SYSTEM))
        return reply

    async def _call(self, tool: str, arguments: dict[str, JsonValue]) -> JsonObject:
        team = arguments.get("team", arguments.get("toTeam"))
        if isinstance(team, str):
            require_team(team, self._wired.setup.config.teams)
        answer = await self._caller.request(self._caller.session, CallRequest(tool=f"teams.{tool}", arguments=arguments))
        if answer.result is None:
            rules = ", ".join(f"`{rule}`" for rule in answer.verdict.because)
            raise CommandRefused(f"refused by {rules}: {answer.verdict.reason}")
        value = answer.result.value
        if isinstance(value, dict):
            return value
        raise TurnFailed(str(value))


def approvals_along(wired: GatedSessions, chain: Chain | None) -> tuple[str, ...]:
    """Return what a human is asked in a conversation and in those that it waits for; nothing where there is none yet."""
    if chain is None:
        return ()
    rows = wired.store.index.sessions(SessionQuery(prefix=chain.session, limit=1))
    # Where no turn is under way it waits for nobody, and its log need not be read.
    sessions = chain.sessions() if any(row.status in ("working", "waiting") for row in rows) else (chain.session,)
    return tuple(approval for session in sessions for approval in open_approvals(wired, session))


def open_approvals(wired: GatedSessions, session: SessionId) -> tuple[str, ...]:
    """Return what a human is asked in a session, oldest first."""
    return tuple(row.approval for row in reversed(wired.store.index.approvals(ApprovalQuery(session=session, limit=None, brief=True))))


def is_worked_on(wired: GatedSessions, session: SessionId) -> bool:
    """Tell whether a process works for the teams, or on this session."""
    leases = wired.store.leases
    return any(leases.owner(stream) is not None for stream in (KEEPER, session_stream(session)))


@asynccontextmanager
async def open_teams(
    team: str = "", *, policy: Sequence[Path] = (), parts: Parts | None = None, works: bool = True
) -> AsyncGenerator[Teams]:
    """Talk to teams, as one of them or as nobody, and let agents work here while no other process does; all of it outlives the context.

    With `works=False` no agent works here, for whoever only leaves word.
    """
    async with open_gate(load_setup(policy), parts=parts) as wired:
        if not wired.setup.config.teams:
            raise CommandRefused("no team is configured; write `[teams.NAME]` with its `project` into the configuration, or import some")
        by = local_user()
        caller = OutsideCaller(wired.teams, wired.gate, by, team, Mode.BYPASS, name=f"{by.name} asks teams{f' as {team}' if team else ''}")
        working = run_agents(wired, model_finder(wired), SessionSpec(OUTSIDE)) if works else nullcontext()
        async with working as at_work:
            try:
                yield Teams(wired, caller, at_work.turns if at_work is not None else None)
            finally:
                await caller.close("the caller has left")


def _given(**arguments: JsonValue) -> dict[str, JsonValue]:
    return {name: value for name, value in arguments.items() if value not in (None, "")}


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(int(seconds * 1000), 1)


def _reply(told: JsonObject) -> TeamReply:
    text = told.get("answer") or told.get("reason") or told.get("note") or ""
    short_of = tuple(map(str, cast("Sequence[JsonValue]", told.get("exhausted") or ())))
    fault = str(told.get("fault") or "")
    further = tuple(_further(cast("JsonObject", it)) for it in cast("Sequence[JsonValue]", told.get("further") or ()))
    return TeamReply(str(told["team"]), str(told["handle"]), str(told["status"]), str(text), fault, exhausted=short_of, further=further)


def _further(told: JsonObject) -> Shortage:
    kinds = tuple(BudgetKind(str(kind)) for kind in cast("Sequence[JsonValue]", told["exhausted"]))
    return Shortage(str(told["team"]), SessionId(str(told["session"])), kinds)
