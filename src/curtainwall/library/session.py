"""Sessions for Python programs: open one, talk to its agent, answer its asks, and close it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from curtainwall.agents.builtin import LanguageModel
from curtainwall.compose.agents import RunningAgents, model_finder, run_agents, session_spec
from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import open_gate, session_hooks
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import load_setup
from curtainwall.compose.telemetry import reported
from curtainwall.config.agents import BUILTIN
from curtainwall.host.user import local_user
from curtainwall.model import (
    AgentSpoke,
    AnswerApproval,
    AnyCommand,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    AskCompaction,
    BudgetFigure,
    BudgetKind,
    ChangeMode,
    ChangeModel,
    Closed,
    CloseSession,
    CommandRefused,
    ContextUse,
    CurtainwallError,
    Grant,
    GrantId,
    GrantScope,
    HistoryInherited,
    InterruptAsked,
    InterruptTurn,
    LifeEvent,
    Live,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    Mode,
    NotFound,
    Opening,
    OpeningFailed,
    PendingAsk,
    RaiseBudget,
    Recorded,
    RenameSession,
    RevokeGrant,
    Route,
    SendMessage,
    SessionClosed,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SessionView,
    SetCompaction,
    TurnEnded,
    TurnEvent,
    TurnFailed,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
    Who,
    session_stream,
)
from curtainwall.operations.lookup import find_session
from curtainwall.operations.open import complete_opening, open_new
from curtainwall.session import Diagnostic, SessionState, TranscriptTurn, diagnose, fold, transcript
from curtainwall.tools import Runner

_ROUTE = Route(channel="local", reference="library")
_LEFT_MESSAGE = "this program has left the session; `open_session(resume=…)` goes on with it"


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a message: the agent's text, how the turn stopped, what it used, and what it waits for."""

    text: str
    status: TurnStatus
    usage: tuple[Usage, ...]
    pending: tuple[PendingAsk, ...]


class Session:
    """One session. Other processes can see and answer the same session at the same time."""

    def __init__(self, work: RunningAgents, session: SessionId, by: Who, left: asyncio.Event) -> None:
        self.id = session
        self._left = left
        """Set when the program leaves the context that opened the session."""
        self._work = work
        self._by = by
        self._stream = session_stream(session)
        self._last_reported = work.wired.registry.feed.head(self._stream)
        """The last end of a turn that was reported to the program, or the end of the log before any."""
        self._unanswered: dict[MessageId, int] = {}
        """The program's messages without a complete reply, oldest first, each with the end of the log before it."""
        self._folded_state = SessionState()
        self._folded = 0
        self._last_started: tuple[TurnId, int] | None = None
        """The last turn that began, and the entry before it."""

    @property
    def info(self) -> SessionView:
        """Return the current view of the session."""
        return self._work.desk.view(self.id)

    @property
    def pending(self) -> tuple[PendingAsk, ...]:
        """Return the asks that wait for an answer."""
        return self.info.pending

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return the active grants."""
        return self.info.grants

    @property
    def budget(self) -> tuple[BudgetFigure, ...]:
        """Return how much of each budget is used, and how certain that is."""
        return self.info.budget

    @property
    def context(self) -> ContextUse:
        """Return how full the model's context is."""
        return self.info.context

    def timeline(self, after: int = 0) -> Sequence[Recorded]:
        """Return all recorded events, in order."""
        return self._work.wired.registry.feed.read(self._stream, after)

    def history(self) -> Sequence[TranscriptTurn]:
        """Return the turns so far: the messages, how each turn ended, what it used and how long it took."""
        return transcript(recorded.event for recorded in self.timeline()).turns

    def diagnostics(self) -> Sequence[Diagnostic]:
        """Return diagnostics about the session's work, under short stable names."""
        return [diagnostic for recorded in self.timeline() if (diagnostic := diagnose(recorded.event)) is not None]

    async def send(self, text: str) -> Reply:
        """Send a message and return the reply once the agent stops; raise `TurnFailed` if it could not work.

        A reply that is `waiting` says for what: `answer` it, and `go_on` returns the next reply.
        """
        message, cursor = await self._send_message(text)
        return await self._wait_for_stop(message, cursor)

    async def stream(self, text: str) -> AsyncGenerator[str]:
        """Send a message and yield the agent's text as it arrives; raise as `send` does."""
        async with self._work.live.listen(self.id) as live:
            message, cursor = await self._send_message(text)
            stopped = asyncio.create_task(self._wait_for_stop(message, cursor))
            shown_length, complete, turn = 0, list[int](), None
            try:
                while True:
                    next_update: asyncio.Task[Live] = asyncio.ensure_future(anext(live))  # pyright: ignore[reportArgumentType, reportUnknownMemberType, reportAssignmentType] - an iterator's next is awaitable
                    await asyncio.wait((next_update, stopped), return_when=asyncio.FIRST_COMPLETED)
                    if not next_update.done():
                        next_update.cancel()
                        break
                    if next_update.result().kind != "text":
                        continue
                    for recorded in self.timeline(cursor):
                        cursor = recorded.seq
                        event = recorded.event
                        if isinstance(event, TurnStarted) and message in event.messages:
                            turn = event.turn
                        elif isinstance(event, AgentSpoke) and event.turn == turn:
                            complete.append(len(event.text))
                    if turn is None or next_update.result().turn != turn:
                        # The text belongs to another turn, which answers another message.
                        continue
                    if complete and shown_length >= complete[0]:
                        # The previous message is complete: separate them with an empty line, as in a reply's text.
                        shown_length, complete = 0, complete[1:]
                        yield "\n\n"
                    shown_length += len(next_update.result().text)
                    yield next_update.result().text
                await stopped
            finally:
                stopped.cancel()

    async def go_on(self) -> Reply:
        """Return the reply to your oldest message without a complete reply; if its turn still waits, return a `waiting` reply.

        If you sent no message, return the reply of the turn that was running or waiting at the last report.
        """
        state = self._state
        if state.closed is not None:
            raise Closed("this session is closed")
        self._work.turns.attend(self.id)
        for message, cursor in self._unanswered.items():
            return self._waiting_reply(self._turn_of(message, cursor)) if _is_parked(state) else await self._wait_for_stop(message, cursor)
        if not any(isinstance(recorded.event, TurnEnded) for recorded in self.timeline(self._last_reported)):
            if _is_parked(state):
                return self._waiting_reply(state.turn)
            if state.turn is None and not state.queue:
                raise CommandRefused("no turn runs or waits here")
        return await self._wait_for_stop(None, self._last_reported)

    async def answer(self, approval: str, *, granted: bool, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> None:
        """Answer an open ask."""
        await self._send_command(AnswerApproval(by=self._by, approval=ApprovalId(approval), granted=granted, scope=scope, reason=reason))

    async def revoke(self, grant: str) -> None:
        """Revoke a grant."""
        await self._send_command(RevokeGrant(by=self._by, grant=GrantId(grant)))

    async def raise_budget(self, kind: BudgetKind, limit: float) -> None:
        """Raise a budget's limit."""
        await self._send_command(RaiseBudget(by=self._by, kind=kind, limit=limit))

    async def change_mode(self, mode: Mode) -> None:
        """Switch to another mode."""
        await self._send_command(ChangeMode(by=self._by, mode=mode))

    async def change_model(self, name: str) -> None:
        """Use another model from the next turn on."""
        await self._send_command(ChangeModel(by=self._by, model=name))

    async def rename(self, name: str) -> None:
        """Rename the session."""
        await self._send_command(RenameSession(by=self._by, name=name))

    async def inject(self, text: str) -> None:
        """Give the agent context without asking for a reply."""
        message = MessageId(self._work.wired.registry.mint())
        await self._send_command(SendMessage(by=self._by, message=message, text=text, role="context"))

    async def compact(self, instructions: str = "") -> None:
        """Have older messages replaced by a summary."""
        await self._send_command(AskCompaction(by=self._by, instructions=instructions))
        self._work.turns.attend(self.id)

    async def compact_at(self, threshold: float | None) -> None:
        """Compact when this share of the context is used; None means never."""
        await self._send_command(SetCompaction(by=self._by, threshold=threshold))

    async def interrupt(self) -> None:
        """Stop the turn; text that was shown is kept."""
        await self._send_command(InterruptTurn(by=self._by))

    async def fork(self, name: str = "") -> "Session":
        """Open a session with this one's history that continues separately."""
        opened = await self._work.desk.open(Opening(how="fork", of=self.id, name=name), self._by)
        return Session(self._work, opened.session, self._by, self._left)

    async def reset(self) -> "Session":
        """Open a session that starts afresh in the same workspace; it does not inherit grants."""
        opened = await self._work.desk.open(Opening(how="reset", of=self.id), self._by)
        return Session(self._work, opened.session, self._by, self._left)

    async def close(self, reason: str = "its program was done with it") -> None:
        """End the session; log and workspace stay. Closing twice is harmless."""
        with suppress(Closed):
            await self._send_command(CloseSession(by=self._by, reason=reason))
        await self._work.turns.leave(self.id)

    async def _send_command(self, command: AnyCommand) -> None:
        self._require_here()
        await self._work.desk.send(self.id, command)

    def _require_here(self) -> None:
        if self._left.is_set():
            raise Closed(_LEFT_MESSAGE)

    async def _send_message(self, text: str) -> tuple[MessageId, int]:
        self._require_here()
        message, cursor = MessageId(self._work.wired.registry.mint()), self._work.wired.registry.feed.head(self._stream)
        await self._send_command(SendMessage(by=self._by, message=message, text=text))
        self._unanswered[message] = cursor
        self._work.turns.attend(self.id)
        return message, cursor

    async def _wait_for_stop(self, message: MessageId | None, cursor: int) -> Reply:
        """Wait until the turn of a message, or any turn after the cursor, stops; raise `Closed` if the program leaves first."""
        stopped = asyncio.create_task(self._follow(message, cursor))
        left = asyncio.create_task(self._left.wait())
        try:
            await asyncio.wait((stopped, left), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                raise Closed(_LEFT_MESSAGE)
            return stopped.result()
        finally:
            stopped.cancel()
            left.cancel()
            await asyncio.gather(stopped, left, return_exceptions=True)

    async def _follow(self, message: MessageId | None, cursor: int) -> Reply:
        turn: TurnId | None = None
        async for recorded in self._work.wired.registry.feed.follow(self._stream, cursor):
            self._last_reported = max(self._last_reported, recorded.seq) if isinstance(recorded.event, TurnEnded) else self._last_reported
            event = recorded.event
            if not isinstance(event, LifeEvent | MessageEvent | TurnEvent | ApprovalEvent):
                continue
            match event:
                case TurnStarted():
                    if message is None or message in event.messages:
                        turn = event.turn
                case TurnEnded():
                    # While another turn waits for someone, the message waits too.
                    is_about_it = message is None or event.turn == turn or event.status is TurnStatus.WAITING
                    if is_about_it and not self._will_resume(event):
                        self._note_end(message, event.status)
                        return self._reply(event) if message is None or event.turn == turn else self._waiting_reply(turn)
                case MessageAccepted():
                    if event.message == message and _is_parked(self._state):
                        return self._waiting_reply(turn)
                case ApprovalAsked():
                    if self._state.is_held:
                        return self._waiting_reply(self._state.turn if message is None else turn)
                case MessageWithdrawn():
                    if event.message == message:
                        self._unanswered.pop(event.message, None)
                        raise CommandRefused("the message was withdrawn before the agent took it up")
                case SessionClosed():
                    raise Closed(f"this session is closed: {event.reason}")
                case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed() | SessionReopened():
                    pass
                case TurnResumed() | InterruptAsked():
                    pass
                case ApprovalJoined() | ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                    pass
                case _:
                    assert_never(event)
        raise NotFound(f"session `{self.id}` was deleted")

    @property
    def _state(self) -> SessionState:
        """The current state, folded from the last known one."""
        new_events = self.timeline(self._folded)
        for recorded in new_events:
            if isinstance(recorded.event, TurnStarted):
                self._last_started = (recorded.event.turn, recorded.seq - 1)
        if new_events:
            self._folded_state, self._folded = fold((recorded.event for recorded in new_events), self._folded_state), new_events[-1].seq
        return self._folded_state

    def _will_resume(self, ended: TurnEnded) -> bool:
        """Tell whether a turn that stopped has resumed, or will resume without anyone's help."""
        return ended.status is TurnStatus.WAITING and not (self._state.turn == ended.turn and _is_parked(self._state))

    def _note_end(self, message: MessageId | None, status: TurnStatus) -> None:
        """Forget a message with a complete reply and those before it: an agent handles messages in order."""
        if message is not None and message in self._unanswered and status is not TurnStatus.WAITING:
            count = list(self._unanswered).index(message) + 1
            self._unanswered = dict(list(self._unanswered.items())[count:])

    def _turn_of(self, message: MessageId, cursor: int) -> TurnId | None:
        """Return the turn that handles a message; None if the message is still queued."""
        started = (recorded.event for recorded in self.timeline(cursor) if isinstance(recorded.event, TurnStarted))
        return next((event.turn for event in started if message in event.messages), None)

    def _reply(self, ended: TurnEnded) -> Reply:
        if ended.status is TurnStatus.FAILED:
            raise TurnFailed(ended.failure)
        state, turn = self._state, self._transcript_of(ended.turn)
        return Reply(turn.text, ended.status, tuple(turn.usage), self.pending if state.approvals else ())

    def _waiting_reply(self, turn_id: TurnId | None) -> Reply:
        """Return the reply of a waiting turn; it is empty if the turn is None, because it has not begun."""
        turn = None if turn_id is None else self._transcript_of(turn_id)
        return Reply("" if turn is None else turn.text, TurnStatus.WAITING, () if turn is None else tuple(turn.usage), self.pending)

    def _transcript_of(self, turn_id: TurnId) -> TranscriptTurn:
        """Return the transcript of a turn; for the last turn, read nothing before it."""
        last_started = self._last_started
        events = self.timeline(last_started[1] if last_started is not None and last_started[0] == turn_id else 0)
        return next(turn for turn in transcript(recorded.event for recorded in events).turns if turn.turn == turn_id)


def _is_parked(state: SessionState) -> bool:
    """Tell whether nothing happens until someone answers or allows more."""
    if state.turn is None:
        return bool(state.queue and state.exhausted)
    if state.is_held:
        return True
    return state.turn_waits and not state.can_go_on


def _directory(workspace: Path | str) -> Path:
    """Return the directory that a program names; a missing one is probably a typo, so do not create it."""
    try:
        path = Path(workspace).expanduser()
    except RuntimeError:
        raise CommandRefused(f"the workspace `{workspace}` begins with the home directory of somebody who is not known here") from None
    if not path.is_dir():
        raise CommandRefused(f"the workspace `{workspace}` {'is no directory' if path.exists() else 'does not exist'}")
    return path


@asynccontextmanager
async def open_session(
    *,
    resume: str | None = None,
    agent: str = BUILTIN,
    model: str | LanguageModel | None = None,
    workspace: Path | str | None = None,
    name: str = "",
    mode: Mode | None = None,
    policy: Sequence[Path] = (),
    tools: Mapping[str, Runner] | None = None,
    parts: Parts | None = None,
) -> AsyncGenerator[Session]:
    """Open a new session, or resume one, and let its agent work until the context is left; the session outlives the context.

    `agent` and `model` are names, as on the command line; `model` can also be your own object. A resumed session keeps its agent, and its
    model unless you give one. `tools` replace our runners. Raise `OpeningFailed`.
    """
    async with AsyncExitStack() as stack:
        try:
            wired = await stack.enter_async_context(open_gate(load_setup(policy), tools, parts))
            await stack.enter_async_context(reported(wired))
            own = {} if model is None or isinstance(model, str) else {model.name: model}
            configured = model_finder(wired)

            def find_model(name: str) -> LanguageModel:
                return own.get(name) or configured(name)

            model_name = model if model is None or isinstance(model, str) else model.name
            spec = session_spec(wired, agent, model_name, None if workspace is None else _directory(workspace), mode, name, _ROUTE)
            work = await stack.enter_async_context(run_agents(wired, find_model, spec))
            agent_name = agent if resume is None else find_session(wired.store.index, resume).agent
            kind = work.agents.kind_of(agent_name)
            if resume is None or model is not None:
                # Check before opening anything: a missing model is the caller's mistake.
                kind.require_model(agent_name, spec.model if resume is None else model_name or spec.model)
            await kind.require_ready(agent_name)
            by = local_user()
            session = await open_new(wired.sessions, spec, by) if resume is None else find_session(wired.store.index, resume).session
            await complete_opening(wired.registry, session, by)
            if model_name is not None and wired.sessions.state(session).model != model_name:
                await wired.registry.send(session, ChangeModel(by=by, model=model_name))
            await stack.enter_async_context(ask_files_of(wired, session))
            await stack.enter_async_context(session_hooks(wired, session))
        except (CurtainwallError, OSError) as fault:
            raise OpeningFailed(f"the session could not be opened: {fault}") from fault
        work.turns.attend(session)
        left = asyncio.Event()
        try:
            yield Session(work, session, by, left)
        finally:
            # Wake other tasks that still wait: no reply would ever arrive for them.
            left.set()
