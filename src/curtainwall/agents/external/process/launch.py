"""How Claude Code's process is started: limits, folders, sockets, command line, confinement, and faults named by what to do."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from curtainwall.agents.external import SERVER, claude_key, session_overview
from curtainwall.facts import quoted
from curtainwall.host import Bounds, Confinement, Sockets
from curtainwall.host.home import Home
from curtainwall.model import NotFound, SessionId, TryLater, TurnAt, TurnFailed, Workspace, record

EXTENSION: Final = "process"
"""The log keeps this package's notes under this name."""

BETWEEN_TURNS: Final = "between turns"
"""The turn id while an agent works outside any turn, to compact its history."""

TOOLS_SOCKET: Final = "mcp.sock"
EGRESS_SOCKET: Final = "egress.sock"
"""The session's two sockets, in its run directory: its tools, and the way to the models."""

HOW_TO_SIGN_IN: Final = "set `ANTHROPIC_API_KEY` or `CLAUDE_CODE_OAUTH_TOKEN`; docs/models.md has the other places for keys"
"""What to do if the provider rejects us."""

_GIB = 1024**3


class ProgramMissing(NotFound):
    """The agent's program, or one that it needs, is not on this machine; the message says how to get it."""


class WrongVersion(TurnFailed):
    """The program does not know an option that we need; the message says which version does."""


class LoginNeeded(TurnFailed):
    """The provider rejects us; the message says where a key goes."""


class AgentErred(TurnFailed):
    """The agent reports that the turn failed."""


class AgentCrashed(TurnFailed):
    """The process ended in the middle of a turn; the next message starts a new one."""


class AgentSilent(TurnFailed):
    """The process gave no sign of life for too long and was ended; the next message starts a new one."""


class AgentGarbled(TurnFailed):
    """The process wrote output that is not stream-json and was ended."""


class NoAnswer(TurnFailed):
    """The process ended normally but without an answer."""


class ConversationTaken(TryLater):
    """Another process on this machine is in the conversation; two at once would spoil it."""


@record
class ProcessLimits:
    """How much processes may use. Times in seconds, sizes in bytes."""

    processes: int = 10
    """How many may run at once, over all sessions of this service."""
    idle: float = 5 * 60.0
    """How long a process may be idle before it is ended."""
    health: float = 30.0
    """How often an idle process is pinged."""
    silence: float = 180.0
    """How long a working process may be silent, unless one of its calls runs or a human is asked."""
    turn: float = 2 * 3600.0
    """How long a turn may work; time spent waiting for a human does not count."""
    grace: float = 3.0
    """How long an interrupted turn, or a stopping process, may take to end."""
    back_off: float = 0.5
    """How long the second start after failures waits; each further one waits twice as long, up to half a minute."""
    memory: int = 4 * _GIB
    children: int = 256
    full: float = 0.92
    """The share of the model's context at which the conversation is summarised and continues in a new one."""


@record
class ProcessFolders:
    """The directories of one session. The agent gets only the workspace's path; it sees the files through the session's tools."""

    workspace: Path
    orientation: Path
    run: Path
    state: Path
    locks: Path


@record
class ProcessNetwork:
    """An agent's network access: stand-in keys by provider, and the certificates (PEM) that it must trust."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    tools: str = ""
    """Text for the agent that lists the session's tools."""
    hosts: str = ""
    """Text for the agent about the hosts that its tools may fetch from freely."""
    instructions: str = ""
    """The configured instructions for sessions such as this one."""
    turn: Callable[[TurnAt], AbstractAsyncContextManager[object]] = nullcontext
    """Opened around each turn, so that its traffic counts as the turn's and is judged as such; exits once all of it is recorded."""


class ProcessSockets(Protocol):
    """Opens a session's two sockets while a process runs: one to its tools, one to the models."""

    def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AbstractAsyncContextManager[ProcessNetwork]:
        """Serve `mcp.sock` and `egress.sock` in the directory, for that user alone, while the context is open."""
        ...


def process_folders(home: Home, session: SessionId, workspace: Workspace) -> ProcessFolders:
    """Return the directories of a session's local agent."""
    place, run = home.session(session), home.root / "run"
    return ProcessFolders(Path(workspace.path), place.root / "orientation", run / session, place.root / "state", run / "conversations")


TRIED: Final = "2.1.325"
"""The version of Claude Code that this was tested with."""

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

# No agent can use a proxy on a Unix socket, so we bridge to it from a port on the confinement's loopback.
_BRIDGED: Final = (
    f'socat TCP-LISTEN:{_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:{_RUN}/{EGRESS_SOCKET} </dev/null >/dev/null 2>&1 & exec "$@"'
)

_PROMPT: Final = """\
You work for the user in the project {workspace}, inside a sandbox that Curtainwall runs.

You have no tools of your own: use those of the server `{server}`. Through them, and only so, you see and change the project's files, run \
programs, use git and reach the web; from here the project's directory looks empty. Look for CLAUDE.md or AGENTS.md in it before you \
begin. Each call is judged by rules. It may run at once, it may be refused, or a person may be asked first; then the call takes as long as \
that person takes, which can be hours. Wait for it; do not call again. A refusal names the rule that decided and what would be allowed \
instead. It is final: do not look for a way around it. Tell the user what was refused and why.

{overview}"""


@record
class ProcessStart:
    """One start of the program: which conversation, and whether that is new."""

    program: Path
    folders: ProcessFolders
    conversation: str
    is_new: bool
    model: str = ""
    instructions: str = ""
    """The instructions of the program that opened the session."""


def find_claude(configured: str = "") -> Path:
    """Return the real path of Claude Code's program, the configured one or the one on the path; raise `ProgramMissing`."""
    program = shutil.which(configured or "claude")
    if program is None:
        where = f"at {quoted(configured)}" if configured else "on the path"
        raise ProgramMissing(
            f"there is no Claude Code {where}; install it (`npm install -g @anthropic-ai/claude-code`), "
            "or say in `processes.program` where it is"
        )
    if not os.path.exists(_NEEDED):
        raise ProgramMissing(f"`{_NEEDED}` is missing, which leads the agent to its tools; install it (on Debian: apt-get install socat)")
    return Path(os.path.realpath(program))


def claude_model(name: str) -> str:
    """Return the agent's name for the model, or nothing for a name without a provider, so that the agent chooses; raise `TurnFailed`."""
    provider, _, model = name.partition(":")
    if provider == PROVIDER and model:
        return model
    if provider in _OTHERS and model:
        raise TurnFailed(f"claude cannot use the model `{name}`; it talks to: {PROVIDER}")
    return ""


def prepare(folders: ProcessFolders, reach: ProcessNetwork) -> None:
    """Create the private directories, and write what the agent reads."""
    for path in (folders.orientation, folders.run, folders.state, folders.locks):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folders.orientation / _EMPTY).mkdir(mode=0o500, exist_ok=True)
    certificates = folders.orientation / _CERTIFICATES
    temporary = certificates.with_name(f".{_CERTIFICATES}.new")
    temporary.write_text(reach.certificates, encoding="utf-8")
    temporary.rename(certificates)


def command(start: ProcessStart, reach: ProcessNetwork) -> list[str]:
    """Return the command line inside the confinement, which never contains the user's text."""
    overview = session_overview(reach.tools, reach.hosts, reach.instructions, start.instructions)
    prompt = _PROMPT.format(workspace=start.folders.workspace, server=SERVER, overview=overview)
    tools = {"type": "stdio", "command": "socat", "args": ["STDIO", f"UNIX-CONNECT:{_RUN}/{TOOLS_SOCKET}"]}
    return [
        *("/bin/sh", "-c", _BRIDGED, "sh", _PROGRAM),
        *("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
        # Each answer then follows a replay of the message it answers, with its id.
        "--replay-user-messages",
        *("--mcp-config", json.dumps({"mcpServers": {SERVER: tools}}), "--strict-mcp-config"),
        # A project's settings could contain hooks that run without approval.
        *("--setting-sources", "user"),
        # INVARIANT: every tool is the session's, so every call goes through the gate. Requests for anything else come to us.
        *("--tools", "", "--allowedTools", f"mcp__{SERVER}", "--permission-prompt-tool", "stdio"),
        *("--append-system-prompt", prompt, "--system-prompt-snapshot", "off"),
        *(("--model", start.model) if start.model else ()),
        *(("--session-id", start.conversation) if start.is_new else ("--resume", start.conversation)),
    ]


def confinement(start: ProcessStart, reach: ProcessNetwork, limits: ProcessLimits) -> Confinement:
    """Return the process's confinement: its state, which it may write, its sockets and certificates, and an empty directory as the project.

    The project itself is left out. Otherwise a message could show the model any project file by naming it (`@file`), bypassing the
    gate, and Claude Code would load the project's settings, hooks and instructions.
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
        # Its run directory holds the two sockets it needs; any other socket it can reach is its own.
        sockets=Sockets.ANY,
        bounds=Bounds(seconds=None, processes=limits.children, memory=limits.memory),
    )


def _environment(folders: ProcessFolders, reach: ProcessNetwork) -> Mapping[str, str]:
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
        # Otherwise the model would have to search for the session's tools.
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "MCP_TIMEOUT": "30000",
        "MCP_TOOL_TIMEOUT": str(_PATIENCE),
    }
