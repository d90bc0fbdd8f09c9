"""How long the program takes to say its version, and to ask a model for the first time, beside the interpreter's own start."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.measuring import Figure, Seconds, Side, Target, clock, interleave

_EACH = 5
_PROGRAM = str(Path(sys.executable).parent / "curtainwall")


async def starting(home: Path) -> list[Figure]:
    """Start real processes, one after the other."""
    (home / "workspace").mkdir()
    (home / "workspace" / "notes.txt").write_text("bread, milk\n", encoding="utf-8")
    environ = {**os.environ, "CURTAINWALL_HOME": str(home / "home")}
    start = [_PROGRAM, "start", "--model", "demo", "--workspace", str(home / "workspace"), "--output", "stream-json", "read notes.txt"]
    took = await interleave(
        {
            "version": _side(lambda: _whole([_PROGRAM, "--version"], environ)),
            "bare": _side(lambda: _whole([sys.executable, "-c", "pass"], environ)),
            "start": _side(lambda: _until_asked(start, environ), 1),
        },
        rounds=7,
        warm_up=1,
    )
    version, bare, first = took["version"], took["bare"], took["start"]
    beside = "the interpreter's own start"
    return [
        Figure(
            "--version",
            version.p50 * 1e3,
            "ms",
            bare.p50 * 1e3,
            beside,
            version.to(bare),
            Target(1.5 * bare.p50 * 1e3 + 60),
            "a real process from start to end; the target is one and a half times the interpreter, and 60 ms",
        ),
        Figure(
            "start to the first request",
            first.p50,
            "s",
            bare.p50,
            beside,
            first.to(bare),
            Target(1),
            "`start` with `demo` and a task, from the start of the process to the time that its log gives for the first request",
        ),
    ]


def _side(work: Callable[[], Seconds], times: int = _EACH) -> Side:
    async def run(_: int) -> Sequence[Seconds]:
        return [work() for _ in range(times)]

    return run


def _whole(words: list[str], environ: Mapping[str, str]) -> Seconds:
    began = clock()
    subprocess.run(words, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return clock() - began


def _until_asked(words: list[str], environ: Mapping[str, str]) -> Seconds:
    began = time.time()
    done = subprocess.run(words, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    told = (json.loads(line) for line in done.stdout.splitlines())
    asked = next(each["at"] for each in told if each.get("event") == "ModelRequested")
    return asked / 1000 - began
