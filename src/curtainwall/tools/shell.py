"""Run the `shell` tool: bash in the confinement, with the workspace at its own path."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import is_beneath, quoted
from curtainwall.host import Bounds, ConfinementFailed, run_confined
from curtainwall.model import SHELL_RUN, CallPermitted, Place, Prepared, ToolResult, may_change_files
from curtainwall.tools.runners import CannotDo, Runner
from curtainwall.tools.sandbox import Sandboxes

SECONDS: Final = 120
_READ_ONLY: Final = (
    "commands cannot change a project, whatever was approved, until its edits are granted as a whole (`/mode accept-edits`); "
    "single files can be written with `filesystem.write_file`"
)
_LONGEST_WORD: Final = 131_000  # the kernel's limit for one argument, less a little


def shell_runners(bounds: Bounds | None = None, sandboxes: Sandboxes | None = None) -> Mapping[str, Runner]:
    """Return the runner of `shell.run`; without bubblewrap it must not be in the catalogue."""
    defaults, rooms = bounds or Bounds(seconds=SECONDS), sandboxes or Sandboxes()

    async def run(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        arguments = prepared.arguments
        command, cwd = cast("str", arguments["command"]), cast("str", arguments["cwd"])
        timeout = cast("int | None", arguments.get("timeout"))
        with rooms.charged_to(place.session):
            value = await _run(command, cwd, place, rooms, defaults if timeout is None else replace(defaults, seconds=timeout))
        return ToolResult(ok=True, value=value)

    return {SHELL_RUN: run}


async def _run(command: str, cwd: str, place: Place, rooms: Sandboxes, bounds: Bounds) -> JsonValue:
    root = place.workspace.path
    if not is_beneath(cwd, root):
        raise CannotDo(f"the sandbox holds the workspace alone; {quoted(cwd)} is not in it")
    if len(command.encode()) > _LONGEST_WORD:
        raise CannotDo("the command is too long for one line; write it to a file first and run that")
    write = may_change_files(place.workspace, place.mode)
    async with rooms.open(place, root, write=write) as opened:
        confinement = replace(opened.confinement, cwd=cwd, bounds=bounds)
        try:
            done = await run_confined(["/bin/bash", "-c", command], confinement)
        except ConfinementFailed as error:
            raise CannotDo(str(error)) from error
    stopped = [f"the command was stopped: {done.stopped}"] if done.stopped else []
    notes = [*stopped, *([_READ_ONLY] if not write and b"Read-only file system" in done.err else []), *opened.notes]
    return {
        "exit_code": done.code,
        "stdout": done.out.decode(errors="replace"),
        "stderr": done.err.decode(errors="replace"),
        "cut": done.cut,
        "timed_out": done.timed_out,
        **({"notes": [*notes]} if notes else {}),
    }
