"""The replies to a program's messages in one session: which of them are complete, and waiting for the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from curtainwall.model import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    Closed,
    CommandRefused,
    Feed,
    HistoryInherited,
    InterruptAsked,
    LifeEvent,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    NotFound,
    PendingAsk,
    Recorded,
    SessionClosed,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    TurnEnded,
    TurnEvent,
    TurnFailed,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
    record,
    session_stream,
)
from curtainwall.session import SessionState, TranscriptTurn, fold, transcript

LEFT_MESSAGE = "this program has left the session; `open_session(resume=…)` goes on with it"


@record
class Reply:
    """The reply to a message: the agent's text, how the turn stopped, what it used, and what it waits for."""

    text: str
    status: TurnStatus
    usage: tuple[Usage, ...]
    pending: tuple[PendingAsk, ...]


class Replies:
    """Waits for replies in one session, and knows which of the program's messages have none yet."""

    def __init__(
        self,
        feed: Feed,
        session: SessionId,
        timeline: Callable[[int], Sequence[Recorded]],
        pending: Callable[[], tuple[PendingAsk, ...]],
        decide_asks: Callable[[], Awaitable[None]] | None,
        left: asyncio.Event,
    ) -> None:
        self._feed = feed
        self._session = session
        self._stream = session_stream(session)
        self._timeline = timeline
        self._pending = pending
        self._decide_asks = decide_asks
        self._left = left
        self._last_reported = feed.head(self._stream)
        """The last end of a turn that was reported to the program, or the end of the log before any."""
        self._unanswered: dict[MessageId, int] = {}
        """The program's messages without a complete reply, oldest first, each with the end of the log before it."""
        self._folded_state = SessionState()
        self._folded = 0
        self._last_started: tuple[TurnId, int] | None = None
        """The last turn that began, and the entry before it."""

    def expect(self, message: MessageId, cursor: int) -> None:
        """Expect a reply to a message that was sent when the log ended at the cursor."""
        self._unanswered[message] = cursor

    async def next(self) -> Reply:
        """Return the reply to the oldest message without one, or else to the turn that ran or waited at the last report."""
        state = await self._after_asks()
        for message, cursor in self._unanswered.items():
            return self._waiting_reply(self._turn_of(message, cursor)) if _is_parked(state) else await self.to(message, cursor)
        if not any(isinstance(recorded.event, TurnEnded) for recorded in self._timeline(self._last_reported)):
            if _is_parked(state):
                return self._waiting_reply(state.turn)
            if state.turn is None and not state.queue:
                raise CommandRefused("no turn runs or waits here")
        return await self.to(None, self._last_reported)

    async def to(self, message: MessageId | None, cursor: int) -> Reply:
        """Wait until the turn of a message, or any turn after the cursor, stops; raise `Closed` if the program leaves first."""
        stopped = asyncio.create_task(self._follow(message, cursor))
        left = asyncio.create_task(self._left.wait())
        try:
            await asyncio.wait((stopped, left), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                raise Closed(LEFT_MESSAGE)
            return stopped.result()
        finally:
            stopped.cancel()
            left.cancel()
            await asyncio.gather(stopped, left, return_exceptions=True)

    async def _follow(self, message: MessageId | None, cursor: int) -> Reply:
        turn: TurnId | None = None
        async for recorded in self._feed.follow(self._stream, cursor):
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
                    if is_about_it and event.status is TurnStatus.WAITING:
                        await self._after_asks()
                    if is_about_it and not self._will_resume(event):
                        self._note_end(message, event.status)
                        return self._reply(event) if message is None or event.turn == turn else self._waiting_reply(turn)
                case MessageAccepted():
                    if event.message == message and _is_parked(await self._after_asks()):
                        return self._waiting_reply(turn)
                case ApprovalAsked():
                    if (await self._after_asks()).is_held:
                        return self._waiting_reply(self.state.turn if message is None else turn)
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
        raise NotFound(f"session `{self._session}` was deleted")

    @property
    def state(self) -> SessionState:
        """The current state, folded from the last known one."""
        new_events = self._timeline(self._folded)
        for recorded in new_events:
            if isinstance(recorded.event, TurnStarted):
                self._last_started = (recorded.event.turn, recorded.seq - 1)
        if new_events:
            self._folded_state, self._folded = fold((recorded.event for recorded in new_events), self._folded_state), new_events[-1].seq
        return self._folded_state

    def _will_resume(self, ended: TurnEnded) -> bool:
        """Tell whether a turn that stopped has resumed, or will resume without anyone's help."""
        return ended.status is TurnStatus.WAITING and not (self.state.turn == ended.turn and _is_parked(self.state))

    def _note_end(self, message: MessageId | None, status: TurnStatus) -> None:
        """Forget a message with a complete reply and those before it: an agent handles messages in order."""
        if message is not None and message in self._unanswered and status is not TurnStatus.WAITING:
            count = list(self._unanswered).index(message) + 1
            self._unanswered = dict(list(self._unanswered.items())[count:])

    def _turn_of(self, message: MessageId, cursor: int) -> TurnId | None:
        """Return the turn that handles a message; None if the message is still queued."""
        started = (recorded.event for recorded in self._timeline(cursor) if isinstance(recorded.event, TurnStarted))
        return next((event.turn for event in started if message in event.messages), None)

    def _reply(self, ended: TurnEnded) -> Reply:
        if ended.status is TurnStatus.FAILED:
            raise TurnFailed(ended.failure)
        state, turn = self.state, self._transcript_of(ended.turn)
        return Reply(turn.text, ended.status, tuple(turn.usage), self._pending() if state.approvals else ())

    def _waiting_reply(self, turn_id: TurnId | None) -> Reply:
        """Return the reply of a waiting turn; it is empty if the turn is None, because it has not begun."""
        turn = None if turn_id is None else self._transcript_of(turn_id)
        return Reply("" if turn is None else turn.text, TurnStatus.WAITING, () if turn is None else tuple(turn.usage), self._pending())

    def _transcript_of(self, turn_id: TurnId) -> TranscriptTurn:
        """Return the transcript of a turn; for the last turn, read nothing before it."""
        last_started = self._last_started
        events = self._timeline(last_started[1] if last_started is not None and last_started[0] == turn_id else 0)
        return next(turn for turn in transcript(recorded.event for recorded in events).turns if turn.turn == turn_id)

    async def _after_asks(self) -> SessionState:
        """Return the state once the program's own function has decided about every open ask, or passed it on."""
        if self._decide_asks is not None and self.state.approvals:
            await self._decide_asks()
        return self.state


def _is_parked(state: SessionState) -> bool:
    """Tell whether nothing happens until someone answers or allows more."""
    if state.turn is None:
        return bool(state.queue and state.exhausted)
    if state.is_held:
        return True
    return state.turn_waits and not state.can_go_on
