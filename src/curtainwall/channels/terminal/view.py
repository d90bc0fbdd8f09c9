"""One session on a screen: its events as drawn text, and the lines above and below the input that still change. Decides nothing."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import assert_never

from curtainwall.channels.asks.cards import ask_in_a_line, call_in_words, card_lines
from curtainwall.channels.asks.event_lines import EventLine, describe_change, describe_event
from curtainwall.channels.conversation import QUEUED, SO_FAR, StreamedMessage, Utterance, utterances
from curtainwall.channels.plain import short
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash.lines import used_words
from curtainwall.channels.terminal.asks import KEY_WORDS, KEYS
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
    session_stream,
)
from curtainwall.operations.activity import SessionActivity

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_MILLIS = 100


def status_line(view: SessionView, width: int) -> str:
    """Return model, mode, context, money and open asks; where there is no room, money goes first, and asks stay to the last."""
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
        told = " · ".join(part for part in parts.values() if part)
        if len(told) <= width:
            break
    return short(told, width)


def doing_line(tale: SessionActivity, doing: str, elapsed: int, width: int) -> str:
    """Return what runs now, with a spinner; nothing where nothing runs."""
    if not tale.works:
        return ""
    running = [call_in_words(subject, 60) for subject in tale.running.values()]
    what = "stopping" if tale.interrupting else " + ".join(running) or doing or "thinking"
    hint = "Ctrl-C again leaves" if tale.interrupting else "Ctrl-C interrupts"
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
        first, *others = KEY_WORDS
        return _folded((f"{ask}? {first}", *others), " · ", width)
    rows = [ask_in_a_line(ask, max(width - 2, 1)) for ask in asks[:5]]
    more = [f"and {len(asks) - 5} more"] if len(asks) > 5 else []
    return [short(f"{len(asks)} asks wait: `/approve ID`, `/deny ID`", width), *(f"  {row}" for row in rows), *more]


def _folded(parts: Sequence[str], between: str, width: int) -> list[str]:
    """Return parts that belong together in as few lines as hold each of them whole."""
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
    """What one person sees of one session at a time."""

    def __init__(self, line: ChannelPorts, who: Who, session: SessionId) -> None:
        self._line = line
        self._who = who
        self._begin(session)

    def _begin(self, session: SessionId) -> None:
        self.session = session
        self.tale = SessionActivity()
        self.cursor = 0
        self.view = self._line.desk.view(session)
        self._streamed = StreamedMessage()
        self._doing = ""
        self._is_again = False

    def open(self, session: SessionId, looks: Renderer) -> str:
        """Take up a session where it stands, and return what was said before, shortly, and what is open."""
        self._begin(session)
        for recorded in self._line.feed.read(session_stream(session)):
            self.tale.take(recorded.event)
            self.cursor = recorded.seq
        view = self.view
        where = "its own workspace" if view.workspace.own else view.workspace.path
        head = looks.rows(f"{view.name} · session {session} · {view.model} · {where}", "bold")
        said = [it for it in utterances(self._line.feed, session) if it.end not in (QUEUED, SO_FAR)]
        cards = (self._card(approval, looks) for approval in self.tale.asks)
        return "".join([head, *_earlier(said, looks), *cards])

    def look(self) -> SessionView:
        """Look again how the session stands; one that was deleted stays as it was seen last."""
        with suppress(NotFound):
            self.view = self._line.desk.view(self.session)
        return self.view

    def hear(self, live: Live, looks: Renderer) -> str:
        """Take in what is said right now, and return what of it is whole."""
        if live.kind != "text":
            self._doing, self._is_again = live.text, live.kind == "again"
            return ""
        self._no_more_again()
        self._streamed.add_live(live.text)
        return self._whole(looks)

    def _no_more_again(self) -> None:
        """Forget what failed and was tried again: it has worked, or not."""
        if self._is_again:
            self._doing, self._is_again = "", False

    def tell(self, event: AnyEvent, looks: Renderer) -> str:
        """Go on by one event, and return what there is to see of it."""
        drawn: list[str] = []
        if isinstance(event, SpeechEvent | TurnEvent | ModelEvent):
            drawn += self._words(event, looks)
        told = describe_event(event, self.tale) or describe_change(event, self._who)
        if told is not None:
            drawn.append(looks.event_line(told))
        self.tale.take(event)
        if isinstance(event, ApprovalAsked):
            drawn.append(self._card(event.approval, looks))
        if isinstance(event, TurnEnded) and event.status is not TurnStatus.WAITING:
            drawn.append(self._changes(looks))
        return "".join(drawn)

    def _words(self, event: SpeechEvent | TurnEvent | ModelEvent, looks: Renderer) -> list[str]:
        """Return what the event lets see of what is said."""
        match event:
            case TextStreamed():
                self._streamed.logged(event.text)
                return [self._whole(looks)]
            case AgentSpoke():
                return [_text(self._streamed.spoke(event.text), looks)]
            case ModelResponded():
                self._no_more_again()
                return []
            case ModelFailed():
                if self.tale.holds_calls:
                    return []
                self._no_more_again()
                return [_text(self._streamed.broke_off(), looks)]
            case TurnStarted():
                self._doing = ""
                return [self._message(self.tale.queue[message], looks) for message in event.messages if message in self.tale.queue]
            case TurnEnded():
                self._doing = ""
                return [_text(self._streamed.broke_off(), looks)]
            case ModelRequested() | TurnResumed() | InterruptAsked():
                return []
            case _:
                assert_never(event)

    # What still changes

    def above(self, frame: Frame) -> str:
        """Return the unfinished end of the agent's text, what is queued, what runs, and how to answer."""
        looks = Renderer(frame.columns, frame.colour)
        tail = self._streamed.tail
        drawn = ""
        if tail.strip():
            drawn = looks.markdown(tail) if len(tail) <= _LONG_TAIL else looks.quoted(tail[-_LONG_TAIL:])
        rows = drawn.splitlines()[-max(frame.rows - _OTHER_ROWS, _FEWEST_ROWS) :]
        dim = [short(f"queued: {it.text}", frame.columns) for it in self._queued()]
        dim += [short("(Up takes the last one back)", frame.columns)] if dim and self.can_take_back() else []
        dim.append(doing_line(self.tale, self._doing, self._line.clock.elapsed(), frame.columns))
        rows += [looks.line(row, "dim").rstrip("\n") for row in dim if row]
        asks = asks_lines(list(self.tale.asks.values()), frame.columns, keys=frame.has_keys)
        return "\n".join([*rows, *(looks.line(row, "yellow").rstrip("\n") for row in asks)])

    def below(self, frame: Frame) -> str:
        """Return the status line."""
        return status_line(self.view, frame.columns)

    def offer(self) -> KeyOffer | None:
        """Return the keys that answer, where exactly one ask is open."""
        asks = tuple(self.tale.asks)
        return KeyOffer("".join(KEYS), asks[0]) if len(asks) == 1 else None

    def works(self) -> TurnId | None:
        """Return the turn that the agent is at work on."""
        return self.tale.turn if self.tale.works else None

    def can_take_back(self) -> bool:
        """Tell whether a message of this person still waits."""
        return self.last_queued() is not None

    def last_queued(self) -> MessageAccepted | None:
        """Return the last message of this person that still waits."""
        mine = [it for it in self.tale.queue.values() if it.by == self._who and it.role == "human"]
        return mine[-1] if mine else None

    def _queued(self) -> Iterator[MessageAccepted]:
        # With nothing in its way a message is taken up at once, and showing it here would only flicker.
        if self.tale.turn is not None or self.tale.exhausted:
            yield from (it for it in self.tale.queue.values() if it.role == "human")

    def _whole(self, looks: Renderer) -> str:
        return _text(self._streamed.take(whole_blocks(self._streamed.tail)), looks)

    def _message(self, message: MessageAccepted, looks: Renderer) -> str:
        if message.role == "human":
            return looks.said(message.text, "" if message.by == self._who else str(message.by))
        return looks.rows(f"noted for the agent: {short(message.text, 200)}", "dim")

    def _card(self, approval: ApprovalId, looks: Renderer) -> str:
        ask = self.tale.asks.get(approval)
        if ask is None:
            return ""
        return looks.event_line(EventLine("warn", f"the agent asks ({approval}):")) + looks.card(card_lines(ask))

    def _changes(self, looks: Renderer) -> str:
        words = [change.words(self.tale.workspace) for change in self.tale.changes]
        return looks.rows(f"files: {', '.join(words)}", "dim") if words else ""


def _text(text: str, looks: Renderer) -> str:
    return f"{looks.markdown(text)}\n" if text.strip() else ""


def _earlier(said: list[Utterance], looks: Renderer) -> Iterator[str]:
    if not said:
        yield looks.line("write what you want done; /help lists the slash words", "dim")
    if len(said) > _EARLIER:
        yield looks.line(f"… {len(said) - _EARLIER} before; /history shows more", "dim")
    for it in said[-_EARLIER:]:
        text = it.text if len(it.text) <= _EARLIER_LETTERS else f"{it.text[:_EARLIER_LETTERS]} …[cut]"
        if it.by:
            yield looks.said(text, it.by)
        else:
            yield looks.quoted(f"{text} [{it.end}]" if it.end else text, "dim")
