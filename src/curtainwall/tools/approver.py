"""The user's own program as an automatic approver: it says exactly yes, or the ask is left to humans."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from curtainwall.model import Subject
from curtainwall.tools.hooks import CommandHook, HookSurroundings
from curtainwall.tools.hooks.process import environment_without_secrets, run_program

SECONDS: Final = 30.0
_LOG = logging.getLogger(__name__)
_YES: Final = (("decision", "approved"),)


class ProgramApprover:
    """Asks the program that the configuration names at that moment; without one, every ask is left to humans."""

    def __init__(self, command: Callable[[], Sequence[str]], around: HookSurroundings, directory: str, seconds: float = SECONDS) -> None:
        self._command = command
        self._around = around
        self._directory = directory
        self._seconds = seconds

    async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
        """Return the approver's name if the program ends well and says exactly yes, None to pass the ask on to humans."""
        command = tuple(self._command())
        if not command:
            return None
        told = {
            "tool": subject.tool,
            "arguments": dict(subject.canonical),
            "wants": [{"role": it.role, "value": it.value} for it in subject.resources],
            "words": list(human_words),
        }
        environ = environment_without_secrets(self._around.environ, self._around.masker, self._around.withheld)
        program = CommandHook(command[0], command[1:])
        ran = await run_program(program, json.dumps(told).encode(), environ, self._directory, self._seconds)
        if ran.failure:
            # To leave an ask to humans needs no word; one that never works would be taken for one that never says yes.
            _LOG.warning("the approver `%s` failed, and the ask is left to humans: %s", command[0], ran.failure)
            return None
        return f"approver {Path(command[0]).name}" if ran.code == 0 and _is_yes(ran.out) else None


def _is_yes(printed: bytes) -> bool:
    try:
        return json.loads(printed, object_pairs_hook=tuple) == _YES
    except (ValueError, RecursionError):
        return False
