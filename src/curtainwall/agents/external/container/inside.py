"""Where things are inside a container: the four mounts, the two sockets in one of them, and the bridges that lead to those."""

from typing import Final

WORKSPACE: Final = "/workspace"
ORIENTATION: Final = "/etc/curtainwall"
RUN: Final = "/run/curtainwall"
HOME: Final = "/home/agent"
TEMPORARY: Final = "/tmp"  # noqa: S108 - a tmpfs of the container's own
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a tmpfs of the container's own

QUEUES: Final = "/dev/mqueue"

ROOT_FILES: Final = "/etc/curtainwall-root"
"""Where files are that an agent takes from nobody but root; a tmpfs, so that no file of the host belongs to root for that."""

CERTIFICATE: Final = f"{ORIENTATION}/ca.pem"
"""The certificates that the agent trusts."""

MESSAGE: Final = f"{ORIENTATION}/message"
"""What the agent is told: its stdin."""

TOOLS_SOCKET: Final = "mcp.sock"
"""In the run directory: the session's tools."""

EGRESS_SOCKET: Final = "egress.sock"
"""In the run directory: the way to the models."""

BRIDGE: Final = ("socat", "STDIO", f"UNIX-CONNECT:{RUN}/{TOOLS_SOCKET}")
"""Carries stdin and stdout to the session's tools, for agents that can only start a tool server."""

LIFELINE_SOCKET: Final = "alive.sock"
"""In the run directory: served for as long as the container may live."""

_PORT: Final = 18080
PROXY: Final = f"http://127.0.0.1:{_PORT}"

_WAY: Final = ("socat", f"TCP-LISTEN:{_PORT},bind=127.0.0.1,fork,reuseaddr", f"UNIX-CONNECT:{RUN}/{EGRESS_SOCKET}")
_HOLD: Final = f'{{ "$@"; kill $$; }} & exec socat -u UNIX-CONNECT:{RUN}/{LIFELINE_SOCKET} -'

MAIN: Final = ("/bin/sh", "-c", _HOLD, "sh", *_WAY)
"""The container's own process, and the container lasts as long as it: it holds the lifeline, and ends where nobody serves that any more.

Beside it a second one leads from a port to the models, because no agent can use a proxy on a Unix socket.
"""
