"""Ports for servers that have to be told theirs beforehand."""

import os
import secrets
import socket

_LOWEST, _COUNT, _WORKERS = 16_000, 1_000, 16
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a port that nobody uses and that was not given before, to no worker; it lies below those that outgoing connections take."""
    while True:
        port = _LOWEST + _WORKERS * secrets.randbelow(_COUNT) + _WORKER
        if port not in _GIVEN and _is_free(port):
            _GIVEN.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as ear:
        try:
            ear.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_heard(port: int) -> bool:
    """Tell whether somebody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
