"""Asks in a room: each a tagged message that says how to answer it, and in the end by whom it was."""

import asyncio
import html
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from curtainwall.channels.asks.answers import Key
from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.asks.cards import CardLine, ask_in_a_line
from curtainwall.channels.matrix.memory import CHANNEL, Memory, transaction
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage, with_code
from curtainwall.channels.matrix.replies import retry
from curtainwall.channels.plain import counted, plain_line
from curtainwall.host.user import clock_time
from curtainwall.model import AlreadyAnswered, ApprovalId, NotFound, SessionId

_LONGEST: Final = 12_000
_LONGEST_WHO: Final = 1_000
_LONGEST_ROW: Final = 300
_TIMEOUT: Final = 30.0
_WAITS: Final = " waits for an answer"
_BLOCKS: Final = frozenset({"argument", "added", "removed", "place", "note"})

YES: Final = frozenset({"👍", "✅", "✔", "☑"})
NO: Final = frozenset({"👎", "❌", "✖"})


@dataclass(frozen=True, slots=True)
class PostedAsk:
    """An ask that was shown in a room, and the newest of the identical ones that the message was about when it was first said."""

    session: SessionId
    approval: ApprovalId
    newest: ApprovalId


class RoomAsks:
    """The asks of one room, wherever they come from."""

    def __init__(self, board: Board, outbox: MatrixOutbox, memory: Memory, room: str, operators: Sequence[str]) -> None:
        self._board = board
        self._outbox = outbox
        self._memory = memory
        self._room = room
        self._operators = tuple(operators)
        self._in_step = asyncio.Event()

    async def run(self) -> None:
        """Keep the room in step with the asks that are routed to it, until cancelled."""
        # Looked at first: whatever is settled while the room catches up is told behind it.
        cards = self._board.cards()
        settled = await self._catch_up()
        cards = tuple(card for card in cards if card.key not in settled)
        for card in cards:
            await self._show(card)
        self._in_step.set()
        async for card in self._board.follow(cards):
            if card.settled is None:
                await self._show(card)
            else:
                await self._settle(card.session, card.approval, _end_of(card))

    async def posted(self, event: str) -> PostedAsk | None:
        """Return the ask that a message of ours in this room shows, or showed until it was settled.

        After a restart it may not be known yet that the message was ours; that is waited for, within bounds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await self._in_step.wait()
        settled = self._memory.get(f"settled {self._room} {event}")
        if settled is not None:
            session, approval = settled.split(" ")
            return PostedAsk(SessionId(session), ApprovalId(approval), ApprovalId(approval))
        for name, value in self._memory.named(f"asked {self._room} ").items():
            told = json.loads(value)
            if told["event"] == event:
                _, _, session, approval = name.split(" ")
                return PostedAsk(SessionId(session), ApprovalId(approval), ApprovalId(told.get("newest", approval)))
        return None

    async def _catch_up(self) -> set[Key]:
        """Say of the cards that were settled while nobody looked that they are, and return which."""
        settled: set[Key] = set()
        for name in self._memory.named(f"asked {self._room} "):
            _, _, session, approval = name.split(" ")
            try:
                self._board.find(approval, SessionId(session))
                continue
            except AlreadyAnswered as ended:
                how = str(ended)
            except NotFound:
                how = "it is no longer asked"
            await self._settle(SessionId(session), ApprovalId(approval), how)
            settled.add((SessionId(session), ApprovalId(approval)))
        return settled

    async def _show(self, card: Card) -> None:
        name = self._name(card.session, card.approval)
        words = _words(card, self._operators, self._room)
        before = json.loads(self._memory.get(f"asked {name}") or "{}")
        if not before:
            # Remembered before it is said: where we die in between, whoever comes next knows that there may be a card to settle.
            await self._memory.set({f"asked {name}": json.dumps({"event": "", "text": words.text, "newest": card.newest})})
        event = await retry(lambda: self._outbox.say(self._room, f"card {name}", words))
        if event is None:
            await self._memory.set({f"asked {name}": None})
            return
        if before and before["text"] != words.text:
            await retry(lambda: self._outbox.change(self._room, f"card {name} {transaction(words.text)}", event, words))
        newest = before.get("newest", card.approval) if before else card.newest
        await self._memory.set({f"asked {name}": json.dumps({"event": event, "text": words.text, "newest": newest})})

    async def _settle(self, session: SessionId, approval: ApprovalId, how: str) -> None:
        name = self._name(session, approval)
        told = json.loads(self._memory.get(f"asked {name}") or "{}")
        if told and not told.get("settled"):
            first, _, rest = str(told["text"]).partition("\n")
            # It went by the newest of several, of which some may be open still.
            first, card = f"{approval}{first.partition(_WAITS)[2]}", rest.rpartition("\n\n")[0]
            text = f"{how}\n{first}\n{card}"
            words = RoomMessage(
                text, html=f"<strong>{html.escape(how)}</strong><br>{html.escape(first)}<pre><code>{html.escape(card)}</code></pre>"
            )
            # Said again under its name, a card that is there stays as it is and tells its event; one that is not there is settled at once.
            event = told["event"] or await retry(lambda: self._outbox.say(self._room, f"card {name}", words))
            settled: dict[str, str | None] = {f"asked {name}": None, f"sent card {name}": None}
            if event:
                await retry(lambda: self._outbox.change(self._room, f"card {name} settled", event, words))
                settled[f"settled {self._room} {event}"] = f"{session} {approval}"
            await self._memory.set(settled)

    def _name(self, session: SessionId, approval: ApprovalId) -> str:
        return f"{self._room} {session} {approval}"


def ask_list(cards: Sequence[Card], room: str, longest: int) -> str:
    """Return the open asks in lines; where they do not fit, the last line says how many are left and how to see them."""
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
    """Return where an ask comes from, for people in a room: those of its own room need not be told the name."""
    return f"[session {card.session}]" if card.origin == f"{CHANNEL}: {room}" else card.tag


def _words(card: Card, operators: Sequence[str], room: str) -> RoomMessage:
    lines = "\n".join(line.text for line in card.lines)
    cut = ""
    if len(lines) > _LONGEST:
        cut = f"\n…[{len(lines) - _LONGEST} characters are not shown here; `/pending {card.newest}` shows all of it]…"
    tag = plain_line(f"{card.newest}{_WAITS} {where_from(card, room)}", 500)
    how = f"`/approve {card.newest}` · `/approve {card.newest} session` · `/deny {card.newest} REASON` · `/why {card.newest}`"
    who = plain_line(card.may_answer, _LONGEST_WHO)
    form = f"<strong>{html.escape(tag)}</strong>{_form(card.lines)}{f'<p>{html.escape(who)}</p>' if who else ''}{with_code(how)}"
    # Whatever is behind the empty line goes once the ask is settled.
    ends = f"{who}\n{how}" if who else how
    return RoomMessage(f"{tag}\n{lines[:_LONGEST]}{cut}\n\n{ends}", html=None if cut else form, mention=tuple(operators))


def _form(lines: Sequence[CardLine]) -> str:
    """Return a card whose sentences fit any screen, with arguments and changes as blocks."""
    made = ""
    for is_block, those in groupby(lines, lambda line: line.kind in _BLOCKS):
        told = [html.escape(line.text) for line in those]
        made += "<pre><code>" + "\n".join(told) + "</code></pre>" if is_block else f"<p>{'<br>'.join(told)}</p>"
    return made


def _end_of(card: Card) -> str:
    settled = card.settled
    assert settled is not None
    why = f" ({settled.reason})" if settled.reason else ""
    by = f" by {settled.by}" if settled.by else ""
    verb = {"granted": "approved", "denied": "denied"}.get(settled.how, settled.how)
    return plain_line(f"{card.approval} was {verb}{by} at {clock_time(settled.at)}{why}", 500)
