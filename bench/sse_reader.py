"""The other process: browsers without a screen, each on an event stream, that say how old every marked message was when it came."""

import asyncio
import json
import re
import sys
import time

_MARK = re.compile(rb"mark-(\d+)-(\d+)-")


async def _listen(port: int, request: str, ages: list[float], seen: set[tuple[int, bytes]], number: int, ready: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    writer.write(request.encode())
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0] + b" ", head
    ready.release()
    while line := await reader.readline():
        if found := _MARK.search(line):
            key = (number, found[2])
            if key not in seen:
                seen.add(key)
                ages.append((time.monotonic_ns() - int(found[1])) / 1e9)


async def _main() -> None:
    told = json.loads(sys.stdin.readline())
    ages: list[float] = []
    seen: set[tuple[int, bytes]] = set()
    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_listen(told["port"], it, ages, seen, number, ready)) for number, it in enumerate(told["requests"])]
    for _ in tasks:
        await ready.acquire()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps({"ages": sorted(ages)}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
