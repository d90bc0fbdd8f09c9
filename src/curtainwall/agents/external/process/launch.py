"""How the agent's process is started: its command line, its environment, and a confinement that holds nothing of ours but its own state."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.agents.external import SERVER, claude_key
from curtainwall.agents.external.process.terms import EGRESS_SOCKET, TOOLS_SOCKET, Folders, Limits, ProgramMissing, Reach
from curtainwall.facts import quoted
from curtainwall.host import Bounds, Confinement, Sockets
from curtainwall.model import TurnFailed

TRIED: Final = "2.1.325"
"""The version of Claude Code that all of this was tried with."""

PROVIDER: Final = "anthropic"
_OTHERS: Final = frozenset({"openai", "gemini"})

_PROGRAM: Final = "/opt/agent/claude"
_ORIENTATION: Final = "/etc/curtainwall"
_RUN: Final = "/run/curtainwall"
_PORT: Final = 18080
_PATIENCE: Final = 7 * 24 * 3600 * 1000
_EMPTY: Final = "empty"
_CERTIFICATES: Final = "ca.pem"
_NEEDED: Final = "/usr/bin/socat"

# No agent can use a proxy on a Unix socket, so a bridge leads there from a port of the confinement's own loopback.
_BRIDGED: Final = (
    f'socat TCP-LISTEN:{_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:{_RUN}/{EGRESS_SOCKET} </dev/null >/dev/null 2>&1 & exec "$@"'
)

_WORDS: Final = """\
You work for the user in the project {workspace}, inside a sandbox that Curtainwall runs.

You have no tools of your own: use those of the server `{server}`. Through them, and only so, you see and change the project's files, run \
programs, use git and reach the web; from here the project's directory looks empty. Look for CLAUDE.md or AGENTS.md in it before you \
begin. Each call is judged by rules. It may run at once, it may be refused, or a person may be asked first; then the call takes as long as \
that person takes, which can be hours. Wait for it; do not call again. A refusal names the rule that decided and what would be allowed \
instead. It is final: do not look for a way around it. Tell the user what was refused and why.{hosts}"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the program: which conversation, and whether it is there already."""

    program: Path
    folders: Folders
    conversation: str
    is_new: bool
    model: str = ""


def find_claude(told: str = "") -> Path:
    """Return Claude Code's program by its real path: the one that was told, or the one on the path; raise `ProgramMissing`."""
    found = shutil.which(told or "claude")
    if found is None:
        where = f"at {quoted(told)}" if told else "on the path"
        raise ProgramMissing(
            f"there is no Claude Code {where}; install it (`npm install -g @anthropic-ai/claude-code`), "
            "or say in `processes.program` where it is"
        )
    if not os.path.exists(_NEEDED):
        raise ProgramMissing(f"`{_NEEDED}` is missing, which leads the agent to its tools; install it (on Debian: apt-get install socat)")
    return Path(os.path.realpath(found))


def model_of(name: str) -> str:
    """Return the model as the agent calls it; a name that is no provider's leaves the choice to the agent. Raise `TurnFailed`."""
    provider, _, model = name.partition(":")
    if provider == PROVIDER and model:
        return model
    if provider in _OTHERS and model:
        raise TurnFailed(f"claude cannot use the model `{name}`; it talks to: {PROVIDER}")
    return ""


def prepare(folders: Folders, reach: Reach) -> None:
    """Make the directories, closed to others, and write what the agent reads."""
    for path in (folders.orientation, folders.run, folders.state, folders.locks):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folders.orientation / _EMPTY).mkdir(mode=0o500, exist_ok=True)
    written = folders.orientation / _CERTIFICATES
    hidden = written.with_name(f".{_CERTIFICATES}.new")
    hidden.write_text(reach.certificates, encoding="utf-8")
    hidden.rename(written)


def command(start: Start, hosts: str = "") -> list[str]:
    """Return the command line inside; what the user says is never on it. `hosts` says which of them may be reached freely."""
    words = _WORDS.format(workspace=start.folders.workspace, server=SERVER, hosts=f"\n\n{hosts}" if hosts else "")
    tools = {"type": "stdio", "command": "socat", "args": ["STDIO", f"UNIX-CONNECT:{_RUN}/{TOOLS_SOCKET}"]}
    return [
        *("/bin/sh", "-c", _BRIDGED, "sh", _PROGRAM),
        *("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
        # Each answer follows the message that it answers, by that one's id.
        "--replay-user-messages",
        *("--mcp-config", json.dumps({"mcpServers": {SERVER: tools}}), "--strict-mcp-config"),
        # A project's own settings could bring hooks that run without asking.
        *("--setting-sources", "user"),
        # INVARIANT: every tool is the session's, and so every wish goes through the gate. What would be asked for beyond comes to us.
        *("--tools", "", "--allowedTools", f"mcp__{SERVER}", "--permission-prompt-tool", "stdio"),
        *("--append-system-prompt", words, "--system-prompt-snapshot", "off"),
        *(("--model", start.model) if start.model else ()),
        *(("--session-id", start.conversation) if start.is_new else ("--resume", start.conversation)),
    ]


def confinement(start: Start, reach: Reach, limits: Limits) -> Confinement:
    """Return what the process is given: its own state to write to, its sockets and certificates, and an empty directory for the project.

    The project itself is not there. A message could otherwise bring any of its files before the model by naming it (`@file`), past the
    gate; and what a project brings along (settings, hooks, instructions) is not found.
    """
    folders = start.folders
    return Confinement(
        cwd=str(folders.workspace),
        writable=(str(folders.state),),
        readable=(
            (str(folders.orientation / _EMPTY), str(folders.workspace)),
            (str(folders.orientation / _CERTIFICATES), f"{_ORIENTATION}/{_CERTIFICATES}"),
            (str(folders.run), _RUN),
            (str(start.program), _PROGRAM),
        ),
        environment=_environment(folders, reach),
        # Its run directory holds the two that it lives on, and nothing else in there is anybody's but its own.
        sockets=Sockets.ANY,
        bounds=Bounds(seconds=None, processes=limits.children, memory=limits.memory),
    )


def _environment(folders: Folders, reach: Reach) -> Mapping[str, str]:
    proxy, certificates = f"http://127.0.0.1:{_PORT}", f"{_ORIENTATION}/{_CERTIFICATES}"
    key = reach.keys.get(PROVIDER)
    return {
        "CLAUDE_CONFIG_DIR": str(folders.state),
        **(claude_key(key) if key else {}),
        "HTTPS_PROXY": proxy,
        "HTTP_PROXY": proxy,
        "NO_PROXY": "127.0.0.1,localhost",
        "SSL_CERT_FILE": certificates,
        "NODE_EXTRA_CA_CERTS": certificates,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DO_NOT_TRACK": "1",
        # Otherwise the session's tools are found only by a search of the model's.
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "MCP_TIMEOUT": "30000",
        "MCP_TOOL_TIMEOUT": str(_PATIENCE),
    }
