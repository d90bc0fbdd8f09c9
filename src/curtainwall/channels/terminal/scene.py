"""One session on a screen: its events as drawn text, and what still changes above and below the input line. Decides nothing."""

from collections.abc import Iterator
from contextlib import suppress
from typing import assert_never

from curtainwall.channels.asks.cards import card_lines
from curtainwall.channels.asks.event_lines import Told, tell, tell_change
from curtainwall.channels.line import Line
from curtainwall.channels.terminal.blocks import whole_blocks
from curtainwall.channels.terminal.keys import KEYS
from curtainwall.channels.terminal.looks import Looks
from curtainwall.channels.terminal.stage import Frame, Offer
from curtainwall.channels.terminal.status import asks_lines, doing_line, status_line
from curtainwall.channels.text.history import QUEUED, SO_FAR, Utterance, utterances
from curtainwall.channels.text.message import Saying
from curtainwall.channels.text.plain import short
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    InterruptAsked,
    Live,
    MessageAccepted,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NotFound,
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
from curtainwall.operations.tale import Tale

_LONG_TAIL = 4_000
_EARLIER = 6
_EARLIER_LETTERS = 600
_OTHER_ROWS = 12
_FEWEST_ROWS = 3


class Scene:
    """What one person sees of one session at a time."""

    def __init__(self, line: Line, who: Who, session: SessionId) -> None:
        self._line = line
        self._who = who
        self._begin(session)

    def _begin(self, session: SessionId) -> None:
        self.session = session
        self.tale = Tale()
        self.cursor = 0
        self.view = self._line.desk.view(session)
        self._saying = Saying()
        self._doing = ""
        self._is_again = False

    def open(self, session: SessionId, looks: Looks) -> str:
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

    def hear(self, live: Live, looks: Looks) -> str:
        """Take in what is said right now, and return what of it is whole."""
        if live.kind != "text":
            self._doing, self._is_again = live.text, live.kind == "again"
            return ""
        self._no_more_again()
        self._saying.heard(live.text)
        return self._whole(looks)

    def _no_more_again(self) -> None:
        """Forget what failed and was tried again: it has worked, or not."""
        if self._is_again:
            self._doing, self._is_again = "", False

    def tell(self, event: AnyEvent, looks: Looks) -> str:
        """Go on by one event, and return what there is to see of it."""
        drawn: list[str] = []
        if isinstance(event, SpeechEvent | TurnEvent | ModelEvent):
            drawn += self._words(event, looks)
        told = tell(event, self.tale) or tell_change(event, self._who)
        if told is not None:
            drawn.append(looks.told(told))
        self.tale.take(event)
        if isinstance(event, ApprovalAsked):
            drawn.append(self._card(event.approval, looks))
        if isinstance(event, TurnEnded) and event.status is not TurnStatus.WAITING:
            drawn.append(self._changes(looks))
        return "".join(drawn)

    def _words(self, event: SpeechEvent | TurnEvent | ModelEvent, looks: Looks) -> list[str]:
        """Return what the event lets see of what is said."""
        match event:
            case TextStreamed():
                self._saying.logged(event.text)
                return [self._whole(looks)]
            case AgentSpoke():
                return [_text(self._saying.spoke(event.text), looks)]
            case ModelResponded():
                self._no_more_again()
                return []
            case ModelFailed():
                if self.tale.holds_calls:
                    return []
                self._no_more_again()
                return [_text(self._saying.broke_off(), looks)]
            case TurnStarted():
                self._doing = ""
                return [self._message(self.tale.queue[message], looks) for message in event.messages if message in self.tale.queue]
            case TurnEnded():
                self._doing = ""
                return [_text(self._saying.broke_off(), looks)]
            case ModelRequested() | TurnResumed() | InterruptAsked():
                return []
            case _:
                assert_never(event)

    # What still changes

    def above(self, frame: Frame) -> str:
        """Return the unfinished end of the agent's text, what is queued, what runs, and how to answer."""
        looks = Looks(frame.columns, frame.colour)
        tail = self._saying.tail
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

    def offer(self) -> Offer | None:
        """Return the keys that answer, where exactly one ask is open."""
        asks = tuple(self.tale.asks)
        return Offer("".join(KEYS), asks[0]) if len(asks) == 1 else None

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

    def _whole(self, looks: Looks) -> str:
        return _text(self._saying.take(whole_blocks(self._saying.tail)), looks)

    def _message(self, message: MessageAccepted, looks: Looks) -> str:
        if message.role == "human":
            return looks.said(message.text, "" if message.by == self._who else str(message.by))
        return looks.rows(f"noted for the agent: {short(message.text, 200)}", "dim")

    def _card(self, approval: ApprovalId, looks: Looks) -> str:
        ask = self.tale.asks.get(approval)
        if ask is None:
            return ""
        return looks.told(Told("warn", f"the agent asks ({approval}):")) + looks.card(card_lines(ask))

    def _changes(self, looks: Looks) -> str:
        words = [change.words(self.tale.workspace) for change in self.tale.changes]
        return looks.rows(f"files: {', '.join(words)}", "dim") if words else ""


def _text(text: str, looks: Looks) -> str:
    return f"{looks.markdown(text)}\n" if text.strip() else ""


def _earlier(said: list[Utterance], looks: Looks) -> Iterator[str]:
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
