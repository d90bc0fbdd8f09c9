"""Why a process ended before its turn did, from what it left behind: each cause by its own name, and with what to do."""

from collections.abc import Sequence
from typing import Final

from curtainwall.agents.external.process.launch import TRIED
from curtainwall.agents.external.process.terms import AgentCrashed, NoAnswer, WrongVersion
from curtainwall.model import TurnFailed

_NOT_STARTED: Final = frozenset({126, 127})


def fault_of(code: int, stopped: str | None, errors: Sequence[str], noise: str) -> TurnFailed:
    """Return the fault of a process that ended with this code, with these last lines of stderr, after lines that are not stream-json."""
    said = "; it said: " + " / ".join([*(line.strip() for line in errors[-3:]), *([noise] if noise else [])]) if errors or noise else ""
    unknown = next((line for line in errors if "unknown option" in line), None)
    if unknown is not None:
        return WrongVersion(f"claude does not know what it was asked for ({unknown.strip()}); install Claude Code {TRIED} or a newer one")
    if code in _NOT_STARTED:
        return AgentCrashed(f"claude cannot be started here{said}; install Claude Code anew, as a native program")
    if stopped is not None:
        return AgentCrashed(f"claude was ended: {stopped}; send a message, and it starts again")
    if code == 0:
        return NoAnswer(f"claude ended without an answer{said}; send the message again")
    return AgentCrashed(f"claude ended in the middle of its turn with exit code {code}{said}; send a message, and it starts again")
