"""An ask that comes before any turn: put before the human at the terminal, or told with where it can be answered."""

import asyncio

from curtainwall.channels.line import Line
from curtainwall.channels.slash import Control
from curtainwall.channels.terminal.asks import Asking
from curtainwall.channels.terminal.farewell import open_words
from curtainwall.channels.terminal.keys import meant_by
from curtainwall.channels.terminal.outlet import Outlet
from curtainwall.channels.terminal.settings import Telling
from curtainwall.model import ApprovalId, PendingAsk, SessionId, Who, session_stream


async def until_settled(line: Line, session: SessionId, who: Who, ask: PendingAsk, settings: Telling) -> bool:
    """Wait until an ask is settled, here or elsewhere; return False where the human leaves first, and then it stays open."""
    control, left, screen = Control(line, who, lambda _: ()), asyncio.Event(), Outlet(settings.err)

    async def press(key: str, approval: ApprovalId) -> bool:
        outcome = await control.do(session, meant_by(key, approval))
        for words in () if outcome.answered else outcome.lines:
            screen.note(words)
        return outcome.answered is not None

    asking = Asking(settings.input, screen, line.clock, press, left.set)
    if settings.keys and settings.shape == "text":
        asking.ask(ask, "a human is asked")
    else:
        for words in open_words((ask,)):
            screen.note(words)
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
