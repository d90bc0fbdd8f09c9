"""Terminal settings that the user and the environment decide, and the timer for a silent session owner."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from curtainwall.model import SessionId, record

if TYPE_CHECKING:
    # Start-up time: one task takes no slash words.
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from curtainwall.channels.slash import LogPlaces

Shape = Literal["text", "json", "stream-json"]
OnAsk = Literal["wait", "park", "deny"]

Attend = Callable[[SessionId], object]
"""Makes this process run a session's agent."""


def _leave_unattended(_: SessionId) -> None:
    """Leave the agent to the process that already runs it."""


HolderOf = Callable[[SessionId], int | None]
"""Returns the id of another process that works on a session, if any; 0 if the id is unknown."""


def _no_holder(_: SessionId) -> int | None:
    """Return None: no other process is known."""
    return None


@record
class OwnerWatch:
    """The other process that works on a session, and how many seconds of silence pass before the user is notified."""

    holder: HolderOf = _no_holder
    patience: float = 20.0


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether a stream is a terminal whose user accepts colours."""
    environ = os.environ if environ is None else environ
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


@record
class ConversationSettings:
    """How a conversation is held; without `input` and `output` it uses the process's terminal.

    `history` is a file of earlier input; `mask` is applied to a text before it is stored there. `attend` makes the agent of a session work
    here; it is called for each session that is opened, possibly twice. A dumb terminal cannot move its cursor, so nothing is redrawn there.
    """

    colour: bool
    log_places: "LogPlaces"
    attend: Attend = _leave_unattended
    history: Path | None = None
    mask: Callable[[str], str] = str
    is_dumb: bool = False
    owner_watch: OwnerWatch = OwnerWatch()
    input: "Input | None" = None
    output: "Output | None" = None


@record
class OneShotSettings:
    """How one task is reported: its output format, what happens on an ask, and the streams.

    `keys` means that a human sits at the terminal and can be asked there. `quiet` leaves out progress, but no warnings. `attend` makes the
    agent work here; it is called once everything the agent does will be reported. `input` defaults to the process's terminal.
    """

    shape: Shape
    on_ask: OnAsk
    out: TextIO
    err: TextIO
    colour: bool = False
    keys: bool = False
    quiet: bool = False
    attend: Attend = _leave_unattended
    owner_watch: OwnerWatch = OwnerWatch()
    input: "Input | None" = None
    ends: bool = False
    """Whether the session ends when the task is done."""


class SilenceTimer:
    """Measures how long a session has been silent."""

    def __init__(self, watch: OwnerWatch) -> None:
        self._watch = watch
        self._activity = asyncio.Event()

    def reset(self) -> None:
        """Restart the timer: something arrived."""
        self._activity.set()

    async def wait_for_silent_owner(self, session: SessionId, is_awaited: Callable[[], bool]) -> int:
        """Return the other process that works on the session, once it has been silent for too long although something is awaited."""
        owner: int | None = None
        while owner is None:
            self._activity.clear()
            try:
                async with asyncio.timeout(self._watch.patience):
                    await self._activity.wait()
            except TimeoutError:
                owner = self._watch.holder(session) if is_awaited() else None
        return owner
