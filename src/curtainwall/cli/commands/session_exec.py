"""`curtainwall sessions exec`: run a program of the user's inside a session's container, beside its agent."""

import os
import sys
from typing import Annotated

import typer

from curtainwall.cli import loop
from curtainwall.cli.screen import Misuse
from curtainwall.host.home import Home
from curtainwall.model import CommandRefused, SessionRow
from curtainwall.operations.lookup import find_session
from curtainwall.session import inert

_GRACE = 2.0
"""Seconds that a program has to end when it is asked to."""


def exec_in(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="its id, or the beginning of it")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="the program and its arguments; write `--` before options")],
) -> None:
    """Run a program in a session's container, as the agent's user and with its rights; the exit code is the program's."""
    # Start-up time: listings need none of this.
    from curtainwall.compose.setup import load_setup
    from curtainwall.compose.store import open_store

    if not command or not command[0]:
        raise Misuse("name the program to run, as `curtainwall sessions exec SESSION -- ls -l`")
    setup = load_setup()
    with open_store(setup.home) as store:
        row = find_session(store.index, session)
    section = setup.config.agents.get(row.agent)
    variables = {} if section is None else dict(each.split("=", 1) for each in section.env)
    raise typer.Exit(loop.run(_run(setup.home, row, tuple(command), variables)))


async def _run(home: Home, row: SessionRow, command: tuple[str, ...], variables: dict[str, str]) -> int:
    # Start-up time: the engine's client takes long to load, and listings need no loop.
    from asyncio import CancelledError

    from curtainwall.agents.external.container import Engine
    from curtainwall.agents.external.container.adapters.adapter import SURROUNDINGS
    from curtainwall.agents.external.container.runs import open_run

    engine = Engine()
    try:
        ours = [
            each
            for each in await engine.list_containers(row.session)
            if each.house == str(home.root) and each.state in ("running", "paused")
        ]
        if not ours:
            raise CommandRefused(f"session {row.session} has no container now; one starts with its next message")
        container, is_paused = ours[-1].id, ours[-1].state == "paused"
        if is_paused:
            # It is not paused again: a turn may have taken it up meanwhile, and would hang.
            await engine.resume(container)
        async with open_run(engine, container, command, {**variables, **SURROUNDINGS}, "/dev/null") as program:
            try:
                async for piece in program.pieces():
                    _write(*piece)
            except (CancelledError, OSError):
                # Ctrl-C, or a reader that has gone: nobody would end the program inside.
                await program.stop(_GRACE)
                raise
            code = await program.exit_code()
        return 1 if code is None else code
    finally:
        await engine.close()


def _write(stream: str, data: bytes) -> None:
    """Write output as it is into a pipe, and inert on a terminal: the program inside is not to be trusted with the screen."""
    target = sys.stdout if stream == "out" else sys.stderr
    if target.isatty():
        lines = data.decode("utf-8", "replace").split("\n")
        target.write("\n".join(map(inert, lines)))
        target.flush()
    else:
        target.flush()
        os.write(target.fileno(), data)
