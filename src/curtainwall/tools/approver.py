"""The user's program as an automatic approver: unless it answers exactly yes, the ask goes to humans."""

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
    """Asks the currently configured program; without one, every ask goes to humans."""

    def __init__(self, command: Callable[[], Sequence[str]], around: HookSurroundings, directory: str, seconds: float = SECONDS) -> None:
        self._command = command
        self._around = around
        self._directory = directory
        self._seconds = seconds

    async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
        """Return the approver's name if the program succeeds and answers exactly yes, or None to leave the ask to humans."""
        command = tuple(self._command())
        if not command:
            return None
        payload = {
            "tool": subject.tool,
            "arguments": dict(subject.canonical),
            "wants": [{"role": resource.role, "value": resource.value} for resource in subject.resources],
            "words": list(human_words),
        }
        environ = environment_without_secrets(self._around.environ, self._around.masker, self._around.withheld)
        program = CommandHook(command[0], command[1:])
        run = await run_program(program, json.dumps(payload).encode(), environ, self._directory, self._seconds)
        if run.failure:
            # Leaving an ask to humans is silent, so without this warning a broken program would look like one that never approves.
            _LOG.warning("the approver `%s` failed, and the ask is left to humans: %s", command[0], run.failure)
            return None
        return f"approver {Path(command[0]).name}" if run.code == 0 and _is_yes(run.out) else None


def _is_yes(printed: bytes) -> bool:
    try:
        return json.loads(printed, object_pairs_hook=tuple) == _YES
    except (ValueError, RecursionError):
        return False
