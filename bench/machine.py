"""What was measured on: file system, versions, processors and load, so that a figure can be believed later."""

import os
import platform
import sqlite3
import sys
import time
from importlib.metadata import version
from pathlib import Path

from bench.disk import file_system_of
from bench.sample import open_store
from curtainwall.store.database import connect

_STEPS = 20_000
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def describe(place: Path) -> dict[str, str]:
    """Return the facts of this machine that figures depend on."""
    return {
        "file system": file_system_of(place),
        "directory": str(place.parent),
        "synchronous": _synchronous(place / "machine"),
        "python": f"{platform.python_version()}, {Path(sys.executable).resolve()}",
        "sqlite": sqlite3.sqlite_version,
        "cedarpy": version("cedarpy"),
        "pydantic": version("pydantic"),
        "kernel": platform.release(),
        "processors": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "load": load(),
        "pace": pace(),
    }


def load() -> str:
    """Return the load of the last one, five and fifteen minutes."""
    return " ".join(f"{part:.2f}" for part in os.getloadavg())


def pace() -> str:
    """Return how long a fixed piece of plain Python takes now: a shared machine is twice as slow in some minutes, without a load."""
    return f"{min(_step() for _ in range(5)):.1f} ms for {_STEPS:,} steps of plain Python"


def _step() -> float:
    began, found = time.perf_counter(), dict[str, int]()
    for number in range(_STEPS):
        name = str(number & 1023)
        found[name] = found.get(name, 0) + len(name)
    return (time.perf_counter() - began) * 1e3


def _synchronous(home: Path) -> str:
    """Return `PRAGMA synchronous` and the journal's mode of a connection that the store itself makes."""
    open_store(home).close()
    db = connect(home / "curtainwall.db")
    try:
        value = db.execute("PRAGMA synchronous").fetchone()[0]
        journal = db.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        db.close()
    return f"{_SYNCHRONOUS.get(value, str(value))} ({journal})"
