"""An input line that stays at the bottom of the terminal while everything else scrolls by above it. Knows nothing of sessions."""

import asyncio
import select
from collections.abc import Callable
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
from curtainwall.model import Millis, TurnId, record


@record
class TextSubmitted:
    """The user sent a text; `about` is the ask that they had seen when they began to type."""

    text: str
    about: str | None = None


@record
class KeyPressed:
    """The user pressed one of the offered keys; `about` is what the offer was about at that moment."""

    key: str
    about: str


@record
class StopPressed:
    """The user pressed Ctrl-C, on an empty line or during a turn: the turn that ran at that moment."""

    turn: TurnId | None


@record
class TakeBackPressed:
    """The user wants the last queued message back."""


@record
class ExitPressed:
    """The user wants to leave."""


UserAction = TextSubmitted | KeyPressed | StopPressed | TakeBackPressed | ExitPressed


@record
class Frame:
    """The space for a drawing, and whether the offered keys count at the moment."""

    columns: int
    rows: int
    colour: bool
    has_keys: bool


@record
class KeyOffer:
    """Keys that have a meaning on an empty line, and what they are about."""

    keys: str
    about: str


class PromptView(Protocol):
    """The rest of the screen, beside the input; queried again for every redraw."""

    def above(self, frame: Frame) -> str:
        """Return the changing text above the input line."""
        ...

    def below(self, frame: Frame) -> str:
        """Return the line below."""
        ...

    def offer(self) -> KeyOffer | None:
        """Return the keys that count once they have been offered for a while."""
        ...

    def can_take_back(self) -> bool:
        """Tell whether a message is still queued."""
        ...

    def works(self) -> TurnId | None:
        """Return the running turn that could be stopped."""
        ...


class PromptScreen:
    """A terminal with an input line; `actions` holds what the user does, in order."""

    def __init__(self, view: PromptView, completer: Completer, settings: ConversationSettings) -> None:
        self.actions: asyncio.Queue[UserAction] = asyncio.Queue()
        self._view = view
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
        self._are_keys_active = False
        self._seen: KeyOffer | None = None
        self._is_typing = False
        self._typed_about: str | None = None
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
        """Run until `leave`, and return the code given there."""
        return await self._app.run_async()

    def leave(self, code: int) -> None:
        """End the run."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    def show(self, text: str) -> None:
        """Print styled text above the changing part, permanently."""
        if not text:
            return
        is_up = self._app.is_running and not self._app.is_done
        if is_up:
            self._app.renderer.erase()
        # The text fits. If the terminal considers a character wider than we do, it must not move the rest to a separate row.
        self._app.output.disable_autowrap()
        self._app.output.write_raw(text.replace("\n", "\r\n"))
        self._app.output.enable_autowrap()
        self._app.output.flush()
        if is_up:
            self._app.invalidate()

    def refresh(self) -> None:
        """Redraw what changes."""
        self._app.invalidate()

    def clear(self) -> None:
        """Empty the screen."""
        self._app.renderer.clear()
        self._app.invalidate()

    def put_back(self, text: str) -> None:
        """Put a text into the input line, before what is already there."""
        current = self._buffer.text
        self._buffer.text = f"{text}\n{current}" if current else text
        self._buffer.cursor_position = len(text)
        self._app.invalidate()

    def settle(self, elapsed: Millis) -> None:
        """Activate the offered keys once the same offer has been visible for a while without input.

        INVARIANT: they do not become active while input is unread, so a key pressed before the offer could be read never counts, however
        late this process reads it.
        """
        offer = self._view.offer()
        if offer != self._offer or self._offered_at is None or self._buffer.text or self._has_unread():
            self._offer, self._offered_at, self._are_keys_active = offer, elapsed, False
        elif offer is not None and not self._are_keys_active and elapsed - self._offered_at >= GRACE_MILLIS:
            self._are_keys_active, self._seen = True, offer
            self._app.invalidate()

    def _current_offer(self) -> KeyOffer | None:
        """Return the offer whose keys count at the moment."""
        return self._offer if self._are_keys_active and self._view.offer() == self._offer else None

    def _has_unread(self) -> bool:
        source = self._app.input
        return not source.closed and bool(select.select([source.fileno()], [], [], 0)[0])

    def _on_text_changed(self, buffer: Buffer) -> None:
        if buffer.text and not self._is_typing:
            offer = self._view.offer()
            self._typed_about = offer.about if offer is not None and offer == self._seen else None
        self._is_typing = bool(buffer.text)
        # A person who types does not look at the offer.
        self._offered_at, self._are_keys_active = None, False

    def _empty_line(self) -> None:
        self._buffer.reset()
        self._on_text_changed(self._buffer)

    def _frame(self) -> Frame:
        return Frame(self.columns, self.rows, self._colour, self._current_offer() is not None)

    def _above(self) -> str:
        return self._view.above(self._frame())

    def _layout(self) -> Layout:
        above = Window(FormattedTextControl(lambda: ANSI(self._above())), dont_extend_height=True, always_hide_cursor=True)
        line = Window(
            BufferControl(self._buffer),
            get_line_prefix=lambda number, wrapped: [("class:prompt", "> " if number == wrapped == 0 else "  ")],
            height=Dimension(min=1, max=12),
            dont_extend_height=True,
            wrap_lines=True,
        )
        below = Window(FormattedTextControl(lambda: self._view.below(self._frame())), height=1, style="class:below")
        has_above = Condition(lambda: bool(self._above()))
        menu = CompletionsMenu(max_height=8)
        return Layout(HSplit([ConditionalContainer(above, has_above), line, menu, below]), focused_element=line)

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        buffer, actions, view = self._buffer, self.actions, self._view
        is_empty = Condition(lambda: not buffer.text)

        def send(_: KeyPressEvent) -> None:
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                typed = TextSubmitted(buffer.text, self._typed_about)
                buffer.append_to_history()
                self._empty_line()
                actions.put_nowait(typed)

        def new_line(_: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        def stop(_: KeyPressEvent) -> None:
            # Clearing the line must be synchronous, or it would also remove what is typed next.
            turn = view.works()
            if buffer.text and turn is None:
                self._empty_line()
            else:
                actions.put_nowait(StopPressed(turn))

        def suspend(_: KeyPressEvent) -> None:
            self._app.suspend_to_background()

        bindings.add("enter")(send)
        bindings.add("escape", "enter")(new_line)
        bindings.add("c-c")(stop)
        bindings.add(Keys.SIGINT)(stop)
        bindings.add("c-d", filter=is_empty)(_putter(actions, ExitPressed()))
        bindings.add("c-z")(suspend)
        bindings.add("up", filter=is_empty & Condition(view.can_take_back))(_putter(actions, TakeBackPressed()))
        for key in KEYS:
            is_offered = Condition(lambda key=key: (offer := self._current_offer()) is not None and key in offer.keys)
            bindings.add(key, filter=is_empty & is_offered)(self._press)
        return bindings

    def _press(self, event: KeyPressEvent) -> None:
        # INVARIANT: what a key answers is fixed when it is pressed, not when it is processed.
        offer = self._current_offer()
        if offer is not None:
            self.actions.put_nowait(KeyPressed(event.data, offer.about))


def _putter(actions: "asyncio.Queue[UserAction]", action: UserAction) -> Callable[[KeyPressEvent], None]:
    return lambda _: actions.put_nowait(action)


class _MaskedHistory(FileHistory):
    """The input history, with secrets masked as in the log, in a file that only its owner can read."""

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        path.touch(mode=0o600)
        super().__init__(path)
        self._mask = mask

    def append_string(self, string: str) -> None:
        """Store what was typed."""
        super().append_string(self._mask(string))


def _history(settings: ConversationSettings) -> History:
    return InMemoryHistory() if settings.history is None else _MaskedHistory(settings.history, settings.mask)
