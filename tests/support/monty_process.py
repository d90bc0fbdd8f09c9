"""A process of its own that runs programs in a pool of workers: `python -m tests.support.monty_process BINARY run|busy`."""

import asyncio
import json
import os
import sys

from pydantic_monty import AsyncMonty, CollectString, MontyTypingError

STUBS = "async def double(n: int) -> int: ..."


async def double(n: int) -> int:
    """Be called from inside."""
    return 2 * n


async def run(binary: str) -> None:
    """Run, type-check, and print what came of it."""
    printed = CollectString()
    async with AsyncMonty(binary_path=binary, request_timeout=30) as pool:
        async with pool.checkout(type_check=True, type_check_stubs=STUBS) as session:
            code = "import asyncio\nprint('here')\na, b = await asyncio.gather(double(20), double(n=1))\na + b"
            value = await session.feed_run(code, external_lookup={"double": double}, print_callback=printed)
            try:
                await session.feed_run("await double('x')", external_lookup={"double": double})
                refused = False
            except MontyTypingError:
                refused = True
        async with pool.checkout(limits={"max_feed_duration_secs": 10.0}) as session:
            long = await session.feed_run("import time\ntime.sleep(0.01)\nlen([str(i) for i in range(300000)]) + len('a' * 30_000_000)")
    say({"value": value, "printed": printed.output, "refused": refused, "long": long})


async def busy(binary: str) -> None:
    """Say when a program without an end is running in a worker."""
    running = asyncio.Event()

    async def started() -> None:
        running.set()

    async with AsyncMonty(binary_path=binary) as pool, pool.checkout() as session:
        feed = asyncio.ensure_future(session.feed_run("await started()\nwhile True:\n    pass", external_lookup={"started": started}))
        await running.wait()
        say({"running": True})
        await feed


def say(what: object) -> None:
    """Print one line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run({"run": run, "busy": busy}[sys.argv[2]](sys.argv[1]))
    # The pool's own threads sometimes abort an interpreter that shuts down under them, confined or not.
    os._exit(0)
