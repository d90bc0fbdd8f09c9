"""Ports for servers that have to be told theirs beforehand."""

import secrets
import socket

_LOWEST, _COUNT = 16_000, 16_000
_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a port that nobody uses and that was not given before; it lies below those that outgoing connections take."""
    while True:
        port = _LOWEST + secrets.randbelow(_COUNT)
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
