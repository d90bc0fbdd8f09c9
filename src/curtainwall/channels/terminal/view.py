"""One session on a screen: its events as rendered text, and the changing lines above and below the input. Decides nothing."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import assert_never

from curtainwall.channels.asks.cards import ask_in_a_line, call_in_words, card_lines
from curtainwall.channels.asks.event_lines import EventLine, describe_change, describe_event
from curtainwall.channels.conversation import QUEUED, SO_FAR, StreamedMessage, Utterance, recent_utterances
from curtainwall.channels.plain import short
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash.lines import used_words
from curtainwall.channels.terminal.asks import key_words, keys_of
from curtainwall.channels.terminal.output import whole_blocks
from curtainwall.channels.terminal.prompt import Frame, KeyOffer
from curtainwall.channels.terminal.renderer import Renderer
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    BudgetKind,
    InterruptAsked,
    Live,
    MessageAccepted,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NotFound,
    PendingAsk,
    SessionId,
    SessionView,
    SpeechEvent,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Who,
)
from curtainwall.operations.activity import SessionActivity, past_activity

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_MILLIS = 100


def status_line(view: SessionView, width: int) -> str:
    """Return model, mode, context, money and open asks; if space is short, money is dropped first and asks last."""
    parts = {"model": view.model, "mode": f"mode {view.mode}", "context": "", "money": "", "asks": ""}
    if view.context.size > 0:
        parts["context"] = f"context {'' if view.context.measured else '~'}{view.context.used / view.context.size:.0%}"
    for figure in view.budget:
        if figure.kind is BudgetKind.DOLLARS:
            parts["money"] = used_words(figure).replace("unknown", "$?")
    urgent = [f"{len(view.pending)} open {'ask' if len(view.pending) == 1 else 'asks'}"] if view.pending else []
    parts["asks"] = " · ".join([*urgent, *(f"no {kind} left" for kind in view.exhausted)])
    for least in ("", "money", "context", "model", "mode"):
        parts.pop(least, None)
        line = " · ".join(part for part in parts.values() if part)
        if len(line) <= width:
            break
    return short(line, width)


def doing_line(activity: SessionActivity, doing: str, elapsed: int, width: int) -> str:
    """Return what is running, with a spinner; "" if nothing is."""
    if not activity.works:
        return ""
    running = [call_in_words(subject, 60) for subject in activity.running.values()]
    what = "stopping" if activity.interrupting else " + ".join(running) or doing or "thinking"
    hint = "Ctrl-C again leaves" if activity.interrupting else "Ctrl-C interrupts"
    frame = _FRAMES[elapsed // _FRAME_MILLIS % len(_FRAMES)]
    full = f"{frame} {what}  ({hint})"
    return short(full if len(full) <= width else f"{frame} {what}", width)


def asks_lines(asks: list[PendingAsk], width: int, *, keys: bool) -> list[str]:
    """Return how the open asks can be answered."""
    if not asks:
        return []
    if len(asks) == 1:
        ask = asks[0].approval
        if not keys:
            return _folded((f"{ask} waits:", f"`/approve {ask} [session|project]`", f"or `/deny {ask} [reason]`"), " ", width)
        first, *others = key_words(asks[0])
        return _folded((f"{ask}? {first}", *others), " · ", width)
    rows = [ask_in_a_line(ask, max(width - 2, 1)) for ask in asks[:5]]
    more = [f"and {len(asks) - 5} more"] if len(asks) > 5 else []
    return [short(f"{len(asks)} asks wait: `/approve ID`, `/deny ID`", width), *(f"  {row}" for row in rows), *more]


def _folded(parts: Sequence[str], between: str, width: int) -> list[str]:
    """Join parts into as few lines as possible without breaking any of them."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(between) + len(part) <= width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return [short(line, width) for line in lines]


_LONG_TAIL = 4_000
_EARLIER = 6
_EARLIER_LETTERS = 600
_OTHER_ROWS = 12
_FEWEST_ROWS = 3


class ConversationView:
    """One person's view of a session, one session at a time."""

    def __init__(self, line: ChannelPorts, who: Who, session: SessionId) -> None:
        self._line = line
        self._who = who
        self._begin(session)

    def _begin(self, session: SessionId) -> None:
        self.session = session
        self.activity = SessionActivity()
        self.cursor = 0
        self.view = self._line.desk.view(session)
        self._streamed = StreamedMessage()
        self._doing = ""
        self._is_retrying = False

    def open(self, session: SessionId, renderer: Renderer) -> str:
        """Switch to a session, and return its last messages, shortened, and its open asks."""
        self._begin(session)
        self.activity, self.cursor = past_activity(self._line.desk, self._line.feed, session)
        view = self.view
        where = "its own workspace" if view.workspace.own else view.workspace.path
        head = renderer.rows(f"{view.name} · session {session} · {view.model} · {where}", "bold")
        recent = recent_utterances(self._line.feed, session, _EARLIER + 1)
        messages = [message for message in recent if message.end not in (QUEUED, SO_FAR)]
        cards = (self._card(approval, renderer) for approval in self.activity.asks)
        return "".join([head, *_earlier(messages, renderer), *cards])

    def refresh(self) -> SessionView:
        """Refresh the session's state; a deleted session keeps its last one."""
        with suppress(NotFound):
            self.view = self._line.desk.view(self.session)
        return self.view

    def add_live_text(self, live: Live, renderer: Renderer) -> str:
        """Add live text, and return the blocks that are now complete."""
        if live.kind != "text":
            self._doing, self._is_retrying = live.text, live.kind == "again"
            return ""
        self._end_retry()
        self._streamed.add_live(live.text)
        return self._whole(renderer)

    def _end_retry(self) -> None:
        """Forget the retry notice: the retry has succeeded or failed."""
        if self._is_retrying:
            self._doing, self._is_retrying = "", False

    def apply(self, event: AnyEvent, renderer: Renderer) -> str:
        """Apply one event, and return what to show for it."""
        output: list[str] = []
        if isinstance(event, SpeechEvent | TurnEvent | ModelEvent):
            output += self._spoken(event, renderer)
        line = describe_event(event, self.activity) or describe_change(event, self._who)
        if line is not None:
            output.append(renderer.event_line(line))
        self.activity.take(event)
        if isinstance(event, ApprovalAsked):
            output.append(self._card(event.approval, renderer))
        if isinstance(event, TurnEnded) and event.status is not TurnStatus.WAITING:
            output.append(self._changes(renderer))
        return "".join(output)

    def _spoken(self, event: SpeechEvent | TurnEvent | ModelEvent, renderer: Renderer) -> list[str]:
        """Return the spoken text that the event makes visible."""
        match event:
            case TextStreamed():
                self._streamed.logged(event.text)
                return [self._whole(renderer)]
            case AgentSpoke():
                return [_text(self._streamed.spoke(event.text), renderer)]
            case ModelResponded():
                self._end_retry()
                return []
            case ModelFailed():
                if self.activity.holds_calls:
                    return []
                self._end_retry()
                return [_text(self._streamed.broke_off(), renderer)]
            case TurnStarted():
                self._doing = ""
                return [
                    self._message(self.activity.queue[message], renderer) for message in event.messages if message in self.activity.queue
                ]
            case TurnEnded():
                self._doing = ""
                return [_text(self._streamed.broke_off(), renderer)]
            case ModelRequested() | TurnResumed() | InterruptAsked():
                return []
            case _:
                assert_never(event)

    # What still changes

    def above(self, frame: Frame) -> str:
        """Return the unfinished end of the agent's text, the queue, what is running, and how to answer."""
        renderer = Renderer(frame.columns, frame.colour)
        tail = self._streamed.tail
        output = ""
        if tail.strip():
            output = renderer.markdown(tail) if len(tail) <= _LONG_TAIL else renderer.quoted(tail[-_LONG_TAIL:])
        rows = output.splitlines()[-max(frame.rows - _OTHER_ROWS, _FEWEST_ROWS) :]
        dim = [short(f"queued: {message.text}", frame.columns) for message in self._queued()]
        dim += [short("(Up takes the last one back)", frame.columns)] if dim and self.can_take_back() else []
        dim.append(doing_line(self.activity, self._doing, self._line.clock.elapsed(), frame.columns))
        rows += [renderer.line(row, "dim").rstrip("\n") for row in dim if row]
        asks = asks_lines(list(self.activity.asks.values()), frame.columns, keys=frame.has_keys)
        return "\n".join([*rows, *(renderer.line(row, "yellow").rstrip("\n") for row in asks)])

    def below(self, frame: Frame) -> str:
        """Return the status line."""
        return status_line(self.view, frame.columns)

    def offer(self) -> KeyOffer | None:
        """Return the keys that answer, if exactly one ask is open."""
        asks = tuple(self.activity.asks.values())
        return KeyOffer(keys_of(asks[0]), asks[0].approval) if len(asks) == 1 else None

    def works(self) -> TurnId | None:
        """Return the turn that the agent is working on."""
        return self.activity.turn if self.activity.works else None

    def can_take_back(self) -> bool:
        """Tell whether a message of this person is still queued."""
        return self.last_queued() is not None

    def last_queued(self) -> MessageAccepted | None:
        """Return the last message of this person that is still queued."""
        mine = [message for message in self.activity.queue.values() if message.by == self._who and message.role == "human"]
        return mine[-1] if mine else None

    def _queued(self) -> Iterator[MessageAccepted]:
        # A message that nothing delays is taken up at once, and showing it here would only flicker.
        if self.activity.turn is not None or self.activity.exhausted:
            yield from (message for message in self.activity.queue.values() if message.role == "human")

    def _whole(self, renderer: Renderer) -> str:
        return _text(self._streamed.take(whole_blocks(self._streamed.tail)), renderer)

    def _message(self, message: MessageAccepted, renderer: Renderer) -> str:
        if message.role == "human":
            return renderer.human(message.text, "" if message.by == self._who else str(message.by))
        return renderer.rows(f"noted for the agent: {short(message.text, 200)}", "dim")

    def _card(self, approval: ApprovalId, renderer: Renderer) -> str:
        ask = self.activity.asks.get(approval)
        if ask is None:
            return ""
        return renderer.event_line(EventLine("warn", f"the agent asks ({approval}):")) + renderer.card(card_lines(ask))

    def _changes(self, renderer: Renderer) -> str:
        words = self.activity.change_words()
        return renderer.rows(f"files: {words}", "dim") if words else ""


def _text(text: str, renderer: Renderer) -> str:
    return f"{renderer.markdown(text)}\n" if text.strip() else ""


def _earlier(messages: list[Utterance], renderer: Renderer) -> Iterator[str]:
    if not messages:
        yield renderer.line("write what you want done; /help lists the slash words", "dim")
    if len(messages) > _EARLIER:
        yield renderer.line("… there is more before; /history shows it", "dim")
    for message in messages[-_EARLIER:]:
        text = message.text if len(message.text) <= _EARLIER_LETTERS else f"{message.text[:_EARLIER_LETTERS]} …[cut]"
        if message.by:
            yield renderer.human(text, message.by)
        else:
            yield renderer.quoted(f"{text} [{message.end}]" if message.end else text, "dim")
