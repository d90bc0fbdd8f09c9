"""Two hundred browsers on the event stream and fifty sessions at once: how old an event is when it arrives, and what stays in memory.

`CURTAINWALL_BENCH_WEB_SECONDS=600` watches for ten minutes; otherwise it is half a minute. The bare echo gets half a minute at most.
"""

import asyncio
import io
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.disk import ROOT
from bench.measuring import Figure, Target
from curtainwall.compose.setup import load_setup
from curtainwall.model import RenameSession, SessionId, Who
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.serve.http import listen, serve_pages
from curtainwall.serve.logs import Logbook
from curtainwall.serve.service import Serving, serving
from curtainwall.serve.web.sign_in import sign_ins_of

_BROWSERS, _SESSIONS = 200, 50
_EVENTS_A_SECOND = 50
_SECONDS = int(os.environ.get("CURTAINWALL_BENCH_WEB_SECONDS", "30"))
_ECHO_SECONDS = min(_SECONDS, 30)
_PORT, _ECHO_PORT = 17_878, 17_879
_ANN = Who(name="ann", channel="web")

Send = Callable[[int, str], Awaitable[object]]


@dataclass(frozen=True)
class Run:
    """What the browsers saw: the age of every event in seconds, how many there should have been, and the memory along the way."""

    ages: Sequence[float]
    expected: int
    memory: Sequence[float]

    def age(self, share: float) -> float:
        return self.ages[min(int(len(self.ages) * share), len(self.ages) - 1)] if self.ages else float("inf")


async def browsing(home: Path) -> list[Figure]:
    """Events of fifty sessions on two hundred pages, beside a bare echo of the same messages."""
    os.environ["CURTAINWALL_HOME"] = str(home / "cw")
    (home / "cw").mkdir(mode=0o700)
    (home / "cw" / "config.toml").write_text(f'[web]\nport = {_PORT}\noperators = ["ann"]\n')
    async with serving(load_setup(), Logbook(out=io.StringIO())) as served:
        sessions = [
            await open_new(served.wired.sessions, SessionSpec("demo", None, f"s{number}", "nobody"), _ANN) for number in range(_SESSIONS)
        ]
        ours = await _ours(served, sessions)
    echo = await _echo()
    growth = median(ours.memory[-3:]) - median(ours.memory[len(ours.memory) // 3 :][:3])
    missed = ours.expected - len(ours.ages)
    note = (
        f"{_BROWSERS} browsers, {_SESSIONS} sessions, {_EVENTS_A_SECOND} events/s for {_SECONDS} s; the age counts from before the decision"
    )
    return [
        Figure("event on a page, p99", ours.age(0.99) * 1e3, "ms", echo.age(0.99) * 1e3, "bare SSE echo", None, Target(250), note),
        Figure("event on a page, p50", ours.age(0.5) * 1e3, "ms", echo.age(0.5) * 1e3, "bare SSE echo"),
        Figure(
            "events missed by pages", missed, "", echo.expected - len(echo.ages), "bare SSE echo", None, Target(0), f"of {ours.expected:,}"
        ),
        Figure("memory grown meanwhile", growth, "MiB", None, "", None, Target(24), "from a third of the time to its end"),
    ]


async def _ours(served: Serving, sessions: Sequence[SessionId]) -> Run:
    while served.supervisor.health().get("web") != "":  # noqa: ASYNC110 - the service has no event of its own to wait for
        await asyncio.sleep(0.05)
    token = sign_ins_of(served.wired.setup.home, served.config).sign_in("ann")
    requests = [
        f"GET /events?on=&session={sessions[number % _SESSIONS]}&after=999 HTTP/1.1\r\nHost: 127.0.0.1:{_PORT}\r\n"
        f"Cookie: curtainwall={token}\r\nAccept: text/event-stream\r\n\r\n"
        for number in range(_BROWSERS)
    ]

    async def send(number: int, mark: str) -> None:
        await served.work.desk.send(sessions[number], RenameSession(by=_ANN, name=mark))

    return await _watched(_PORT, requests, send, _SECONDS)


async def _echo() -> Run:
    crowds: list[set[asyncio.Queue[bytes]]] = [set() for _ in range(_SESSIONS)]

    async def events(request: Request) -> Response:
        mine: asyncio.Queue[bytes] = asyncio.Queue()
        crowds[int(request.query_params["n"])].add(mine)

        async def each() -> AsyncIterator[bytes]:
            while True:
                yield await mine.get()

        return StreamingResponse(each(), media_type="text/event-stream")

    async def send(number: int, mark: str) -> None:
        for waiting in crowds[number]:
            waiting.put_nowait(f"event: put\ndata: <li>{mark}</li>\n\n".encode())

    pages = asyncio.create_task(serve_pages(Starlette(routes=[Route("/events", events)]), listen("127.0.0.1", _ECHO_PORT, "web.port")))
    requests = [f"GET /events?n={number % _SESSIONS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" for number in range(_BROWSERS)]
    try:
        return await _watched(_ECHO_PORT, requests, send, _ECHO_SECONDS)
    finally:
        pages.cancel()
        await asyncio.gather(pages, return_exceptions=True)


async def _watched(port: int, requests: Sequence[str], send: Send, seconds: int) -> Run:
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.sse_reader", cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=2**28)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps({"port": port, "requests": requests}).encode() + b"\n")
    assert await child.stdout.readline() == b"ready\n"
    memory: list[float] = []
    count, began = 0, time.monotonic()
    working: set[asyncio.Task[object]] = set()
    while time.monotonic() - began < seconds:
        task = asyncio.ensure_future(send(count % _SESSIONS, f"mark-{time.monotonic_ns()}-{count}-"))
        working.add(task)
        task.add_done_callback(working.discard)
        count += 1
        if count % _EVENTS_A_SECOND == 0:
            memory.append(_resident())
        await asyncio.sleep(max(began + count / _EVENTS_A_SECOND - time.monotonic(), 0))
    await asyncio.gather(*working)
    await asyncio.sleep(2)
    child.stdin.write(b"enough\n")
    told = json.loads(await child.stdout.readline())
    await child.wait()
    return Run(told["ages"], count * _BROWSERS // _SESSIONS, memory or [0.0])


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
