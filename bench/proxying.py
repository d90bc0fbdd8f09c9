"""What the egress proxy adds to a request, how fast streams pass through it while they are counted, and what it costs to keep."""

import asyncio
import gc
import json
import os
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.disk import ROOT
from bench.measuring import Figure, Seconds, Side, Target, interleave
from curtainwall.egress import (
    ANTHROPIC,
    Access,
    Authority,
    CountedUsage,
    Egress,
    HostDecision,
    ModelCall,
    ModelCallEnd,
    ProxyConfig,
    SessionProxy,
)
from curtainwall.facts import scope_of_address
from curtainwall.host import Dialler, FromEnvironment

_REQUESTS = 300
_STREAM = 32_000_000
_SMALL_STREAM = 8_000_000
_SESSIONS = 20
_MANY, _NAMES = 100_000, 10_000
_KEY = "sk-ant-api03-the-benchmarks-own-key"

Telling = Callable[[dict[str, Any]], Awaitable[Any]]


class Adding:
    """A meter that does what a budget does: it looks at every count."""

    def __init__(self) -> None:
        self.tokens = 0

    async def begins(self, call: ModelCall) -> HostDecision:
        return HostDecision(allowed=True)

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        return "too much" if so_far.input_tokens + so_far.output_tokens > 10**12 else None

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        self.tokens += counted.output_tokens


@dataclass(frozen=True)
class Place:
    """The provider in its own process, and the way to it."""

    port: int
    trust: str
    egress: Egress

    async def open(self, path: Path) -> SessionProxy:
        """Open one session's proxy."""
        access = Access(ANTHROPIC.at(f"https://localhost:{self.port}"), FromEnvironment("KEY", {"KEY": _KEY}))
        return await self.egress.open(ProxyConfig((access,), Adding()), path)

    def straight(self) -> dict[str, Any]:
        """Return what a client is told that goes there directly."""
        return {"port": self.port, "trust": self.trust, "host": "localhost", "key": _KEY}

    def through(self, proxy: SessionProxy, path: Path) -> dict[str, Any]:
        """Return what a client is told that goes through a proxy."""
        trust = self.egress.authority.certificate.decode()
        return {"socket": str(path), "trust": trust, "host": ANTHROPIC.host, "key": proxy.sentinels["anthropic"]}


@asynccontextmanager
async def _other(module: str, *arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT, limit=2**20)
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _place(home: Path) -> AsyncGenerator[tuple[Place, Telling]]:
    async with _other("bench.far_provider", str(home / "far")) as far, _other("bench.far_client") as client:
        assert far.stdout is not None
        told = json.loads(await far.stdout.readline())
        trust = ssl.create_default_context(cadata=told["trust"])
        egress = Egress(Authority(home / "ca"), Dialler(scope_of_address, trust=trust))

        async def tell(what: dict[str, Any]) -> Any:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(json.dumps(what).encode() + b"\n")
            return json.loads(await client.stdout.readline())

        try:
            yield Place(told["port"], told["trust"], egress), tell
        finally:
            egress.close()


async def proxying(home: Path) -> list[Figure]:
    """Requests and streams, through the proxy and directly, in turn; then memory, in a process of its own."""
    async with _place(home) as (place, tell):
        proxy = await place.open(home / "p")
        ours, direct = place.through(proxy, home / "p"), place.straight()

        def side(told: dict[str, Any], **what: Any) -> Side:
            async def run(_: int) -> Sequence[Seconds]:
                return await tell({**told, **what})

            return run

        big, little = f"16384 {_STREAM}", f"200 {_SMALL_STREAM}"
        took = await interleave(
            {
                "ours": side(ours, do="small", count=_REQUESTS),
                "direct": side(direct, do="small", count=_REQUESTS),
                "big": side(ours, do="stream", stream=big),
                "direct big": side(direct, do="stream", stream=big),
                "little": side(ours, do="stream", stream=little),
                "direct little": side(direct, do="stream", stream=little),
            }
        )
        await proxy.close()
    kept = await _in_a_process_of_its_own(home)
    added = (took["ours"].p50 - took["direct"].p50) * 1e3
    beside = "the same client without a proxy"
    return [
        Figure(
            "proxy: added per request",
            added,
            "ms",
            took["direct"].p50 * 1e3,
            f"{beside}: the whole request",
            None,
            Target(0.35),
            f"keep-alive, TLS on both sides, key swapped, body parsed, usage counted; {took['ours'].p50 * 1e3:.3f} ms with the proxy",
        ),
        _stream("proxy: stream of 16 KiB events", took["big"].p50, took["direct big"].p50, took["big"].to(took["direct big"]), 150),
        _stream(
            "proxy: stream of 200 B events", took["little"].p50, took["direct little"].p50, took["little"].to(took["direct little"]), 20
        ),
        Figure(
            "proxy: 20 sessions",
            kept["sessions"],
            "MB",
            target=Target(40),
            note=f"what 20 proxies with a client each add to the resident set, after requests and a stream; {kept['base']:.0f} MB before",
        ),
        Figure(
            "proxy: 100,000 requests",
            kept["requests"],
            "MB",
            target=Target(5),
            note="what they leave behind in the resident set, after a warm-up of 2,000",
        ),
        Figure(
            "proxy: 10,000 names",
            kept["names"],
            "MB",
            target=Target(5),
            note="the same for 10,000 handshakes that ask for another name, after 2,000",
        ),
    ]


def _stream(name: str, ours: Seconds, direct: Seconds, ratio: float, least: float) -> Figure:
    note = "each event a chunk, every one counted and searched for the key"
    rate, limit = 1e-6 / ours, 1e-6 / direct
    return Figure(name, rate, "MB/s", limit, "without a proxy", 1 / ratio, Target(least, way="at least"), note)


async def _in_a_process_of_its_own(home: Path) -> dict[str, float]:
    other = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.proxying", str(home / "kept"), stdout=PIPE, cwd=ROOT)
    told, _ = await other.communicate()
    assert other.returncode == 0
    return json.loads(told)


async def _keep(home: Path) -> None:
    async with _place(home) as (place, tell), AsyncExitStack() as stack:
        base = _resident()
        ways = [home / f"p{number}" for number in range(_SESSIONS)]
        proxies = [await place.open(path) for path in ways]
        for path, proxy in zip(ways, proxies, strict=True):
            stack.push_async_callback(proxy.close)
            await tell({**place.through(proxy, path), "do": "small", "count": 20})
            await tell({**place.through(proxy, path), "do": "stream", "stream": "16384 1000000"})
        sessions = _resident() - base
        one = place.through(proxies[-1], ways[-1])
        await tell({**one, "do": "small", "count": 2_000})
        before = _resident()
        for _ in range(_MANY // 5_000):
            await tell({**one, "do": "small", "count": 5_000})
        requests = _resident() - before
        await tell({**one, "do": "strangers", "count": 2_000})
        before = _resident()
        assert await tell({**one, "do": "strangers", "count": _NAMES}) == _NAMES
        names = _resident() - before
    each = {"base": base, "sessions": sessions, "requests": requests, "names": names}
    print(json.dumps({name: value / 1e6 for name, value in each.items()}))


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    asyncio.run(_keep(Path(sys.argv[1])))
