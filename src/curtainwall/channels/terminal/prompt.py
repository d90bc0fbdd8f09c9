"""An input line that stays at the bottom of the terminal while everything else scrolls by above it. Knows no session."""

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, ConditionalContainer, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from curtainwall.channels.terminal.asks import GRACE_MILLIS, KEYS
from curtainwall.channels.terminal.settings import ConversationSettings
from curtainwall.model import Millis, TurnId


@dataclass(frozen=True, slots=True)
class TextSubmitted:
    """Somebody wrote something and sent it; `about` is the ask that they had seen when they began to write."""

    text: str
    about: str | None = None


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """Somebody pressed one of the keys on offer; `about` is what the offer was about at that moment."""

    key: str
    about: str


@dataclass(frozen=True, slots=True)
class StopPressed:
    """Somebody pressed Ctrl-C, on an empty line or while something works: the turn that did so at that moment."""

    turn: TurnId | None


@dataclass(frozen=True, slots=True)
class TakeBackPressed:
    """Somebody wants the last queued message back."""


@dataclass(frozen=True, slots=True)
class ExitPressed:
    """Somebody wants to go."""


UserAction = TextSubmitted | KeyPressed | StopPressed | TakeBackPressed | ExitPressed


@dataclass(frozen=True, slots=True)
class Frame:
    """What a drawing has to fit into, and whether the keys on offer count right now."""

    columns: int
    rows: int
    colour: bool
    has_keys: bool


@dataclass(frozen=True, slots=True)
class KeyOffer:
    """Keys that mean something on an empty line, and what they are about."""

    keys: str
    about: str


class PromptView(Protocol):
    """What is on the stage besides the input; it is asked again for every drawing."""

    def above(self, frame: Frame) -> str:
        """Return what stands above the input line and still changes."""
        ...

    def below(self, frame: Frame) -> str:
        """Return the line below."""
        ...

    def offer(self) -> KeyOffer | None:
        """Return the keys that mean something once they have been on offer for a while."""
        ...

    def can_take_back(self) -> bool:
        """Tell whether a message still waits in the queue."""
        ...

    def works(self) -> TurnId | None:
        """Return the turn that runs and could be stopped."""
        ...


class PromptScreen:
    """A terminal with an input line; `deeds` is what the human does, in order."""

    def __init__(self, play: PromptView, completer: Completer, settings: ConversationSettings) -> None:
        self.deeds: asyncio.Queue[UserAction] = asyncio.Queue()
        self._play = play
        self._colour = settings.colour
        self._buffer = Buffer(
            completer=completer,
            complete_while_typing=True,
            history=_history(settings),
            multiline=True,
            on_text_changed=self._on_text_changed,
        )
        self._offer: KeyOffer | None = None
        self._offered_at: Millis | None = None
        self._are_keys_open = False
        self._seen: KeyOffer | None = None
        self._is_begun = False
        self._begun_about: str | None = None
        self._app: Application[int] = Application(
            layout=self._layout(),
            key_bindings=self._bindings(),
            style=Style([("below", "reverse"), ("prompt", "bold")]),
            color_depth=None if settings.colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            input=settings.input,
            output=settings.output,
        )

    @property
    def columns(self) -> int:
        """The width to draw in."""
        return max(self._app.output.get_size().columns - 1, 10)

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        return self._app.output.get_size().rows

    async def run(self) -> int:
        """Play until `leave`, and return the code given there."""
        return await self._app.run_async()

    def leave(self, code: int) -> None:
        """End the play."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    def show(self, drawn: str) -> None:
        """Put text with styles above everything that changes, for good."""
        if not drawn:
            return
        is_up = self._app.is_running and not self._app.is_done
        if is_up:
            self._app.renderer.erase()
        # What is drawn fits. Where the terminal takes a letter to be wider than we do, it must not put the rest into a row of its own.
        self._app.output.disable_autowrap()
        self._app.output.write_raw(drawn.replace("\n", "\r\n"))
        self._app.output.enable_autowrap()
        self._app.output.flush()
        if is_up:
            self._app.invalidate()

    def refresh(self) -> None:
        """Draw anew what changes."""
        self._app.invalidate()

    def clear(self) -> None:
        """Empty the screen."""
        self._app.renderer.clear()
        self._app.invalidate()

    def put_back(self, text: str) -> None:
        """Put a text into the input line if nothing stands there, and otherwise before what does."""
        now = self._buffer.text
        self._buffer.text = f"{text}\n{now}" if now else text
        self._buffer.cursor_position = len(text)
        self._app.invalidate()

    def settle(self, elapsed: Millis) -> None:
        """Let the keys on offer count once the same offer has been there for a while in which nothing was typed.

        INVARIANT: while something typed is still unread they do not begin to count, so that a key which was pressed before the offer could
        be read never does, however late this process comes to read it.
        """
        offer = self._play.offer()
        if offer != self._offer or self._offered_at is None or self._buffer.text or self._has_unread():
            self._offer, self._offered_at, self._are_keys_open = offer, elapsed, False
        elif offer is not None and not self._are_keys_open and elapsed - self._offered_at >= GRACE_MILLIS:
            self._are_keys_open, self._seen = True, offer
            self._app.invalidate()

    def _current_offer(self) -> KeyOffer | None:
        """Return the offer whose keys count right now."""
        return self._offer if self._are_keys_open and self._play.offer() == self._offer else None

    def _has_unread(self) -> bool:
        source = self._app.input
        return not source.closed and bool(select.select([source.fileno()], [], [], 0)[0])

    def _on_text_changed(self, buffer: Buffer) -> None:
        if buffer.text and not self._is_begun:
            offer = self._play.offer()
            self._begun_about = offer.about if offer is not None and offer == self._seen else None
        self._is_begun = bool(buffer.text)
        # Whoever types does not look at the offer.
        self._offered_at, self._are_keys_open = None, False

    def _empty_line(self) -> None:
        self._buffer.reset()
        self._on_text_changed(self._buffer)

    def _frame(self) -> Frame:
        return Frame(self.columns, self.rows, self._colour, self._current_offer() is not None)

    def _above(self) -> str:
        return self._play.above(self._frame())

    def _layout(self) -> Layout:
        above = Window(FormattedTextControl(lambda: ANSI(self._above())), dont_extend_height=True, always_hide_cursor=True)
        line = Window(
            BufferControl(self._buffer),
            get_line_prefix=lambda number, wrapped: [("class:prompt", "> " if number == wrapped == 0 else "  ")],
            height=Dimension(min=1, max=12),
            dont_extend_height=True,
            wrap_lines=True,
        )
        below = Window(FormattedTextControl(lambda: self._play.below(self._frame())), height=1, style="class:below")
        has_above = Condition(lambda: bool(self._above()))
        menu = CompletionsMenu(max_height=8)
        return Layout(HSplit([ConditionalContainer(above, has_above), line, menu, below]), focused_element=line)

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        buffer, deeds, play = self._buffer, self.deeds, self._play
        is_empty = Condition(lambda: not buffer.text)

        def send(_: KeyPressEvent) -> None:
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                typed = TextSubmitted(buffer.text, self._begun_about)
                buffer.append_to_history()
                self._empty_line()
                deeds.put_nowait(typed)

        def new_line(_: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        def stop(_: KeyPressEvent) -> None:
            # Emptying the line must not wait for anything, or it would take what is typed next with it.
            turn = play.works()
            if buffer.text and turn is None:
                self._empty_line()
            else:
                deeds.put_nowait(StopPressed(turn))

        def suspend(_: KeyPressEvent) -> None:
            self._app.suspend_to_background()

        bindings.add("enter")(send)
        bindings.add("escape", "enter")(new_line)
        bindings.add("c-c")(stop)
        bindings.add(Keys.SIGINT)(stop)
        bindings.add("c-d", filter=is_empty)(_puts(deeds, ExitPressed()))
        bindings.add("c-z")(suspend)
        bindings.add("up", filter=is_empty & Condition(play.can_take_back))(_puts(deeds, TakeBackPressed()))
        for key in KEYS:
            is_offered = Condition(lambda key=key: (offer := self._current_offer()) is not None and key in offer.keys)
            bindings.add(key, filter=is_empty & is_offered)(self._press)
        return bindings

    def _press(self, event: KeyPressEvent) -> None:
        # INVARIANT: what a key answers is settled when it is pressed, not when somebody gets round to it.
        offer = self._current_offer()
        if offer is not None:
            self.deeds.put_nowait(KeyPressed(event.data, offer.about))


def _puts(deeds: "asyncio.Queue[UserAction]", deed: UserAction) -> Callable[[KeyPressEvent], None]:
    return lambda _: deeds.put_nowait(deed)


class _MaskedHistory(FileHistory):
    """What was typed before, with secrets masked as in the log, in a file that only its owner reads."""

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        path.touch(mode=0o600)
        super().__init__(path)
        self._mask = mask

    def append_string(self, string: str) -> None:
        """Keep what was typed."""
        super().append_string(self._mask(string))


def _history(settings: ConversationSettings) -> History:
    return InMemoryHistory() if settings.history is None else _MaskedHistory(settings.history, settings.mask)
