"""An ask that comes before any turn: put before the human at the terminal, or told with where it can be answered."""

import asyncio

from curtainwall.channels.line import Line
from curtainwall.channels.plain import plain
from curtainwall.channels.slash import Control
from curtainwall.channels.terminal.asking import STOP, Asking
from curtainwall.channels.terminal.asking_card import card_beside_bar
from curtainwall.channels.terminal.keys import KEY_WORDS, meant_by
from curtainwall.channels.terminal.parting import open_words
from curtainwall.channels.terminal.settings import Telling
from curtainwall.model import ApprovalId, PendingAsk, SessionId, Who, session_stream


async def until_settled(line: Line, session: SessionId, who: Who, ask: PendingAsk, settings: Telling) -> bool:
    """Wait until an ask is settled, here or elsewhere; return False where the human leaves first, and then it stays open."""
    control, left = Control(line, who, lambda _: ()), asyncio.Event()

    def note(text: str) -> None:
        settings.err.write(f"{plain(text)}\n")
        settings.err.flush()

    async def press(key: str, approval: ApprovalId | None) -> bool:
        if key == STOP or approval is None:
            left.set()
            return False
        outcome = await control.do(session, meant_by(key, approval))
        for words in () if outcome.answered else outcome.lines:
            note(words)
        return outcome.answered is not None

    asking = Asking(settings.input, press)
    if settings.keys and settings.shape == "text":
        told = card_beside_bar(ask, settings.err)
        for text in (f"a human is asked ({ask.approval}):", *told, f"{ask.approval}? {' · '.join(KEY_WORDS)}"):
            note(text)
        asking.ask(ask.approval)
    else:
        for words in open_words((ask,)):
            note(words)
    settled = asyncio.create_task(_settled(line, session, ask.approval))
    leaving = asyncio.create_task(left.wait())
    try:
        await asyncio.wait([settled, leaving], return_when=asyncio.FIRST_COMPLETED)
        return settled.done()
    finally:
        await asking.end()
        for each in (settled, leaving):
            each.cancel()
        await asyncio.gather(settled, leaving, return_exceptions=True)


async def _settled(line: Line, session: SessionId, approval: ApprovalId) -> None:
    def is_open() -> bool:
        return any(it.approval == approval for it in line.desk.view(session).pending)

    stream = session_stream(session)
    cursor = line.feed.head(stream)
    if is_open():
        async for _ in line.feed.follow(stream, cursor):
            if not is_open():
                return
