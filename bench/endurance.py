"""Hours of `curtainwall serve` under load, with its memory on a curve: `python -m bench.endurance --minutes 60`.

The service is the real program in a process of its own. Some sessions work turn after turn with the demo model, which reads a file in each,
others wait for an answer, and browsers hold an event stream open. Every few seconds the metrics are scraped, and one line of figures goes
to a CSV file and to stdout.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from prometheus_client.parser import text_string_to_metric_families

from bench.disk import ROOT, fresh_directory
from curtainwall.channels.web.sign_ins import csrf_of
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import ApprovalQuery, HistoryCompacted, MessageId, Route, SendMessage, SessionId, TurnEnded, Who, session_stream
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.serve.web.sign_in import sign_ins_of

_ANN = Who(name="ann", channel="web")
_HOST = "127.0.0.1"
_PATIENCE = 180.0
_LINE = "bread, milk, a new lock for the gate\n"
_CONFIG = """\
[web]
port = {port}
operators = ["ann"]

[serve]
status-port = {status_port}

[limits]
tokens = 1_000_000_000_000
steps = 1_000_000_000
seconds = 1_000_000_000
"""
COLUMNS = (
    "seconds",
    "turns",
    "compactions",
    "rss_kib",
    "pss_kib",
    "uss_kib",
    "children_rss_kib",
    "threads",
    "files",
    "cpu_seconds",
    "counters",
    "decreases",
)


@dataclass(frozen=True, slots=True)
class Load:
    """How many of each there are, how long a session rests between two turns, how often memory is measured, in seconds, and the size of
    the file that each turn reads, in characters.
    """

    minutes: float
    working: int
    parked: int
    browsers: int
    pause: float
    every: float
    notes: int


@dataclass(slots=True)
class Served:
    """The service under load, how many turns it has finished, and how often it replaced old messages by a summary."""

    pid: int
    port: int
    status_port: int
    token: str
    began: float = field(default_factory=time.monotonic)
    turns: int = 0
    compactions: int = 0
    counters: dict[str, float] = field(default_factory=dict[str, float])
    decreases: int = 0

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """Return the head of a request from a signed-in browser."""
        first = (f"{method} {path} HTTP/1.1", f"Host: {_HOST}:{self.port}", f"Cookie: curtainwall={self.token}")
        return "\r\n".join((*first, *lines, "", "")).encode()

    def sample(self) -> tuple[float, ...]:
        """Return the figures of now, as in `COLUMNS`."""
        memory = _fields(Path(f"/proc/{self.pid}/smaps_rollup"))
        status = _fields(Path(f"/proc/{self.pid}/status"))
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks = int(stat[11]) + int(stat[12])
        return (
            round(time.monotonic() - self.began),
            self.turns,
            self.compactions,
            memory["Rss"],
            memory["Pss"],
            memory["Private_Clean"] + memory["Private_Dirty"],
            sum(_resident(child) for child in _descendants(self.pid)),
            status["Threads"],
            len(os.listdir(f"/proc/{self.pid}/fd")),
            ticks / os.sysconf("SC_CLK_TCK"),
            len(self.counters),
            self.decreases,
        )

    async def scrape(self) -> None:
        """Read the metrics as Prometheus does, and count each counter that is smaller than before or gone."""
        async with _connection(self.status_port) as (reader, writer):
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: {_HOST}:{self.status_port}\r\nConnection: close\r\n\r\n".encode())
            text = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        now = {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in text_string_to_metric_families(text)
            if family.type in {"counter", "histogram"}
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for name, before in self.counters.items():
            if now.get(name, -1.0) < before:
                self.decreases += 1
                print(f"{name} fell from {before} to {now.get(name)}", file=sys.stderr, flush=True)
        self.counters = now


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load, write the curve, and print what grew."""
    parser = argparse.ArgumentParser(prog="python -m bench.endurance", description="Watch the memory of `curtainwall serve` under load.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--working", type=int, default=50, help="sessions that work turn after turn (default: 50)")
    parser.add_argument("--parked", type=int, default=500, help="sessions that wait for an answer (default: 500)")
    parser.add_argument("--browsers", type=int, default=100, help="browsers with an open event stream (default: 100)")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds that a session rests between turns (default: 5)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines (default: 10)")
    parser.add_argument(
        "--notes",
        type=int,
        default=740,
        help="characters of the file that each turn reads; more of them fill the context sooner (default: 740)",
    )
    parser.add_argument("--out", type=Path, default=None, help="the CSV file to write (default: stdout alone)")
    given = parser.parse_args(arguments)
    load = Load(given.minutes, given.working, given.parked, given.browsers, given.pause, given.every, given.notes)
    # Ended early, it still has to stop the service and remove its directory.
    signal.signal(signal.SIGTERM, _end)
    with fresh_directory() as place, contextlib.ExitStack() as stack:
        files = [sys.stdout] + ([] if given.out is None else [stack.enter_context(given.out.open("w", encoding="ascii"))])

        def write(row: Sequence[object]) -> None:
            for file in files:
                print(",".join(map(str, row)), file=file, flush=True)

        write(COLUMNS)
        rows: list[tuple[float, ...]] = []
        try:
            asyncio.run(_run(place, load, lambda row: (rows.append(row), write(row))))
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    print(summary(rows), file=sys.stderr)
    return int(any(row[-1] for row in rows))


def summary(rows: Sequence[tuple[float, ...]]) -> str:
    """Return in words how much memory was added from a third of the time to its end, by the line that fits best, and what counters did."""
    late = rows[len(rows) // 3 :]
    if len(late) < 3:
        return "too short to tell whether memory grows"
    seconds, turns, rss = ([row[COLUMNS.index(name)] for row in late] for name in ("seconds", "turns", "rss_kib"))
    hourly = _slope(seconds, rss) * 3600 / 1024
    each = _slope(turns, rss) if turns[-1] > turns[0] else 0.0
    memory = f"{rss[0] / 1024:.1f} MiB → {rss[-1] / 1024:.1f} MiB; {hourly:+.1f} MiB an hour, {each:+.2f} KiB a turn"
    counters, decreases = rows[-1][-2:]
    return f"{turns[-1]:,.0f} turns; {memory}; {counters:,.0f} counters, {decreases:,.0f} decreases"


def _slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((each - x) ** 2 for each in xs)
    return sum((one - x) * (other - y) for one, other in zip(xs, ys, strict=True)) / spread if spread else 0.0


async def _run(place: Path, load: Load, note: Callable[[tuple[float, ...]], object]) -> None:
    home, port, status_port = place / "cw", _free_port(), _free_port()
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(_CONFIG.format(port=port, status_port=status_port), encoding="ascii")
    environ = {**os.environ, "CURTAINWALL_HOME": str(home)}
    async with open_gate(load_setup(environ=environ)) as wired:
        notes = (_LINE * (load.notes // len(_LINE) + 1))[: load.notes]
        working = [await _born(wired, f"worker {number}", "read notes.txt", notes) for number in range(load.working)]
        parked = [await _born(wired, f"parked {number}", "read /etc/hostname", notes) for number in range(load.parked)]
    setup, errors = load_setup(environ=environ), place / "serve.err"
    with errors.open("wb") as written:
        serve = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "curtainwall", "serve", env=environ, cwd=ROOT, stderr=written, stdout=written
        )
    try:
        await _until_listening(port, serve, errors)
        async with open_gate(setup) as wired, asyncio.TaskGroup() as tasks:
            served = Served(serve.pid, port, status_port, sign_ins_of(setup.home, setup.config).sign_in("ann"))
            await _until_parked(wired, len(parked))
            started = [tasks.create_task(_browse(served, query)) for query in _pages(load.browsers, working)]
            started += [
                tasks.create_task(_work(wired, served, session, number * load.pause / max(1, load.working), load.pause))
                for number, session in enumerate(working)
            ]
            served.began = time.monotonic()
            while time.monotonic() - served.began < load.minutes * 60:
                if serve.returncode is not None:
                    raise RuntimeError(_last_words("the service ended", errors))
                await served.scrape()
                note(served.sample())
                await asyncio.sleep(load.every)
            for task in started:
                task.cancel()
    finally:
        if serve.returncode is None:
            serve.terminate()
        try:
            await asyncio.wait_for(serve.wait(), 30)
        except TimeoutError:
            serve.kill()
            await serve.wait()


async def _born(wired: GatedSessions, name: str, text: str, notes: str) -> SessionId:
    """Open a session of the web with a file to read and a first message."""
    session = await open_new(wired.sessions, SessionSpec("demo", name=name, routes=(Route(channel="web", reference=""),)), _ANN)
    (wired.setup.home.session(session).workspace / "notes.txt").write_text(notes, encoding="ascii")
    await wired.registry.send(session, SendMessage(by=_ANN, message=MessageId(wired.registry.mint()), text=text))
    return session


def _pages(browsers: int, working: Sequence[SessionId]) -> Iterator[str]:
    """Yield what each browser looks at: half of them a session that works, the others the inbox or the list of sessions."""
    for number in range(browsers):
        if number % 2 and working:
            yield f"session={working[number // 2 % len(working)]}&after=0"
        else:
            yield "on=asks" if number % 4 else "on=rows"


async def _browse(served: Served, query: str) -> None:
    """Read an event stream for ever; come back where it ends, as a browser does."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _connection(served.port) as (reader, writer):
                writer.write(served.head("GET", f"/events?{query}", "Accept: text/event-stream"))
                while await reader.read(65536):
                    pass
        await asyncio.sleep(1)


async def _work(wired: GatedSessions, served: Served, session: SessionId, first: float, pause: float) -> None:
    """Send a message after each turn's end, as somebody on the session's page does."""
    stream = session_stream(session)
    cursor = wired.registry.feed.head(stream)
    await asyncio.sleep(first)
    while True:
        await _send(served, session, "read notes.txt")
        async for recorded in wired.registry.feed.follow(stream, cursor):
            cursor = recorded.seq
            if isinstance(recorded.event, HistoryCompacted):
                served.compactions += 1
            if isinstance(recorded.event, TurnEnded):
                break
        served.turns += 1
        await asyncio.sleep(pause)


async def _send(served: Served, session: SessionId, text: str) -> None:
    body = urllib.parse.urlencode({"csrf": csrf_of(served.token), "text": text}).encode()
    async with _connection(served.port) as (reader, writer):
        head = ("Content-Type: application/x-www-form-urlencoded", f"Origin: http://{_HOST}:{served.port}", f"Content-Length: {len(body)}")
        writer.write(served.head("POST", f"/sessions/{session}/message", *head, "Connection: close") + body)
        answer = await reader.read()
    if not answer.startswith((b"HTTP/1.1 303", b"HTTP/1.1 204", b"HTTP/1.1 200")):
        raise RuntimeError(f"a message was refused: {answer[:500]!r}")


@contextlib.asynccontextmanager
async def _connection(port: int) -> "AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]":
    reader, writer = await asyncio.open_connection(_HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _until_listening(port: int, serve: asyncio.subprocess.Process, errors: Path) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            if serve.returncode is not None:
                raise RuntimeError(_last_words("the service did not start", errors))
            with contextlib.suppress(OSError):
                async with _connection(port):
                    return
            await asyncio.sleep(0.1)


def _last_words(what: str, errors: Path) -> str:
    return f"{what}: {errors.read_text(encoding='utf-8', errors='replace')[-2000:]}"


async def _until_parked(wired: GatedSessions, parked: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while len(wired.store.index.approvals(ApprovalQuery(limit=parked + 1))) < parked:  # noqa: ASYNC110 - another process has them
            await asyncio.sleep(0.5)


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of the kernel with a name on each line."""
    lines = (line.split(":", 1) for line in path.read_text(encoding="ascii").splitlines() if ":" in line)
    return {name: int(value.split()[0]) for name, value in lines if value.split() and value.split()[0].isdecimal()}


def _descendants(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text(encoding="ascii").split()):
                yield child
                yield from _descendants(child)


def _resident(pid: int) -> int:
    try:
        return _fields(Path(f"/proc/{pid}/status")).get("VmRSS", 0)
    except OSError:
        return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
