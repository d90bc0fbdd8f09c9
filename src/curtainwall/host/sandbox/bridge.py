"""A bridge into a confinement: a port on the loopback in there that a server of ours out here listens on, and nothing else in between.

Nobody inside can take the bridge's place, stop it, or see more of it than the port. It is there before the confined program begins.
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from curtainwall.host.sandbox import bridge_entry

PROXY_PORT: Final = 3128
_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Bridge:
    """What a confined process finds on its loopback: `serve` gets the listening socket before the process begins, and has to close it."""

    serve: Callable[[socket.socket], Awaitable[object]]
    port: int = PROXY_PORT

    @property
    def environment(self) -> dict[str, str]:
        """Return what tells programs that the bridge is the proxy for every way out; their own loopback stays their own."""
        url = f"http://127.0.0.1:{self.port}"
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
        # The last one is for Node, which otherwise goes straight ahead.
        return {**proxies, "NO_PROXY": "127.0.0.1,::1", "no_proxy": "127.0.0.1,::1", "NODE_USE_ENV_PROXY": "1"}


async def listen_inside(process: int, port: int) -> socket.socket:
    """Return a socket that listens on the loopback of this process's network; raise OSError."""
    namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        try:
            given = (namespace, theirs.fileno())
            words = (sys.executable, "-I", "-S", bridge_entry.__file__, *map(str, given), str(port))
            helper = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={}, pass_fds=given)
        finally:
            os.close(namespace)
            theirs.close()
        try:
            async with asyncio.timeout(_SECONDS):
                _, complaint = await helper.communicate()
        except BaseException:
            helper.kill()
            await asyncio.shield(helper.wait())
            raise
        if helper.returncode != 0:
            raise OSError(complaint.decode(errors="replace").strip().rpartition("\n")[2] or "the bridge could not be made")
        _, handed, *_ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=handed[0])
    listener.setblocking(False)
    return listener
