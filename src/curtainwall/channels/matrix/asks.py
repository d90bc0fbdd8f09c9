"""Asks in a room: each is a message that says how to answer it and, once settled, who answered."""

import asyncio
import html
import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.asks.cards import CardLine, ask_in_a_line
from curtainwall.channels.matrix.memory import CHANNEL, Memory, transaction
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage, with_code
from curtainwall.channels.matrix.replies import retry
from curtainwall.channels.plain import counted, plain_line
from curtainwall.host.user import clock_time
from curtainwall.model import AlreadyAnswered, ApprovalId, NotFound, SessionId, record

_LONGEST: Final = 12_000
_LONGEST_WHO: Final = 1_000
_LONGEST_ROW: Final = 300
_TIMEOUT: Final = 30.0
_WAITS: Final = " waits for an answer"
_BLOCKS: Final = frozenset({"argument", "added", "removed", "place", "note"})

YES: Final = frozenset({"👍", "✅", "✔", "☑"})
NO: Final = frozenset({"👎", "❌", "✖"})


@record
class PostedAsk:
    """An ask posted in a room, and the newest of the identical asks that its message covered when it was first posted."""

    session: SessionId
    approval: ApprovalId
    newest: ApprovalId


class RoomAsks:
    """The asks of one room, from any session."""

    def __init__(self, board: Board, outbox: MatrixOutbox, memory: Memory, room: str, operators: Sequence[str]) -> None:
        self._board = board
        self._outbox = outbox
        self._memory = memory
        self._room = room
        self._operators = tuple(operators)
        self._caught_up = asyncio.Event()

    async def run(self) -> None:
        """Keep the room's messages in step with the asks routed to it, until cancelled."""
        # Read first: whatever is settled while the room catches up is reported afterwards.
        cards = self._board.cards()
        settled = await self._catch_up()
        cards = tuple(card for card in cards if card.key not in settled)
        for card in cards:
            await self._show(card)
        self._caught_up.set()
        async for card in self._board.follow(cards):
            if card.settled is None:
                await self._show(card)
            else:
                await self._settle(card.session, card.approval, _outcome_of(card))

    async def posted(self, event: str) -> PostedAsk | None:
        """Return the ask that a message of ours in this room shows, or showed until it was settled.

        After a restart we may not know yet that the message is ours, so this waits for a while.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await self._caught_up.wait()
        settled = self._memory.get(f"settled {self._room} {event}")
        if settled is not None:
            session, approval = settled.split(" ")
            return PostedAsk(SessionId(session), ApprovalId(approval), ApprovalId(approval))
        for name, value in self._memory.named(f"asked {self._room} ").items():
            stored = json.loads(value)
            if stored["event"] == event:
                _, _, session, approval = name.split(" ")
                return PostedAsk(SessionId(session), ApprovalId(approval), ApprovalId(stored.get("newest", approval)))
        return None

    async def _catch_up(self) -> set[Key]:
        """Update the cards that were settled while we were not running, and return them."""
        settled: set[Key] = set()
        for name in self._memory.named(f"asked {self._room} "):
            _, _, session, approval = name.split(" ")
            try:
                self._board.find(approval, SessionId(session))
                continue
            except AlreadyAnswered as error:
                how = str(error)
            except NotFound:
                how = "it is no longer asked"
            await self._settle(SessionId(session), ApprovalId(approval), how)
            settled.add((SessionId(session), ApprovalId(approval)))
        return settled

    async def _show(self, card: Card) -> None:
        name = self._name(card.session, card.approval)
        message = _card_message(card, self._operators, self._room)
        before = json.loads(self._memory.get(f"asked {name}") or "{}")
        if not before:
            # Recorded before it is sent: after a crash in between, the next run knows that there may be a card to settle.
            await self._memory.set({f"asked {name}": json.dumps({"event": "", "text": message.text, "newest": card.newest})})
        event = await retry(lambda: self._outbox.say(self._room, f"card {name}", message))
        if event is None:
            await self._memory.set({f"asked {name}": None})
            return
        if before and before["text"] != message.text:
            await retry(lambda: self._outbox.change(self._room, f"card {name} {transaction(message.text)}", event, message))
        newest = before.get("newest", card.approval) if before else card.newest
        await self._memory.set({f"asked {name}": json.dumps({"event": event, "text": message.text, "newest": newest})})

    async def _settle(self, session: SessionId, approval: ApprovalId, how: str) -> None:
        name = self._name(session, approval)
        stored = json.loads(self._memory.get(f"asked {name}") or "{}")
        if stored and not stored.get("settled"):
            first, _, rest = str(stored["text"]).partition("\n")
            # The card went by the newest of several asks, some of which may still be open.
            first, card = f"{approval}{first.partition(_WAITS)[2]}", rest.rpartition("\n\n")[0]
            text = f"{how}\n{first}\n{card}"
            message = RoomMessage(
                text, html=f"<strong>{html.escape(how)}</strong><br>{html.escape(first)}<pre><code>{html.escape(card)}</code></pre>"
            )
            # Sending again under its name leaves an existing card unchanged and returns its event; a missing card is posted as settled.
            event = stored["event"] or await retry(lambda: self._outbox.say(self._room, f"card {name}", message))
            settled: dict[str, str | None] = {f"asked {name}": None, f"sent card {name}": None}
            if event:
                await retry(lambda: self._outbox.change(self._room, f"card {name} settled", event, message))
                settled[f"settled {self._room} {event}"] = f"{session} {approval}"
            await self._memory.set(settled)

    def _name(self, session: SessionId, approval: ApprovalId) -> str:
        return f"{self._room} {session} {approval}"


def ask_list(cards: Sequence[Card], room: str, longest: int) -> str:
    """Return the open asks as lines; if they do not fit, the last line says how many remain and how to see them."""
    lines: list[str] = []
    left = longest - _LONGEST_ROW
    for card in cards:
        line = plain_line(f"{ask_in_a_line(card.ask, _LONGEST_ROW, card.newest)}  {where_from(card, room)}", 2 * _LONGEST_ROW)
        left -= len(line) + 1
        if left < 0:
            last = cards[len(lines) - 1].newest
            return "\n".join([*lines, f"{counted(len(cards) - len(lines), 'more open ask')}; `/pending after {last}` lists them"])
        lines.append(line)
    return "\n".join(lines) or "nothing waits for an answer here"


def where_from(card: Card, room: str) -> str:
    """Return where an ask comes from, for readers in a room; the room itself is not named."""
    return f"[session {card.session}]" if card.origin == f"{CHANNEL}: {room}" else card.tag


def _card_message(card: Card, operators: Sequence[str], room: str) -> RoomMessage:
    lines = "\n".join(line.text for line in card.lines)
    cut = ""
    if len(lines) > _LONGEST:
        cut = f"\n…[{len(lines) - _LONGEST} characters are not shown here; `/pending {card.newest}` shows all of it]…"
    tag = plain_line(f"{card.newest}{_WAITS} {where_from(card, room)}", 500)
    how = f"`/approve {card.newest}` · `/approve {card.newest} session` · `/deny {card.newest} REASON` · `/why {card.newest}`"
    who = plain_line(card.may_answer, _LONGEST_WHO)
    card_html = f"<strong>{html.escape(tag)}</strong>{_card_html(card.lines)}{f'<p>{html.escape(who)}</p>' if who else ''}{with_code(how)}"
    # Everything after the empty line is removed once the ask is settled.
    footer = f"{who}\n{how}" if who else how
    return RoomMessage(f"{tag}\n{lines[:_LONGEST]}{cut}\n\n{footer}", html=None if cut else card_html, mention=tuple(operators))


def _card_html(lines: Sequence[CardLine]) -> str:
    """Return a card as HTML: sentences as paragraphs, arguments and changes as code blocks."""
    markup = ""
    for is_block, group in groupby(lines, lambda line: line.kind in _BLOCKS):
        texts = [html.escape(line.text) for line in group]
        markup += "<pre><code>" + "\n".join(texts) + "</code></pre>" if is_block else f"<p>{'<br>'.join(texts)}</p>"
    return markup


def _outcome_of(card: Card) -> str:
    settled = card.settled
    assert settled is not None
    why = f" ({settled.reason})" if settled.reason else ""
    by = f" by {settled.by}" if settled.by else ""
    verb = {"granted": "approved", "denied": "denied"}.get(settled.how, settled.how)
    return plain_line(f"{card.approval} was {verb}{by} at {clock_time(settled.at)}{why}", 500)
