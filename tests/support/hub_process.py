"""A process of ours with servers behind it, to be killed: it calls what starts children, says so, and waits for its end."""

import asyncio
import sys
from pathlib import Path

from tests.support.servers import FREE, bad_server, desk, review


async def main(root: Path, mark: str) -> None:
    """Start three kinds of servers and wait."""
    free = {"spawn": FREE}
    boxed, trusty = bad_server("boxed", mark, tools=free), bad_server("trusty", mark, trusted=True, tools=free)
    async with desk(root, *await review(root, boxed, trusty, bad_server("shared", mark, shared=True, tools=free))) as at:
        for server in ("boxed", "trusty", "shared"):
            await at.value(f"{server}.spawn")
        print("ready", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
