"""Sessions for Python programs: open one, talk to its agent, answer its asks, and close it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from curtainwall.agents.builtin.prompt import instructions_digest
from curtainwall.compose.agents import ModelOf, RunningAgents
from curtainwall.config.agents import BUILTIN
from curtainwall.library.arguments import build, choose, require
from curtainwall.library.asks import AskAnswer, AskWatch, OnAsk
from curtainwall.library.live_events import LiveEvent, LiveUpdate, LiveView, events_until
from curtainwall.library.replies import LEFT_MESSAGE, Replies, Reply
from curtainwall.model import (
    PROGRAM_INSTRUCTIONS,
    PROGRAM_NOTES,
    SYSTEM,
    AgentSpoke,
    AnswerApproval,
    AnyCommand,
    ApprovalId,
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
    ExtensionNoted,
    Grant,
    GrantScope,
    InstructionsPinned,
    InterruptTurn,
    Live,
    MessageId,
    Mode,
    Opening,
    PendingAsk,
    RaiseBudget,
    Recorded,
    RecordProgress,
    RenameSession,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionView,
    SetCompaction,
    StepsAsked,
    TurnStarted,
    Who,
    session_stream,
)
from curtainwall.session import Diagnostic, DiagnosticLog, TranscriptNote, TranscriptTurn, note_of, transcript

if TYPE_CHECKING:
    # Start-up time: few programs take changes back.
    from curtainwall.operations.history import StepOutcome

_LARGEST_NOTE = 64 * 1024


@dataclass(slots=True)
class Embedding:
    """The common part of a context's sessions: the program's own parts, and the tasks that end with the context."""

    model_of: ModelOf
    on_ask: OnAsk | None = None
    system_prompt: str | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the program leaves the context that opened the session."""
    tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    async def leave(self) -> None:
        """End the tasks, and wake other tasks that still wait: no reply would ever arrive for them."""
        self.left.set()
        for task in (tasks := tuple(self.tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Session:
    """One session. Other processes can see and answer the same session at the same time."""

    def __init__(self, work: RunningAgents, session: SessionId, by: Who, embedding: Embedding) -> None:
        self.id = session
        self._embedding = embedding
        self._left = embedding.left
        self._work = work
        self._by = by
        self._stream = session_stream(session)
        self._is_closed = False
        """Closed by this object, which may be asked to close it once more after its program has left."""
        feed = work.wired.registry.feed
        asks = None if embedding.on_ask is None else AskWatch(embedding.on_ask, lambda: self.pending, self._answer_ask)
        if asks is not None:
            watch = asyncio.create_task(asks.follow(feed, self._stream), name=f"on_ask of {session}")
            embedding.tasks.add(watch)
            watch.add_done_callback(embedding.tasks.discard)
        self._replies = Replies(feed, session, self.timeline, lambda: self.pending, None if asks is None else asks.decided, self._left)

    @property
    def info(self) -> SessionView:
        """Return the current view of the session."""
        self._require_here()
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
        """Return how full the model's context is: estimated before a request, measured after the reply, smaller after a summary."""
        info = self.info
        if info.context.size or info.agent != BUILTIN:
            return info.context
        try:
            return info.context.model_copy(update={"size": self._embedding.model_of(info.model).context_size})
        except CurtainwallError:
            # The session's model is gone, and the next turn will say so.
            return info.context

    def timeline(self, after: int = 0) -> Sequence[Recorded]:
        """Return all recorded events, in order."""
        self._require_here()
        return self._work.wired.registry.feed.read(self._stream, require("after", after, int))

    def history(self) -> Sequence[TranscriptTurn]:
        """Return the turns so far: the messages, how each turn ended, what it used and how long it took."""
        return transcript(recorded.event for recorded in self.timeline()).turns

    def notes(self) -> Sequence[TranscriptNote]:
        """Return the notes that programs wrote into the history."""
        return [note for recorded in self.timeline() if (note := note_of(recorded.event)) is not None]

    async def note(self, text: str, details: Mapping[str, JsonValue] | None = None) -> None:
        """Write a note into the history, for people and programs; the agent does not see it, and secrets in it are masked."""
        noted: dict[str, JsonValue] = {"text": require("text", text, str), "by": str(self._by)}
        if details is not None:
            noted["details"] = _json_object("details", details)
        if len(json.dumps(noted)) > _LARGEST_NOTE:
            raise CommandRefused(f"a note has {_LARGEST_NOTE // 1024} KiB at most")
        data = cast("dict[str, JsonValue]", self._work.wired.masker.mask_json(noted))
        now = self._work.wired.registry.clock.now()
        await self._record(ExtensionNoted(at=now, extension=PROGRAM_NOTES, data=data))

    def diagnostics(self) -> Sequence[Diagnostic]:
        """Return diagnostics about the session's work, under short stable names, with the tool and a preview."""
        log = DiagnosticLog(self._work.journal.load)
        return [diagnostic for recorded in self.timeline() if (diagnostic := log.take(recorded.event)) is not None]

    async def events(self) -> AsyncGenerator[LiveEvent]:
        """Yield what happens from now on: text as it arrives, calls, asks, the context, turns and diagnostics.

        It ends when the session is closed, or the program leaves it.
        """
        self._require_here()
        left = asyncio.create_task(self._left.wait())
        try:
            async with (
                self._work.live.listen(self.id) as live,
                aclosing(self._updates(live, self._head)) as updates,
                aclosing(events_until(updates, left)) as events,
            ):
                async for event in events:
                    yield event
        finally:
            left.cancel()

    async def stream_events(self, text: str) -> AsyncGenerator[LiveEvent]:
        """Send a message and yield what happens until the agent stops; raise as `send` does."""
        self._require_here()
        async with self._work.live.listen(self.id) as live:
            before = self._head
            message, cursor = await self._send_message(text)
            stopped = asyncio.create_task(self._replies.to(message, cursor))
            try:
                async with (
                    aclosing(self._updates(live, before)) as updates,
                    aclosing(events_until(updates, stopped, lambda: self._head)) as events,
                ):
                    async for event in events:
                        yield event
                await stopped
            finally:
                stopped.cancel()

    def _updates(self, live: AsyncIterator[Live], after: int) -> AsyncGenerator[LiveUpdate]:
        """Return the live text, and the log after an entry, as live events."""
        known = {call: open_call.subject.tool for call, open_call in self._replies.state.calls.items()}
        view = LiveView(lambda: self.pending, DiagnosticLog(self._work.journal.load, known), self.context.size)
        return view.updates(live, self._work.wired.registry.feed.follow(self._stream, after))

    @property
    def _head(self) -> int:
        return self._work.wired.registry.feed.head(self._stream)

    async def send(self, text: str) -> Reply:
        """Send a message and return the reply once the agent stops; raise `TurnFailed` if it could not work.

        A reply that is `waiting` says for what: `answer` it, and `go_on` returns the next reply.
        """
        message, cursor = await self._send_message(text)
        return await self._replies.to(message, cursor)

    async def stream(self, text: str) -> AsyncGenerator[str]:
        """Send a message and yield the agent's text as it arrives; raise as `send` does."""
        async with self._work.live.listen(self.id) as live:
            message, cursor = await self._send_message(text)
            stopped = asyncio.create_task(self._replies.to(message, cursor))
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
        self._require_here()
        if self._replies.state.closed is not None:
            raise Closed("this session is closed")
        self._work.turns.attend(self.id)
        return await self._replies.next()

    async def answer(self, approval: str, *, granted: bool, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> None:
        """Answer an open ask."""
        chosen = choose("scope", scope, GrantScope)
        await self._send_command(build(AnswerApproval, by=self._by, approval=approval, granted=granted, scope=chosen, reason=reason))

    async def revoke(self, grant: str) -> None:
        """Revoke a grant."""
        await self._send_command(build(RevokeGrant, by=self._by, grant=grant))

    async def raise_budget(self, kind: BudgetKind, limit: float) -> None:
        """Raise a budget's limit."""
        await self._send_command(build(RaiseBudget, by=self._by, kind=choose("kind", kind, BudgetKind), limit=limit))

    async def change_mode(self, mode: Mode) -> None:
        """Switch to another mode."""
        await self._send_command(build(ChangeMode, by=self._by, mode=choose("mode", mode, Mode)))

    async def change_model(self, name: str) -> None:
        """Use another model from the next turn on."""
        await self._send_command(build(ChangeModel, by=self._by, model=require("name", name, str)))

    async def rename(self, name: str) -> None:
        """Rename the session."""
        await self._send_command(build(RenameSession, by=self._by, name=name))

    async def inject(self, text: str) -> None:
        """Give the agent context without asking for a reply."""
        message = MessageId(self._work.wired.registry.mint())
        await self._send_command(build(SendMessage, by=self._by, message=message, text=text, role="context"))

    async def compact(self, instructions: str = "") -> None:
        """Have older messages replaced by a summary."""
        await self._send_command(build(AskCompaction, by=self._by, instructions=instructions))
        self._work.turns.attend(self.id)

    async def compact_at(self, threshold: float | None) -> None:
        """Compact when this share of the context is used; None means never."""
        await self._send_command(build(SetCompaction, by=self._by, threshold=threshold))

    async def interrupt(self) -> None:
        """Stop the turn; text that was shown is kept. If no turn runs or waits, nothing happens."""
        self._require_here()
        state = self._replies.state
        if state.closed is not None:
            raise Closed(f"this session is closed: {state.closed}")
        if state.turn is None:
            return
        turn = state.turn
        try:
            await self._send_command(InterruptTurn(by=self._by, turn=turn))
        except CommandRefused:
            # The turn may have ended meanwhile.
            if self._replies.state.turn == turn:
                raise

    async def fork(self, name: str = "") -> "Session":
        """Open a session with this one's history that continues separately."""
        self._require_here()
        opened = await self._work.desk.open(build(Opening, how="fork", of=self.id, name=name), self._by)
        return Session(self._work, opened.session, self._by, self._embedding)

    async def reset(self) -> "Session":
        """Open a session that starts afresh in the same workspace; it does not inherit grants."""
        self._require_here()
        opened = await self._work.desk.open(Opening(how="reset", of=self.id), self._by)
        if self._embedding.system_prompt is not None:
            await give_instructions(self._work, opened.session, self._embedding.system_prompt)
        return Session(self._work, opened.session, self._by, self._embedding)

    async def undo(self, steps: int = 1, *, force: bool = False) -> "Sequence[StepOutcome]":
        """Take back what was accepted and applied last; raise if a file was changed since, unless `force` is set, which overwrites it."""
        return await self._move(StepsAsked(count=require("steps", steps, int), force=require("force", force, bool)))

    async def redo(self, steps: int = 1, *, force: bool = False) -> "Sequence[StepOutcome]":
        """Apply again what was last taken back; raise if a file was changed since, unless `force` is set, which overwrites it."""
        return await self._move(StepsAsked(redo=True, count=require("steps", steps, int), force=require("force", force, bool)))

    async def _move(self, asked: StepsAsked) -> "Sequence[StepOutcome]":
        self._require_here()
        history = self._work.wired.history()
        return await history.carry_out(await history.plan(self.id, self._by, asked), self._by)

    async def close(self, reason: str = "its program was done with it") -> None:
        """End the session; log and workspace stay. Closing twice is harmless."""
        if self._is_closed and self._left.is_set():
            return
        self._require_here()
        with suppress(Closed):
            await self._send_command(build(CloseSession, by=self._by, reason=reason))
        self._is_closed = True
        await self._work.turns.leave(self.id)

    async def _send_command(self, command: AnyCommand) -> None:
        self._require_here()
        await self._work.desk.send(self.id, command)

    async def _answer_ask(self, approval: ApprovalId, decision: AskAnswer) -> None:
        await self.answer(approval, granted=decision.granted, scope=decision.scope, reason=decision.reason)

    async def _record(self, event: ExtensionNoted) -> None:
        self._require_here()
        await self._work.wired.registry.send(self.id, RecordProgress(by=SYSTEM, events=(event,)))

    def _require_here(self) -> None:
        if self._left.is_set():
            raise Closed(LEFT_MESSAGE)

    async def _send_message(self, text: str) -> tuple[MessageId, int]:
        self._require_here()
        message, cursor = MessageId(self._work.wired.registry.mint()), self._head
        command = build(SendMessage, by=self._by, message=message, text=text)
        if not text.strip():
            # Providers refuse an empty message, and its turn would fail.
            raise CommandRefused("there is nothing to send")
        await self._send_command(command)
        self._replies.expect(message, cursor)
        self._work.turns.attend(self.id)
        return message, cursor


async def give_instructions(work: RunningAgents, session: SessionId, text: str) -> None:
    """Have the agent follow the program's own instructions in a session, in place of earlier ones; secrets in them are masked."""
    masked = work.wired.masker.mask_text(text)
    now, digest = work.wired.registry.clock.now(), instructions_digest(masked)
    pinned = InstructionsPinned(at=now, path=PROGRAM_INSTRUCTIONS, digest=digest, text=await work.journal.keep(masked))
    await work.wired.registry.send(session, RecordProgress(by=SYSTEM, events=(pinned,)))


def _json_object(name: str, value: object) -> dict[str, JsonValue]:
    """Return a mapping that can be written as JSON; raise `CommandRefused`."""
    try:
        copy = json.loads(json.dumps(require(name, value, Mapping), allow_nan=False))  # pyright: ignore[reportUnknownArgumentType] - from a program
    except (TypeError, ValueError, RecursionError):
        raise CommandRefused(f"`{name}` cannot be written as JSON") from None
    return cast("dict[str, JsonValue]", copy)
