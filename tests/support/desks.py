"""A desk in memory for channels: the real decisions and the real rules, without a store, a clock of its own, and an agent led by hand.

It passes the same suite as the desk of a house: `tests/conformance/test_desk.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from curtainwall.channels.ports import ChannelPorts
from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    Basis,
    CallId,
    CommandRefused,
    CurtainwallError,
    Effect,
    EndTurn,
    InheritHistory,
    Limits,
    Live,
    Mode,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Moment,
    NotFound,
    Opened,
    Opening,
    OpenSession,
    Payload,
    ReadySession,
    Recorded,
    RecordProgress,
    RequestCall,
    ResumeTurn,
    RevokeGrant,
    RuleStatus,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionReady,
    SessionRow,
    SessionView,
    StartTurn,
    StepsAsked,
    StreamId,
    Subject,
    TextStreamed,
    TurnId,
    TurnStatus,
    Usage,
    VerdictReport,
    Who,
    Workspace,
    session_of,
    session_stream,
)
from curtainwall.operations.desk import session_view
from curtainwall.session import Rules, SessionState, decide, fold, require_short_name, rules_in_force
from curtainwall.store.memory import MemoryIndex
from curtainwall.store.projection import changes
from tests.support.given import NOW, POLICY, RULES, SESSION, Wish, finished, is_for_project, opened, proceed, wish
from tests.support.houses import FakeClock


class MemoryDesk:
    """Desk, feed, listening and explanations of sessions that only this test knows."""

    def __init__(self, *first: AnyEvent, rules: Rules = RULES) -> None:
        self.clock = FakeClock(NOW)
        self.logs: dict[SessionId, list[AnyEvent]] = {SESSION: list(first or (opened(), SessionReady(at=NOW)))}
        self.sent: list[AnyCommand] = []
        self.explained: list[tuple[str, str]] = []
        self._rules = rules
        self._outcomes: dict[tuple[SessionId, str], int | CurtainwallError] = {}
        self._grown: dict[SessionId, asyncio.Event] = {}
        self._listeners: dict[SessionId, list[asyncio.Queue[Live]]] = {}

    @property
    def line(self) -> ChannelPorts:
        return ChannelPorts(self, self, self, self.clock, self, self, self)

    # Desk

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        await asyncio.sleep(0)
        outcome = self._outcomes.get((session, key)) if key is not None else None
        if outcome is None:
            self.sent.append(command)
            outcome = self._outcome(session, command)
            if key is not None:
                self._outcomes[session, key] = outcome
        if isinstance(outcome, CurtainwallError):
            raise outcome
        return outcome

    def view(self, session: SessionId) -> SessionView:
        return session_view(self.state(session), self.logs[session], 0.835)

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        index = MemoryIndex()
        for session, log in self.logs.items():
            stream = session_stream(session)
            for event in log:
                for change in changes(stream, event):
                    index.apply(change)
                index.touch(stream, event.at)
        return index.sessions(query)

    async def open(self, opening: Opening, by: Who) -> Opened:
        require_short_name(opening.name)
        session = SessionId(f"s{len(self.logs) + 1}")
        own = Workspace(path=f"/srv/{session}", own=True)
        if opening.how == "new":
            self._begin(_opening(session, by, opening.name or f"session {session[:6]}", own))
            return Opened(session=session)
        if opening.of is None:
            raise CommandRefused(f"say which session to {opening.how}")
        parent, upto = self.state(opening.of), len(self.logs[opening.of])
        is_shared = opening.how == "reset" or not parent.workspace.own
        name = opening.name or (parent.name if opening.how == "reset" else f"{parent.name} (fork)")
        command = _opening(session, by, name, parent.workspace if is_shared else own).model_copy(
            update={"parent": opening.of, "model": parent.model, "mode": Mode.PLAN if parent.mode is Mode.PLAN else Mode.DEFAULT}
        )
        self._begin(command, InheritHistory(by=by, parent=opening.of, upto=upto, history=None, how=opening.how))
        if opening.how == "reset":
            return Opened(session=session, notes=("grants and credentials stay behind",))
        shared = f"both sessions work in the same project `{parent.workspace.path}`; what one changes, the other sees"
        return Opened(session=session, notes=(shared,) if is_shared else ())

    def _outcome(self, session: SessionId, command: AnyCommand) -> int | CurtainwallError:
        """Return where the log ends once a command was decided, or its refusal."""
        try:
            if isinstance(command, SendMessage | RevokeGrant):
                self.state(session)
            self.happen(*self.decided(session, command), session=session)
        except CurtainwallError as refusal:
            return refusal
        return len(self.logs[session])

    def _begin(self, opening: OpenSession, *inherits: InheritHistory) -> None:
        self.logs[opening.session] = []
        for command in (opening, *inherits, ReadySession(by=opening.by)):
            self.do(command, opening.session)

    # Explaining

    def rules(self, session: SessionId) -> Sequence[RuleStatus]:
        self.explained.append(("rules", ""))
        return rules_in_force(self.state(session), self._rules.policy, self.logs[session])

    def why(self, session: SessionId, about: str = "") -> VerdictReport:
        self.explained.append(("why", about))
        call = CallId(about or "last")
        return VerdictReport(call=call, tool=session, then=(), now=Effect.ASK, rules=(), facts=(), labels=(), changes=())

    # Knowledge

    def skills(self, session: SessionId) -> str:
        return f"skills of {session}\n  and a bell \a"

    def memory(self, session: SessionId) -> str:
        return f"memory of {session}"

    def changes(self, session: SessionId) -> str:
        return f"changes of {session}"

    def difference(self, session: SessionId, path: str = "") -> str:
        return f"difference of {path or 'everything'} in {session}"

    # Steps

    async def move(self, session: SessionId, by: Who, steps: StepsAsked, code: str = "") -> str:
        self.state(session)
        return f"{'redo' if steps.redo else 'undo'} {steps.count}{' force' * steps.force} {code or 'shown'}"

    # Feed

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        session = session_of(stream)
        assert session is not None
        log = self.logs.get(session, [])
        return [Recorded(stream, seq, log[seq - 1]) for seq in range(after + 1, len(log) + 1)][:limit]

    async def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        session = session_of(stream)
        assert session is not None
        grown = self._grown.setdefault(session, asyncio.Event())
        while True:
            grown.clear()
            for recorded in self.read(stream, after):
                yield recorded
                after = recorded.seq
            await grown.wait()

    async def grown(self, stream: StreamId, after: int, within: float | None = None) -> None:
        session = session_of(stream)
        assert session is not None
        grown = self._grown.setdefault(session, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.head(stream) <= after:
                    grown.clear()
                    await grown.wait()

    def head(self, stream: StreamId) -> int:
        session = session_of(stream)
        return len(self.logs.get(session, ())) if session else 0

    # Listening

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        heard: asyncio.Queue[Live] = asyncio.Queue()
        self._listeners.setdefault(session, []).append(heard)

        async def each() -> AsyncIterator[Live]:
            while True:
                yield await heard.get()

        try:
            yield each()
        finally:
            self._listeners[session].remove(heard)

    def say(self, kind: Literal["text", "doing"], text: str, session: SessionId = SESSION, turn: TurnId | None = None) -> None:
        """Say something in a turn: the one that runs, where none is named."""
        for heard in self._listeners.get(session, []):
            heard.put_nowait(Live(kind=kind, text=text, turn=turn or self.state(session).turn))

    # For the test

    def state(self, session: SessionId = SESSION) -> SessionState:
        if session not in self.logs:
            raise NotFound(f"there is no session `{session}`")
        return fold(self.logs[session])

    def decided(self, session: SessionId, command: AnyCommand) -> tuple[AnyEvent, ...]:
        return decide(fold(self.logs.get(session, ())), command, self._rules, Moment(at=self.clock.now(), seed=bytes(16)))

    def happen(self, *events: AnyEvent, session: SessionId = SESSION) -> None:
        """Let something happen, as if another process had written it."""
        self.logs[session] += [event for event in events if not is_for_project(event)]
        if session in self._grown:
            self._grown[session].set()

    def do(self, command: AnyCommand, session: SessionId = SESSION) -> tuple[AnyEvent, ...]:
        """Have a command decided from elsewhere."""
        events = self.decided(session, command)
        self.happen(*events, session=session)
        return events

    def is_followed(self, session: SessionId = SESSION) -> bool:
        """Tell whether somebody has read everything and waits for more."""
        return session in self._grown

    def kinds(self, session: SessionId = SESSION) -> list[str]:
        return [type(event).__name__ for event in self.logs[session]]

    def last(self, kind: type[Any], session: SessionId = SESSION) -> Any:
        return next(event for event in reversed(self.logs[session]) if isinstance(event, kind))

    def has(self, kind: type[Any], session: SessionId = SESSION) -> bool:
        return any(isinstance(event, kind) for event in self.logs[session])


class Hand:
    """The agent of a memory desk, led by hand: each method is one thing that an agent does."""

    def __init__(self, desk: MemoryDesk, turn: str = "t1") -> None:
        self.desk = desk
        self.turn = TurnId(turn)

    def start(self) -> None:
        self.desk.do(StartTurn(by=SYSTEM, turn=self.turn))

    def resume(self) -> None:
        self.desk.do(ResumeTurn(by=SYSTEM, turn=self.turn))

    def stream(self, text: str) -> None:
        self._record(TextStreamed(at=self.desk.clock.now(), turn=self.turn, text=text))

    def speak(self, text: str) -> None:
        self._record(AgentSpoke(at=self.desk.clock.now(), turn=self.turn, text=text))

    def use(self, tokens: int, dollars: float = 0.0, basis: Basis = Basis.MEASURED, failure: str = "") -> None:
        """Make one model request, which may fail on the way."""
        at, request = self.desk.clock.now(), f"r{len(self.desk.logs[SESSION])}"
        usage = Usage(input_tokens=tokens, dollars=dollars, tokens_basis=basis, dollars_basis=basis)
        asked = ModelRequested(at=at, turn=self.turn, request=request, base=None, added=Payload(), model="demo")
        self._record(asked)
        if failure:
            self._record(ModelFailed(at=at, turn=self.turn, request=request, failure=failure, usage=usage))
        else:
            self._record(ModelResponded(at=at, turn=self.turn, request=request, raw=Payload(), normalised=Payload(), usage=usage))

    def want(self, call: str, subject: Subject) -> Wish:
        """Ask for something at the gate."""
        wanted = wish(call, subject, self.turn)
        self.desk.do(RequestCall(by=SYSTEM, call=wanted.call, subject=subject, turn=self.turn))
        return wanted

    def desk_wish(self, call: str) -> Wish:
        """Return an open call of the log."""
        return wish(call, self.desk.state().calls[CallId(call)].subject, self.turn)

    def go_on(self, wanted: Wish) -> None:
        """Run a call whose approval was granted."""
        self.desk.do(proceed(wanted))
        self.finish(wanted)

    def finish(self, wanted: Wish) -> None:
        permit = self.desk.state().calls[wanted.call].permit
        assert permit is not None
        self.desk.do(finished(wanted).model_copy(update={"permit": permit}))

    def end(self, status: TurnStatus = TurnStatus.DONE, failure: str = "", waits_for: Sequence[Wish] = ()) -> None:
        calls = tuple(wanted.call for wanted in waits_for)
        self.desk.do(EndTurn(by=SYSTEM, turn=self.turn, status=status, failure=failure, waits_for=calls))

    def reply(self, text: str) -> None:
        """Take up what is queued, and answer."""
        self.start()
        self.speak(text)
        self.end()

    def _record(self, event: Any) -> None:
        self.desk.do(RecordProgress(by=SYSTEM, events=(event,)))


def _opening(session: SessionId, by: Who, name: str, workspace: Workspace) -> OpenSession:
    return OpenSession(
        by=by,
        session=session,
        name=name,
        agent="builtin",
        model="demo",
        workspace=workspace,
        mode=Mode.DEFAULT,
        limits=Limits(),
        policy=POLICY.version,
    )
