"""What calls mean, found out without anybody having to wait: those that take long are read in a thread, for each session one at a time."""

import asyncio
from contextvars import copy_context
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from pydantic import JsonValue

from curtainwall.model import LOAD_SKILL, MOVE_FILE, PROPOSE_PLAN, Place, Prepared, Role, SessionId, ToolHost, TryLater

_LONG: Final = 100_000
_A_WORD: Final = 500
# They may name many paths in few letters, or have a repository, all skills or big files looked at; beside what they do, a thread costs
# nothing.
_SLOW: Final = ("shell.", "git.", PROPOSE_PLAN, LOAD_SKILL, MOVE_FILE)
# Of these it is known what they do with a directory; no server is named like them.
_OURS: Final = ("filesystem.", "session.", "teams.", "fetch.")


class Preparing:
    """Calls on their way to becoming subjects."""

    def __init__(self, tools: ToolHost) -> None:
        self._tools = tools
        self._turns: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Return what a call means; raise `BadCall`."""
        if not tool.startswith(_SLOW) and not _is_long(arguments) and not self._looks_into(tool):
            return self._tools.prepare(tool, arguments, place)
        turn = self._turns.setdefault(place.session, asyncio.Lock())
        await turn.acquire()
        read = partial(self._tools.prepare, tool, arguments, place)
        try:
            reading = asyncio.get_running_loop().run_in_executor(None, copy_context().run, read)
        except RuntimeError as fault:
            turn.release()
            raise TryLater("no thread can be started to read this call; try again") from fault
        # A thread cannot be stopped: one that nobody waits for any more still has the session's turn.
        reading.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(reading)

    def _looks_into(self, tool: str) -> bool:
        """Tell whether a directory may be looked through for a call: a server does there what nobody knows."""
        spec = None if tool.startswith(_OURS) else self._tools.find(tool)
        return spec is not None and any(Role.READ_PATH in meaning.roles for meaning in spec.meanings)


def _is_long(arguments: JsonValue) -> bool:
    """Tell whether masking, checking and following arguments takes longer than others should wait; looks no further than it must."""
    waiting, size = [arguments], 0
    while waiting and size <= _LONG:
        value = waiting.pop()
        size += 1
        if isinstance(value, str):
            size += len(value) + _A_WORD
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return size > _LONG
