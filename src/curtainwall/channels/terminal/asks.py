"""Asking the user at the terminal: a card, a pause in which no key counts, then the key that answers."""

import asyncio
import select
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from curtainwall.channels.asks.cards import scopes_for
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.terminal.exit import open_words
from curtainwall.channels.terminal.output import OutputStream
from curtainwall.channels.terminal.settings import OneShotSettings
from curtainwall.model import ApprovalId, Clock, GrantScope, PendingAsk, SessionId, Who, session_stream

if TYPE_CHECKING:
    # Start-up time: most tasks ask nobody at this terminal.
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPress

    from curtainwall.channels.slash import Request

KEYS: Final = "yspnw"
"""All keys that may answer an ask; `keys_of` says which answer this one."""
_LASTING: Final = {GrantScope.SESSION: "s session", GrantScope.PROJECT: "p project"}
GRACE_MILLIS: Final = 700
"""How long an ask must be on screen without a key press before a key answers it, so that nobody answers an ask unseen."""


def key_words(ask: PendingAsk) -> tuple[str, ...]:
    """Return the keys that answer an ask, each with its word; lasting answers only where a yes may last."""
    lasting = (words for scope, words in _LASTING.items() if scope in scopes_for(ask.subject))
    return ("y once", "n deny", *lasting, "w why")


def keys_of(ask: PendingAsk) -> str:
    """Return the keys that answer an ask."""
    return "".join(words[0] for words in key_words(ask))


def request_for_key(key: str, approval: ApprovalId) -> "Request":
    """Return the request of a key."""
    # Start-up time: as above.
    from curtainwall.channels.slash import Approve, Deny, Why

    match key:
        case "y":
            return Approve(approval)
        case "s":
            return Approve(approval, GrantScope.SESSION)
        case "p":
            return Approve(approval, GrantScope.PROJECT)
        case "n":
            return Deny(approval)
        case _:
            return Why(approval)


_IGNORED = "keys pressed before this question were ignored"


class Keyboard:
    """The keys pressed on a terminal. Ctrl-C is never among them: it always stops."""

    def __init__(self, terminal: "Input", stop: Callable[[], None]) -> None:
        self._terminal = terminal
        self._stop = stop
        self._pressed: asyncio.Queue[str] = asyncio.Queue()

    def read(self) -> None:
        """Read the available input."""
        self._take(self._terminal.read_keys())

    async def next(self) -> str:
        """Return the next key; pasted text is an empty one."""
        return await self._pressed.get()

    def discard(self) -> bool:
        """Drop all keys pressed until now, read or not, and tell whether there were any."""
        while not self._terminal.closed and select.select([self._terminal.fileno()], [], [], 0)[0]:
            self.read()
        self._take(self._terminal.flush_keys())
        was_pressed = not self._pressed.empty()
        while not self._pressed.empty():
            self._pressed.get_nowait()
        return was_pressed

    def _take(self, keys: "list[KeyPress]") -> None:
        from prompt_toolkit.keys import Keys  # late: only a terminal needs the library

        for key in keys:
            if key.key == Keys.ControlC:
                self._stop()
            else:
                # Pasted text has a key that differs from its data: a paste is never an answer, however short.
                self._pressed.put_nowait(key.data if key.key == key.data else "")


@contextmanager
def keyboard(source: "Input | None", stop: Callable[[], None]) -> Generator[Keyboard]:
    """Yield the keys of a terminal, with echo turned off meanwhile."""
    from prompt_toolkit.input import create_input  # late: only a terminal needs the library

    terminal = create_input() if source is None else source
    keys = Keyboard(terminal, stop)
    with terminal.raw_mode(), terminal.attach(keys.read):
        yield keys


class AskPrompt:
    """The one ask that the user sees, and the wait for its key."""

    def __init__(
        self,
        source: "Input | None",
        screen: OutputStream,
        clock: Clock,
        press: Callable[[str, ApprovalId], Awaitable[bool]],
        stop: Callable[[], None],
    ) -> None:
        self._source = source
        self._screen = screen
        self._clock = clock
        self._press = press
        self._stop = stop
        self._about: ApprovalId | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def about(self) -> ApprovalId | None:
        """The ask that the user sees."""
        return self._about

    def ask(self, ask: PendingAsk, heading: str) -> None:
        """Show the card of an ask and wait for a key."""
        self._about = ask.approval
        self._task = asyncio.create_task(self._wait(ask, heading))

    async def end(self) -> None:
        """Stop waiting for a key."""
        self._about = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _wait(self, ask: PendingAsk, heading: str) -> None:
        with keyboard(self._source, self._stop) as keys:
            self._screen.card(ask, heading)
            if await self._grace_period(keys):
                self._screen.note(_IGNORED)
            self._screen.prompt(f"{ask.approval}? {' · '.join(key_words(ask))}")
            while True:
                key = await keys.next()
                if key and key in keys_of(ask) and await self._press(key, ask.approval):
                    return

    async def _grace_period(self, keys: Keyboard) -> bool:
        """Wait until the card has been visible for a while without a key press; tell whether a key was pressed before.

        INVARIANT: all keys pressed before this returns are dropped, even if this process was too busy to read them in time.
        """
        was_pressed = keys.discard()
        while True:
            await self._clock.sleep_until(self._clock.now() + GRACE_MILLIS)
            if not keys.discard():
                return was_pressed
            was_pressed = True


async def wait_until_settled(line: ChannelPorts, session: SessionId, who: Who, ask: PendingAsk, settings: OneShotSettings) -> bool:
    """Wait until an ask is settled, here or elsewhere; return False if the user leaves first, and the ask stays open."""
    # Start-up time: as above.
    from curtainwall.channels.slash import Control

    control, left, screen = Control(line, who, lambda _: ()), asyncio.Event(), OutputStream(settings.err)

    async def press(key: str, approval: ApprovalId) -> bool:
        outcome = await control.do(session, request_for_key(key, approval))
        for words in () if outcome.answered else outcome.lines:
            screen.note(words)
        return outcome.answered is not None

    prompt = AskPrompt(settings.input, screen, line.clock, press, left.set)
    if settings.keys and settings.shape == "text":
        prompt.ask(ask, "a human is asked")
    else:
        for words in open_words((ask,)):
            screen.note(words)
    settled = asyncio.create_task(_wait_for_answer(line, session, ask.approval))
    leaving = asyncio.create_task(left.wait())
    try:
        await asyncio.wait([settled, leaving], return_when=asyncio.FIRST_COMPLETED)
        return settled.done()
    finally:
        await prompt.end()
        for task in (settled, leaving):
            task.cancel()
        await asyncio.gather(settled, leaving, return_exceptions=True)


async def _wait_for_answer(line: ChannelPorts, session: SessionId, approval: ApprovalId) -> None:
    def is_open() -> bool:
        return any(ask.approval == approval for ask in line.desk.view(session).pending)

    stream = session_stream(session)
    cursor = line.feed.head(stream)
    if is_open():
        async for _ in line.feed.follow(stream, cursor):
            if not is_open():
                return
