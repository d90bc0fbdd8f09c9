"""`curtainwall serve`: run the configured channels and their sessions in one process."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.global_options import is_quiet
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.telemetry import exporting
from curtainwall.serve.logs import Logbook, LogFormat
from curtainwall.serve.process import open_many_files, return_freed_memory, tune_process
from curtainwall.serve.readiness import NotifySocket
from curtainwall.serve.service import serving

_AT_ONCE = 1


def serve(
    policy: Annotated[list[Path] | None, typer.Option(help="a rule file to add; may be given more than once")] = None,
    log: Annotated[LogFormat, typer.Option(help="what is written to stderr: text, or one JSON object a line")] = LogFormat.TEXT,
) -> None:
    """Serve sessions on every channel that the configuration names, until SIGTERM or Ctrl-C.

    What runs then is parked, and taken up at the next start; a second signal ends the process at once. Configuration and rules are watched:
    a change holds from the next decision on, and one that is not valid is refused as a whole. SIGHUP has them read again.
    """
    manager, book = NotifySocket(), Logbook(log, quiet=is_quiet())
    book.take_over()
    open_many_files()
    return_freed_memory()
    setup = load_setup(policy or ())
    with exporting(lambda what: book.say(what, "warning"), wanted=setup.config.serve.traces):
        asyncio.run(_served(setup, book, manager))


async def _served(setup: Setup, book: Logbook, manager: NotifySocket) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop(name: str) -> None:
        if stopped.is_set():
            book.say(f"{name} again: ending at once; what ran is taken up at the next start", "warning")
            os._exit(_AT_ONCE)
        book.say(f"{name}: parking what runs; again ends at once")
        manager.stopping()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    async with serving(setup, book) as service:
        tune_process(service.wired.store)
        loop.add_signal_handler(signal.SIGHUP, service.reload.request)
        manager.ready(f"serving {setup.home.root}")
        alive = asyncio.create_task(manager.keep_alive(), name="watchdog")
        await stopped.wait()
    # Not before: parking may take longer than the watchdog waits.
    alive.cancel()
    book.say("everything is parked")
