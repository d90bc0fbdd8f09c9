"""Teams for Python programs and the command line: ask them, notify them, read their history."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from curtainwall.compose.agents import model_finder, run_agents
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.host.user import local_user
from curtainwall.library.arguments import require, setup_for
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
    NotFound,
    OpeningFailed,
    SessionId,
    SessionQuery,
    TurnFailed,
    record,
)
from curtainwall.operations.open import SessionSpec
from curtainwall.runtime import Turns
from curtainwall.session import SessionState
from curtainwall.teams.callers import OutsideCaller, require_team
from curtainwall.teams.chains import Chain
from curtainwall.teams.pairs import Pair, PairFigures, Shortage

JsonObject = Mapping[str, JsonValue]


@record
class TeamReply:
    """The reply to a message: the answer if `done`, a handle to get it later if `waiting`, or why there is none."""

    team: str
    handle: str
    status: str
    text: str
    fault: str = ""
    """The name of the error, such as `AgentSilent` (docs/process-agents.md); the text describes it."""
    partial: str = ""
    """The text of the team's agent from before it failed or was interrupted."""
    approvals: tuple[str, ...] = ()
    """The approvals that a human has to answer before the team continues, if the reply is `waiting`."""
    exhausted: tuple[str, ...] = ()
    """The conversation's exhausted budgets, if the reply is `waiting` because of them: a human has to allow more."""
    further: tuple[Shortage, ...] = ()
    """The exhausted budgets of the teams that this one has asked in turn and waits for."""


class Teams:
    """The teams as one asker sees them. The user who runs the program counts as approving its calls, because they are the user's own."""

    def __init__(self, wired: GatedSessions, caller: OutsideCaller, turns: Turns | None = None) -> None:
        self._wired = wired
        self._caller = caller
        self._turns = turns

    @asynccontextmanager
    async def leaving(self) -> AsyncGenerator[None]:
        """Make the last requests: once all are answered, this process begins no work for others, which would be interrupted."""
        session = await self._caller.enter()
        has_sent = False

        def watch(state: SessionState) -> None:
            nonlocal has_sent
            if has_sent and not state.sent and self._turns is not None:
                self._turns.begin_no_more()
            has_sent = has_sent or bool(state.sent)

        async with self._wired.registry.hold(session) as actor:
            with actor.observed_by(watch):
                yield

    async def ask(self, team: str, question: str, *, thread: str = "", wait: float | None = None) -> TeamReply:
        """Ask a team and wait; after `wait` seconds the reply is `waiting`, with a handle to get the answer later."""
        reply = _reply(await self._call("ask", _arguments(team=team, question=question, thread=thread, timeout=_millis(wait))))
        return replace(reply, approvals=self.approvals(team, thread=thread)) if reply.status == "waiting" else reply

    async def send(self, team: str, message: str, *, thread: str = "") -> TeamReply:
        """Send a message without waiting; `reports` returns the answer when it has arrived."""
        arguments = _arguments(toTeam=team, message=message, thread=thread, waitForResponse=False)
        return await self._deliver(_reply(await self._call("send_message", arguments)), thread)

    async def notify(self, team: str, message: str, *, thread: str = "", days: float | None = None) -> TeamReply:
        """Notify a team; the message is delivered exactly once, within `days` days."""
        arguments = _arguments(toTeam=team, message=message, thread=thread, ttlDays=days)
        return await self._deliver(_reply(await self._call("notify", arguments)), thread)

    async def history(self, team: str, *, thread: str = "", limit: int | None = None) -> Sequence[JsonObject]:
        """Return the conversation with a team, oldest first."""
        result = await self._call("history", _arguments(team=team, thread=thread, limit=limit))
        return cast("Sequence[JsonObject]", result["messages"])

    async def reports(self, team: str | None = None, *, handle: str | None = None) -> Sequence[JsonObject]:
        """Return the outcomes of earlier messages."""
        return cast("Sequence[JsonObject]", (await self._call("reports", _arguments(team=team, handle=handle)))["reports"])

    async def cancel(self, team: str, handle: str | None = None, *, thread: str = "") -> str:
        """Withdraw a message, or stop the team's work on it, and return its handle; by default, the newest without an answer."""
        return str((await self._call("cancel", _arguments(team=team, handle=handle, thread=thread)))["handle"])

    async def fork(self, team: str, new_thread: str, *, thread: str = "") -> None:
        """Begin another conversation with this one's history."""
        await self._call("fork", _arguments(team=team, newThread=new_thread, thread=thread))

    async def compact(self, team: str, instructions: str = "", *, thread: str = "") -> None:
        """Ask for a summary in place of the older messages; the process that works for the team makes it."""
        await self._call("compact", _arguments(team=team, instructions=instructions, thread=thread))

    async def wake(self, team: str, *, thread: str = "") -> str:
        """Get the team's agent ready in the process that works for the teams, and return the outcome."""
        if self._turns is None and not self._has_keeper:
            raise CommandRefused("no process works for the teams, so no agent can be got ready; `curtainwall serve` does")
        return str((await self._call("wake", _arguments(team=team, thread=thread)))["status"])

    async def sleep(self, team: str, *, thread: str = "") -> str:
        """Stop the team's agent unless it is at work; the next message starts it again."""
        if self._turns is None and not self._has_keeper:
            self._session(team, thread)
            return "asleep"
        return str((await self._call("sleep", _arguments(team=team, thread=thread)))["status"])

    async def archive(self, team: str, *, thread: str = "") -> str:
        """Archive a conversation and free its space until the next message; return what was done."""
        session, conversations = self._session(team, thread), self._wired.teams
        if self._turns is None and not self._has_keeper:
            # Start-up time: few programs archive.
            from curtainwall.teams.storage import put_away

            return await put_away(conversations, session)
        return await conversations.requests.archive(session)

    def approvals(self, team: str, *, thread: str = "") -> tuple[str, ...]:
        """Return the open approvals in the conversation with a team and in those that it waits for, oldest first in each."""
        return approvals_along(self._wired, self._wired.teams.talk.chain(Pair(asker=self._caller.team, team=team, thread=thread)))

    async def new_approvals(self, team: str, *, thread: str = "") -> AsyncGenerator[str]:
        """Yield, without end, each new approval in the conversation with a team or in those that it waits for."""
        pair, chain = Pair(asker=self._caller.team, team=team, thread=thread), None
        reported: set[str] = set()
        async for _ in self._wired.registry.feed.changes():
            chain = chain or self._wired.teams.talk.chain(pair)
            for approval in approvals_along(self._wired, chain):
                if approval not in reported:
                    reported.add(approval)
                    yield approval

    async def new_shortages(self, team: str, *, thread: str = "") -> AsyncGenerator[Shortage]:
        """Yield, without end, each exhausted budget that keeps a team from answering, its own or that of a team it waits for."""
        pair, chain = Pair(asker=self._caller.team, team=team, thread=thread), None
        reported = set[tuple[SessionId, BudgetKind]]()
        async for _ in self._wired.registry.feed.changes():
            chain = chain or self._wired.teams.talk.chain(pair)
            if chain is None:
                continue
            shortages = {
                (shortage.session, kind): shortage._replace(kinds=(kind,)) for shortage in chain.shortages() for kind in shortage.kinds
            }
            reported &= shortages.keys()
            for key, new_shortage in shortages.items():
                if key not in reported:
                    reported.add(key)
                    yield new_shortage

    def figures(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        return self._wired.teams.talk.figures()

    @property
    def _has_keeper(self) -> bool:
        """Tell whether another process works for the teams."""
        mail = self._wired.teams.requests.mail
        return mail is not None and mail.has_keeper

    def _session(self, team: str, thread: str) -> SessionId:
        """Return the session of a conversation; raise if there is none."""
        require_team(team, self._wired.teams.config.now.teams)
        session = self._wired.teams.talk.session_of(Pair(asker=self._caller.team, team=team, thread=thread))
        if session is None:
            raise NotFound(f"there is no such conversation with `{team}` yet; ask it something first")
        return session

    async def _deliver(self, reply: TeamReply, thread: str) -> TeamReply:
        """If no agent works here, make the conversation accept what was sent, so that others can see that it waits there."""
        session = self._wired.teams.talk.session_of(Pair(asker=self._caller.team, team=reply.team, thread=thread))
        if self._turns is None and session is not None:
            # The message is sent in any case, and the next process that works accepts it.
            with suppress(CurtainwallError):
                await self._wired.registry.send(session, ExpireMessages(by=SYSTEM))
        return reply

    async def _call(self, tool: str, arguments: dict[str, JsonValue]) -> JsonObject:
        team = arguments.get("team", arguments.get("toTeam"))
        if isinstance(team, str):
            require_team(team, self._wired.teams.config.now.teams)
        answer = await self._caller.request(self._caller.session, CallRequest(tool=f"teams.{tool}", arguments=arguments))
        if answer.result is None:
            rules = ", ".join(f"`{rule}`" for rule in answer.verdict.because)
            raise CommandRefused(f"refused by {rules}: {answer.verdict.reason}")
        value = answer.result.value if answer.complete is None else answer.complete
        if isinstance(value, dict):
            return value
        raise TurnFailed(str(value))


def approvals_along(wired: GatedSessions, chain: Chain | None) -> tuple[str, ...]:
    """Return the open approvals in a conversation and in those that it waits for; empty if there is no conversation yet."""
    if chain is None:
        return ()
    rows = wired.store.index.sessions(SessionQuery(prefix=chain.session, limit=1))
    # Without a turn it waits for nobody, and its log need not be read.
    sessions = chain.sessions() if any(row.status in ("working", "waiting") for row in rows) else (chain.session,)
    return tuple(approval for session in sessions for approval in open_approvals(wired, session))


def open_approvals(wired: GatedSessions, session: SessionId) -> tuple[str, ...]:
    """Return the open approvals of a session, oldest first."""
    return tuple(row.approval for row in reversed(wired.store.index.approvals(ApprovalQuery(session=session, limit=None, brief=True))))


def is_worked_on(wired: GatedSessions, session: SessionId) -> bool:
    """Tell whether a process works for the teams, or on this session."""
    return wired.teams.peers.is_worked_on(session)


@asynccontextmanager
async def open_teams(
    team: str = "",
    *,
    policy: Sequence[Path] = (),
    parts: Parts | None = None,
    works: bool = True,
    home: Path | str | None = None,
    config: Mapping[str, object] | None = None,
) -> AsyncGenerator[Teams]:
    """Talk to teams, as one of them or as an outsider, and run agents here unless another process does; all of it outlives the context.

    With `works=False` no agent works here, for programs that only leave a message. Raise `CommandRefused` or `OpeningFailed`.
    """
    require("team", team, str)
    require("works", works, bool)
    if parts is not None:
        require("parts", parts, Parts)
    async with AsyncExitStack() as stack:
        try:
            wired = await stack.enter_async_context(open_gate(setup_for(policy, home, config), parts=parts))
        except OSError as fault:
            raise OpeningFailed(f"the teams could not be opened: {fault}") from fault
        if not wired.setup.config.teams:
            raise CommandRefused("no team is configured; write `[teams.NAME]` with its `project` into the configuration, or import some")
        by = local_user()
        caller = OutsideCaller(wired.teams, wired.gate, by, team, Mode.BYPASS, name=f"{by.name} asks teams{f' as {team}' if team else ''}")
        agents = run_agents(wired, model_finder(wired), SessionSpec(OUTSIDE)) if works else nullcontext()
        async with agents as running:
            try:
                yield Teams(wired, caller, running.turns if running is not None else None)
            finally:
                await caller.close("the caller has left")


_TEXTS = frozenset({"team", "toTeam", "question", "message", "thread", "handle", "newThread"})


def _arguments(**arguments: JsonValue) -> dict[str, JsonValue]:
    """Return the arguments of a call that were given; raise `CommandRefused` for one of the wrong type."""
    given: dict[str, JsonValue] = {name: value for name, value in arguments.items() if value is not None and value != ""}
    for name, value in given.items():
        if name in _TEXTS:
            require(name, value, str)
        elif isinstance(value, float) and not isfinite(value):
            raise CommandRefused(f"`{name}` must be a number")
    return given


def _millis(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not isfinite(seconds):  # pyright: ignore[reportUnnecessaryIsInstance] - from a program
        raise CommandRefused("`wait` must be a number of seconds")
    return max(int(seconds * 1000), 1)


def _reply(result: JsonObject) -> TeamReply:
    text = result.get("answer") or result.get("reason") or result.get("note") or ""
    short_of = tuple(map(str, cast("Sequence[JsonValue]", result.get("exhausted") or ())))
    fault = str(result.get("fault") or "")
    further = tuple(_shortage(cast("JsonObject", item)) for item in cast("Sequence[JsonValue]", result.get("further") or ()))
    return TeamReply(
        str(result["team"]),
        str(result["handle"]),
        str(result["status"]),
        str(text),
        fault,
        str(result.get("partial") or ""),
        exhausted=short_of,
        further=further,
    )


def _shortage(item: JsonObject) -> Shortage:
    kinds = tuple(BudgetKind(str(kind)) for kind in cast("Sequence[JsonValue]", item["exhausted"]))
    return Shortage(str(item["team"]), SessionId(str(item["session"])), kinds)
