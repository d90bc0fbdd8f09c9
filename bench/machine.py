"""What was measured on: file system, versions, processors and load, so that a figure can be believed later."""

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

from bench.disk import file_system_of
from bench.sample import open_store
from curtainwall.store.schema import connect

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def describe(place: Path) -> dict[str, str]:
    """Return the facts of this machine that figures depend on."""
    return {
        "file system": file_system_of(place),
        "directory": str(place.parent),
        "synchronous": _synchronous(place / "machine"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cedarpy": version("cedarpy"),
        "pydantic": version("pydantic"),
        "kernel": platform.release(),
        "processors": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "load": load(),
    }


def load() -> str:
    """Return the load of the last one, five and fifteen minutes."""
    return " ".join(f"{part:.2f}" for part in os.getloadavg())


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
