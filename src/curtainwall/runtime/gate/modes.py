"""Ends a running call when the session's mode becomes stricter, because what the call was given cannot be taken back."""

import asyncio
from collections.abc import Coroutine
from typing import Final

from curtainwall.model import Mode, ToolEffect, ToolResult, stricter
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.session import SessionState

# A sent message has already left, and reading changes nothing.
_CHANGING: Final = frozenset({ToolEffect.EXECUTE, ToolEffect.MODIFY})


async def within_mode(actor: Actor, effect: ToolEffect, mode: Mode, call: Coroutine[None, None, ToolResult]) -> ToolResult:
    """Return the result of a call that began in a mode; end it if the session enters a mode in which it must not continue."""
    if effect not in _CHANGING:
        return await call
    loop, timeout = asyncio.get_running_loop(), asyncio.timeout(None)
    ended_by = mode

    def look(state: SessionState) -> None:
        nonlocal ended_by
        if ended_by is mode and _ends(effect, mode, state.mode):
            ended_by = state.mode
            timeout.reschedule(loop.time())

    try:
        async with timeout:
            with actor.observed_by(look):
                return await call
    except TimeoutError:
        if not timeout.expired():
            raise
        return ToolResult(ok=False, value=f"the mode became `{ended_by}` while it ran, so it was ended; it may have had its effect in part")


def _ends(effect: ToolEffect, before: Mode, now: Mode) -> bool:
    """Tell whether a call must end: a command could change what is now off limits, and nothing may change anything in plan mode."""
    if stricter(before, now) is before:
        return False
    return effect is ToolEffect.EXECUTE or now is Mode.PLAN
