"""Real parts of the machine: what is there, which version, and what happens when one is missing."""

import json
import os
import platform
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repository import ROOT

PACKAGES = ROOT / ".tools" / "node_modules"
"""Where npm has put the packages that the tests use."""

_PROCESSOR = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
NODE = PACKAGES / f"node-linux-{_PROCESSOR}" / "bin" / "node"
CONFORMANCE = (
    str(NODE),
    str(PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
)
"""The command that runs the MCP conformance suite."""

FILES_SERVER = ("node", str(PACKAGES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"))
EVERYTHING_SERVER = ("node", str(PACKAGES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"), "stdio")
GIT_SERVER = (str(ROOT / ".tools" / "git-server" / "bin" / "mcp-server-git"),)
"""The commands that run the tool servers of others."""

CLAUDE = PACKAGES / "@anthropic-ai" / f"claude-code-linux-{_PROCESSOR}" / "claude"
CODEX = PACKAGES / "@openai" / "codex" / "vendor" / f"{platform.machine()}-unknown-linux-musl" / "bin" / "codex"
OPENCODE = PACKAGES / f"opencode-linux-{_PROCESSOR}" / "bin" / "opencode"
GEMINI = PACKAGES / "@google" / "gemini-cli"
"""The CLI agents: three programs, and a bundle for node."""

SYNAPSE = ROOT / ".tools" / "synapse" / "bin" / "python"
"""The Python that has the homeserver."""


@dataclass(frozen=True)
class RealPart:
    """Something a test needs from the machine; `version` is None where it is missing or does not work."""

    name: str
    version: Callable[[], str | None]
    how_to_get: str


def _first_line_of(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(done.stdout.splitlines()), "") if done.returncode == 0 else None


def _bubblewrap() -> str | None:
    """Return the version only where namespaces can really be made; the program alone proves nothing."""
    confined = ("bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "--new-session", "true")
    return _first_line_of("bwrap", "--version") if _first_line_of(*confined) is not None else None


def _conformance() -> str | None:
    """Return the version of the MCP conformance suite where there is a node that can run it."""
    about = Path(CONFORMANCE[1]).parents[1] / "package.json"
    if not about.is_file() or _first_line_of(CONFORMANCE[0], "--version") is None:
        return None
    return str(json.loads(about.read_text(encoding="utf-8"))["version"])


def _servers() -> str | None:
    """Return the version of the node servers where those and the Python one are there."""
    about = Path(FILES_SERVER[1]).parents[1] / "package.json"
    if not all(Path(one).is_file() for one in (about, EVERYTHING_SERVER[1], GIT_SERVER[0])) or _first_line_of("node", "--version") is None:
        return None
    return str(json.loads(about.read_text(encoding="utf-8"))["version"])


def _docker() -> str | None:
    """Return the engine's version where one could be started here: it needs root."""
    if os.geteuid() != 0 or _first_line_of("docker", "--version") is None or shutil.which("socat") is None:
        return None
    return _first_line_of("dockerd", "--version")


def _packed(place: Path) -> str | None:
    """Return the version of a CLI agent from its npm package; starting each to ask would take longer than the tests."""
    about = place / "package.json"
    return str(json.loads(about.read_text(encoding="utf-8"))["version"]) if about.is_file() else None


def _synapse() -> str | None:
    """Return the homeserver's version from its package; starting it to ask would take a second in every run."""
    about = next(SYNAPSE.parents[1].glob("lib/python3*/site-packages/matrix_synapse-*.dist-info"), None)
    return about.name.removeprefix("matrix_synapse-").removesuffix(".dist-info") if about is not None and SYNAPSE.exists() else None


REAL_PARTS = {
    part.name: part
    for part in (
        RealPart("bubblewrap", _bubblewrap, "scripts/setup-system bubblewrap"),
        RealPart("mcp-conformance", _conformance, "scripts/setup-system conformance"),
        RealPart("mcp-servers", _servers, "scripts/setup-system servers"),
        RealPart("tmux", lambda: _first_line_of("tmux", "-V"), "scripts/setup-system tmux"),
        RealPart("zsh", lambda: _first_line_of("zsh", "--version"), "scripts/setup-system shells"),
        RealPart("fish", lambda: _first_line_of("fish", "--version"), "scripts/setup-system shells"),
        RealPart("systemd", lambda: _first_line_of("systemd-analyze", "--version"), "scripts/setup-system systemd"),
        RealPart("docker", _docker, "scripts/setup-system docker, as root"),
        RealPart("claude-code", lambda: _packed(CLAUDE.parent), "scripts/setup-system agents"),
        RealPart("codex", lambda: _packed(CODEX.parents[3]), "scripts/setup-system agents"),
        RealPart("opencode", lambda: _packed(OPENCODE.parents[1]), "scripts/setup-system agents"),
        RealPart("gemini", lambda: _packed(GEMINI), "scripts/setup-system agents"),
        RealPart("synapse", _synapse, "scripts/setup-system matrix"),
        RealPart("chromium", lambda: _first_line_of("chromium", "--version"), "scripts/setup-system browser"),
        RealPart("git", lambda: _first_line_of("git", "--version"), "apt-get install git"),
    )
}


def require(part: RealPart, environ: Mapping[str, str] = os.environ) -> str:
    """Return the part's version; where it is missing, skip the test, or fail it when `CI=true`."""
    version = part.version()
    if version is not None:
        return version
    message = f"real part `{part.name}` is missing or does not work here; get it with: {part.how_to_get}"
    if environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def report() -> list[str]:
    """Return one line per real part, for the head of a test run."""
    found = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(),
        **{name: part.version() for name, part in REAL_PARTS.items()},
    }
    return [f"{name}: {version or 'missing'}" for name, version in found.items()]
