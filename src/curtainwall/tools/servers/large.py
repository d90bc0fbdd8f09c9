"""Messages with very many values: they are read in a process beside ours, because reading them here would hold up every session."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import Final

from curtainwall.model import CurtainwallError
from curtainwall.tools.servers import large_entry
from curtainwall.tools.servers.large_entry import MOST_IN_ALL, MOST_VALUES, TOO_MANY

_PATIENCE: Final = 60.0


class Unreadable(CurtainwallError):
    """A message has more values than anyone needs, or takes too long to read."""


def is_large(line: bytes) -> bool:
    """Tell whether a message may have too many values to be read here; commas in texts count as well, which does no harm."""
    return len(line) > MOST_VALUES and line.count(b",") + line.count(b"[") + line.count(b"{") >= MOST_VALUES


async def reduce(line: bytes) -> bytes:
    """Return a large message with what is passed on of it; raise `Unreadable`."""
    program = str(Path(large_entry.__file__))
    child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
    try:
        async with asyncio.timeout(_PATIENCE):
            text, _ = await child.communicate(line)
    except TimeoutError:
        raise Unreadable(f"it sent a message that could not be read within {_PATIENCE:g} seconds") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode == TOO_MANY:
        raise Unreadable(f"it sent a message of more than {MOST_IN_ALL} values")
    if child.returncode:
        raise Unreadable(f"it sent a message of {len(line)} bytes that could not be read")
    return text
