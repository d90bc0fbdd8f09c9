"""A stricter mode while a call runs: what the call was given cannot be taken back, so it ends."""

import asyncio
from collections.abc import Coroutine
from typing import Final

from curtainwall.model import Mode, ToolEffect, ToolResult, stricter
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.session import SessionState

# What is sent has left already, and what is looked at changes nothing.
_CHANGING: Final = frozenset({ToolEffect.EXECUTE, ToolEffect.MODIFY})


async def within_mode(actor: Actor, effect: ToolEffect, mode: Mode, call: Coroutine[None, None, ToolResult]) -> ToolResult:
    """Return what comes of a call that began in a mode; where the session is in one by now that it must not go on in, end it."""
    if effect not in _CHANGING:
        return await call
    loop, until = asyncio.get_running_loop(), asyncio.timeout(None)
    ended_by = mode

    def look(state: SessionState) -> None:
        nonlocal ended_by
        if ended_by is mode and _ends(effect, mode, state.mode):
            ended_by = state.mode
            until.reschedule(loop.time())

    try:
        async with until:
            with actor.observed_by(look):
                return await call
    except TimeoutError:
        if not until.expired():
            raise
        return ToolResult(ok=False, value=f"the mode became `{ended_by}` while it ran, so it was ended; it may have had its effect in part")


def _ends(effect: ToolEffect, before: Mode, now: Mode) -> bool:
    """Tell whether a call must not go on: a command could change what it may no longer, and nothing changes anything in plan mode."""
    if stricter(before, now) is before:
        return False
    return effect is ToolEffect.EXECUTE or now is Mode.PLAN
