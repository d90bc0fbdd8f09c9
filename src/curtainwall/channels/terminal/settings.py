"""What the user and the machine decide about a terminal before it is used, and how long a silent owner is waited for."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from curtainwall.channels.slash import LogPlaces
from curtainwall.model import SessionId

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

Shape = Literal["text", "json", "stream-json"]
OnAsk = Literal["wait", "park", "deny"]

Attend = Callable[[SessionId], object]
"""Lets this process look after a session's agent."""


def _by_itself(_: SessionId) -> None:
    """Leave the agent to whoever looks after it already."""


HolderOf = Callable[[SessionId], int | None]
"""Tells which other process works on a session, where one does; 0 where only that there is one is known."""


def _nobody(_: SessionId) -> int | None:
    """Know of no other process."""
    return None


@dataclass(frozen=True, slots=True)
class OwnerWatch:
    """Which other process works on a session, and how many seconds it may say nothing before the user hears of it."""

    holder: HolderOf = _nobody
    patience: float = 20.0


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether a stream is a terminal whose user does not mind colours."""
    environ = os.environ if environ is None else environ
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """How a conversation is held; without `input` and `output` it takes the process's own terminal.

    `history` is a file for what was typed before; `mask` is what happens to a text before it is kept there. `attend` lets the agent of a
    session work here; it is called for each session that is gone to, and may be called twice.
    """

    colour: bool
    log_places: LogPlaces
    attend: Attend = _by_itself
    history: Path | None = None
    mask: Callable[[str], str] = str
    holding: OwnerWatch = OwnerWatch()
    input: "Input | None" = None
    output: "Output | None" = None


@dataclass(frozen=True, slots=True)
class OneShotSettings:
    """How one task is told: its shape, what happens on an ask, and where to.

    `keys` says that a human sits at the terminal and can be asked there. `attend` lets the agent work here, and is called when everything
    it does will be told. `input` is the process's own terminal unless given.
    """

    shape: Shape
    on_ask: OnAsk
    out: TextIO
    err: TextIO
    colour: bool = False
    keys: bool = False
    attend: Attend = _by_itself
    holding: OwnerWatch = OwnerWatch()
    input: "Input | None" = None


class SilenceTimer:
    """How long nothing was heard of a session."""

    def __init__(self, holding: OwnerWatch) -> None:
        self._holding = holding
        self._heard = asyncio.Event()

    def broken(self) -> None:
        """Note that something was heard."""
        self._heard.set()

    async def of_another(self, session: SessionId, is_awaited: Callable[[], bool]) -> int:
        """Return the other process that works on the session, as soon as it has said nothing for long although something is awaited."""
        owner: int | None = None
        while owner is None:
            self._heard.clear()
            try:
                async with asyncio.timeout(self._holding.patience):
                    await self._heard.wait()
            except TimeoutError:
                owner = self._holding.holder(session) if is_awaited() else None
        return owner
