"""The library: a session as a Python program holds one, from its opening to its end."""

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

_HERE = Route(channel="local", reference="library")
_LEFT = "this program has left the session; `open_session(resume=…)` goes on with it"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a message: the agent's words, how the turn stopped, what it used, and what it waits for."""

    text: str
    status: TurnStatus
    usage: tuple[Usage, ...]
    pending: tuple[PendingAsk, ...]


class Session:
    """One session in the hands of a program. The same session can be seen and answered from other processes at the same time."""

    def __init__(self, work: RunningAgents, session: SessionId, by: Who, left: asyncio.Event) -> None:
        self.id = session
        self._left = left
        """Set when the program leaves the context in which the session was opened."""
        self._work = work
        self._by = by
        self._stream = session_stream(session)
        self._heard = work.wired.house.feed.head(self._stream)
        """The last stop of a turn that the program was told of, or where the log ended before any."""
        self._unanswered: dict[MessageId, int] = {}
        """The messages of this program that have no whole reply yet, oldest first, and where the log ended before each."""
        self._known = SessionState()
        self._folded = 0
        self._began: tuple[TurnId, int] | None = None
        """The turn that began last, and the entry before it."""

    @property
    def info(self) -> SessionView:
        """Return what the session is and what is open in it, as of now."""
        return self._work.desk.view(self.id)

    @property
    def pending(self) -> tuple[PendingAsk, ...]:
        """Return what waits for an answer."""
        return self.info.pending

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return the answers that stand."""
        return self.info.grants

    @property
    def budget(self) -> tuple[BudgetFigure, ...]:
        """Return what is used of each budget, and how sure that is."""
        return self.info.budget

    @property
    def context(self) -> ContextUse:
        """Return how full the model's context is."""
        return self.info.context

    def timeline(self, after: int = 0) -> Sequence[Recorded]:
        """Return everything that happened, in order."""
        return self._work.wired.house.feed.read(self._stream, after)

    def history(self) -> Sequence[TranscriptTurn]:
        """Return the turns so far: what was said, how each ended, what it used and how long it took."""
        return transcript(recorded.event for recorded in self.timeline()).turns

    def diagnostics(self) -> Sequence[Diagnostic]:
        """Return the news about the session's work, under short stable names."""
        return [told for recorded in self.timeline() if (told := diagnose(recorded.event)) is not None]

    async def send(self, text: str) -> Reply:
        """Say something and return what came of it once the agent stops; raise `TurnFailed` where it could not work.

        A reply that is `waiting` says for what: `answer` it, and `go_on` returns what came of that.
        """
        message, cursor = await self._say(text)
        return await self._stopped(message, cursor)

    async def stream(self, text: str) -> AsyncGenerator[str]:
        """Say something and yield the agent's text as it comes; raise as `send` does."""
        async with self._work.listening.listen(self.id) as live:
            message, cursor = await self._say(text)
            stopped = asyncio.create_task(self._stopped(message, cursor))
            shown, whole, turn = 0, list[int](), None
            try:
                while True:
                    heard: asyncio.Task[Live] = asyncio.ensure_future(anext(live))  # pyright: ignore[reportArgumentType, reportUnknownMemberType, reportAssignmentType] - an iterator's next is awaitable
                    await asyncio.wait((heard, stopped), return_when=asyncio.FIRST_COMPLETED)
                    if not heard.done():
                        heard.cancel()
                        break
                    if heard.result().kind != "text":
                        continue
                    for recorded in self.timeline(cursor):
                        cursor = recorded.seq
                        event = recorded.event
                        if isinstance(event, TurnStarted) and message in event.messages:
                            turn = event.turn
                        elif isinstance(event, AgentSpoke) and event.turn == turn:
                            whole.append(len(event.text))
                    if turn is None or heard.result().turn != turn:
                        # It is said in another turn, and answers another message.
                        continue
                    if whole and shown >= whole[0]:
                        # The message before this one is whole: an empty line tells them apart, as in a reply's text.
                        shown, whole = 0, whole[1:]
                        yield "\n\n"
                    shown += len(heard.result().text)
                    yield heard.result().text
                await stopped
            finally:
                stopped.cancel()

    async def go_on(self) -> Reply:
        """Return what came of your oldest message that has no whole reply; where it still waits, that.

        Where you sent none, it is about the turn that ran or waited when you last heard of it.
        """
        state = self._state
        if state.closed is not None:
            raise Closed("this session is closed")
        self._work.turns.attend(self.id)
        for message, cursor in self._unanswered.items():
            return self._waiting(self._turn_of(message, cursor)) if _is_parked(state) else await self._stopped(message, cursor)
        if not any(isinstance(recorded.event, TurnEnded) for recorded in self.timeline(self._heard)):
            if _is_parked(state):
                return self._waiting(state.turn)
            if state.turn is None and not state.queue:
                raise CommandRefused("no turn runs or waits here")
        return await self._stopped(None, self._heard)

    async def answer(self, approval: str, *, granted: bool, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> None:
        """Answer an open ask."""
        await self._do(AnswerApproval(by=self._by, approval=ApprovalId(approval), granted=granted, scope=scope, reason=reason))

    async def revoke(self, grant: str) -> None:
        """Take a standing answer back."""
        await self._do(RevokeGrant(by=self._by, grant=GrantId(grant)))

    async def raise_budget(self, kind: BudgetKind, limit: float) -> None:
        """Allow more of something."""
        await self._do(RaiseBudget(by=self._by, kind=kind, limit=limit))

    async def change_mode(self, mode: Mode) -> None:
        """Run in another mode."""
        await self._do(ChangeMode(by=self._by, mode=mode))

    async def change_model(self, name: str) -> None:
        """Use another model from the next turn on."""
        await self._do(ChangeModel(by=self._by, model=name))

    async def rename(self, name: str) -> None:
        """Give the session another name."""
        await self._do(RenameSession(by=self._by, name=name))

    async def inject(self, text: str) -> None:
        """Give the agent something to know, without asking for a reply."""
        message = MessageId(self._work.wired.house.mint())
        await self._do(SendMessage(by=self._by, message=message, text=text, role="context"))

    async def compact(self, instructions: str = "") -> None:
        """Have older messages replaced by a summary."""
        await self._do(AskCompaction(by=self._by, instructions=instructions))
        self._work.turns.attend(self.id)

    async def compact_at(self, threshold: float | None) -> None:
        """Compact when this share of the context is used; None is never."""
        await self._do(SetCompaction(by=self._by, threshold=threshold))

    async def interrupt(self) -> None:
        """Stop the turn; what was shown is kept."""
        await self._do(InterruptTurn(by=self._by))

    async def fork(self, name: str = "") -> "Session":
        """Open a session that knows what this one knows and goes its own way."""
        opened = await self._work.desk.open(Opening(how="fork", of=self.id, name=name), self._by)
        return Session(self._work, opened.session, self._by, self._left)

    async def reset(self) -> "Session":
        """Open a session that starts afresh in the same workspace; what was granted here stays here."""
        opened = await self._work.desk.open(Opening(how="reset", of=self.id), self._by)
        return Session(self._work, opened.session, self._by, self._left)

    async def close(self, reason: str = "its program was done with it") -> None:
        """End the session; log and workspace stay. Closing twice is harmless."""
        with suppress(Closed):
            await self._do(CloseSession(by=self._by, reason=reason))
        await self._work.turns.leave(self.id)

    async def _do(self, command: AnyCommand) -> None:
        self._require_here()
        await self._work.desk.send(self.id, command)

    def _require_here(self) -> None:
        if self._left.is_set():
            raise Closed(_LEFT)

    async def _say(self, text: str) -> tuple[MessageId, int]:
        self._require_here()
        message, cursor = MessageId(self._work.wired.house.mint()), self._work.wired.house.feed.head(self._stream)
        await self._do(SendMessage(by=self._by, message=message, text=text))
        self._unanswered[message] = cursor
        self._work.turns.attend(self.id)
        return message, cursor

    async def _stopped(self, message: MessageId | None, cursor: int) -> Reply:
        """Return how the turn stopped that took up a message, or any turn, after the cursor; raise `Closed` if the program leaves first."""
        stopped = asyncio.create_task(self._follow(message, cursor))
        left = asyncio.create_task(self._left.wait())
        try:
            await asyncio.wait((stopped, left), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                raise Closed(_LEFT)
            return stopped.result()
        finally:
            stopped.cancel()
            left.cancel()
            await asyncio.gather(stopped, left, return_exceptions=True)

    async def _follow(self, message: MessageId | None, cursor: int) -> Reply:
        turn: TurnId | None = None
        async for recorded in self._work.wired.house.feed.follow(self._stream, cursor):
            self._heard = max(self._heard, recorded.seq) if isinstance(recorded.event, TurnEnded) else self._heard
            event = recorded.event
            if not isinstance(event, LifeEvent | MessageEvent | TurnEvent | ApprovalEvent):
                continue
            match event:
                case TurnStarted():
                    if message is None or message in event.messages:
                        turn = event.turn
                case TurnEnded():
                    # Behind a turn that waits for somebody, a message waits as well.
                    is_about_it = message is None or event.turn == turn or event.status is TurnStatus.WAITING
                    if is_about_it and not self._goes_on(event):
                        self._note_end(message, event.status)
                        return self._reply(event) if message is None or event.turn == turn else self._waiting(turn)
                case MessageAccepted():
                    if event.message == message and _is_parked(self._state):
                        return self._waiting(turn)
                case ApprovalAsked():
                    if self._state.is_held:
                        return self._waiting(self._state.turn if message is None else turn)
                case MessageWithdrawn():
                    if event.message == message:
                        self._unanswered.pop(event.message, None)
                        raise CommandRefused("the message was withdrawn before the agent took it up")
                case SessionClosed():
                    raise Closed(f"this session is closed: {event.reason}")
                case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed() | TurnResumed() | InterruptAsked():
                    pass
                case ApprovalJoined() | ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                    pass
                case _:
                    assert_never(event)
        raise NotFound(f"session `{self.id}` was deleted")

    @property
    def _state(self) -> SessionState:
        """The state as of now, folded on from where it was last looked at."""
        news = self.timeline(self._folded)
        for recorded in news:
            if isinstance(recorded.event, TurnStarted):
                self._began = (recorded.event.turn, recorded.seq - 1)
        if news:
            self._known, self._folded = fold((recorded.event for recorded in news), self._known), news[-1].seq
        return self._known

    def _goes_on(self, ended: TurnEnded) -> bool:
        """Tell whether a turn that stopped was taken up again, or will be without anyone's help."""
        return ended.status is TurnStatus.WAITING and not (self._state.turn == ended.turn and _is_parked(self._state))

    def _note_end(self, message: MessageId | None, status: TurnStatus) -> None:
        """Forget a message that got its whole reply, and those before it: a later one is only taken up after them."""
        if message is not None and message in self._unanswered and status is not TurnStatus.WAITING:
            done = list(self._unanswered).index(message) + 1
            self._unanswered = dict(list(self._unanswered.items())[done:])

    def _turn_of(self, message: MessageId, cursor: int) -> TurnId | None:
        """Return the turn that took a message up; None where it still waits for one."""
        started = (recorded.event for recorded in self.timeline(cursor) if isinstance(recorded.event, TurnStarted))
        return next((event.turn for event in started if message in event.messages), None)

    def _reply(self, ended: TurnEnded) -> Reply:
        if ended.status is TurnStatus.FAILED:
            raise TurnFailed(ended.failure)
        state, turn = self._state, self._turn(ended.turn)
        return Reply(turn.text, ended.status, tuple(turn.usage), self.pending if state.approvals else ())

    def _waiting(self, wanted: TurnId | None) -> Reply:
        """Return what a turn that waits has come to; None is one that has not begun, and has nothing to say yet."""
        turn = None if wanted is None else self._turn(wanted)
        return Reply("" if turn is None else turn.text, TurnStatus.WAITING, () if turn is None else tuple(turn.usage), self.pending)

    def _turn(self, wanted: TurnId) -> TranscriptTurn:
        """Return a turn as people read it; where it is the last one, nothing before it is read."""
        began = self._began
        events = self.timeline(began[1] if began is not None and began[0] == wanted else 0)
        return next(turn for turn in transcript(recorded.event for recorded in events).turns if turn.turn == wanted)


def _is_parked(state: SessionState) -> bool:
    """Tell whether nothing goes on until somebody answers or allows more."""
    if state.turn is None:
        return bool(state.queue and state.exhausted)
    if state.is_held:
        return True
    return state.turn_waits and not state.can_go_on


def _directory(workspace: Path | str) -> Path:
    """Return the directory that a program names; one that is not there is a typing error, not an empty place."""
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
    """Open a session, or one that was opened before, and let its agent work until the context is left; the session outlives it.

    `agent` and `model` are names, as on the command line, or the latter a model of your own; a session that goes on keeps its agent, and
    without a name its model. `tools` are runners in place of ours. Raise `OpeningFailed`.
    """
    async with AsyncExitStack() as stack:
        try:
            wired = await stack.enter_async_context(open_gate(load_setup(policy), tools, parts))
            own = {} if model is None or isinstance(model, str) else {model.name: model}
            found = model_finder(wired)

            def find_model(name: str) -> LanguageModel:
                return own.get(name) or found(name)

            told = model if model is None or isinstance(model, str) else model.name
            wanted = session_spec(wired, agent, told, None if workspace is None else _directory(workspace), mode, name, _HERE)
            work = await stack.enter_async_context(run_agents(wired, find_model, wanted))
            who = agent if resume is None else find_session(wired.store.index, resume).agent
            kind = work.crew.kind_of(who)
            if resume is None or model is not None:
                # Before anything is opened: a model that is not there is the caller's mistake.
                kind.require_model(who, wanted.model if resume is None else told or wanted.model)
            await kind.require_ready(who)
            by = local_user()
            session = await open_new(wired.sessions, wanted, by) if resume is None else find_session(wired.store.index, resume).session
            await complete_opening(wired.house, session, by)
            if told is not None and wired.sessions.state(session).model != told:
                await wired.house.send(session, ChangeModel(by=by, model=told))
            await stack.enter_async_context(ask_files_of(wired, session))
            await stack.enter_async_context(session_hooks(wired, session))
        except (CurtainwallError, OSError) as fault:
            raise OpeningFailed(f"the session could not be opened: {fault}") from fault
        work.turns.attend(session)
        left = asyncio.Event()
        try:
            yield Session(work, session, by, left)
        finally:
            # Whoever still waits in another task is told first: nothing would ever come for them.
            left.set()
