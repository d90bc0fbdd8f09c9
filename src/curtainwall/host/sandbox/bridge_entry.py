"""Opens a listening socket on the loopback of another network namespace and passes it back; imports only the standard library.

`confinement` runs it as `python -I -S bridge_entry.py NAMESPACE REPLY PORT`: a descriptor of the namespace, a descriptor of the socket to
reply on, and the port. A process with threads cannot enter a user namespace, so this is a separate process without any.
"""

import ctypes
import fcntl
import os
import socket
import sys
from typing import Final

_NEW_USER: Final = 0x10000000
_NEW_NET: Final = 0x40000000
_OWNER: Final = 0xB701  # NS_GET_USERNS
_BACKLOG: Final = 64


def main(namespace: int, reply: int, port: int) -> None:
    """Enter the namespace, listen, and pass the socket back."""
    _enter(fcntl.ioctl(namespace, _OWNER), _NEW_USER)
    _enter(namespace, _NEW_NET)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    with socket.socket(fileno=reply) as channel:
        socket.send_fds(channel, [b"1"], [listener.fileno()])


def _enter(namespace: int, kind: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, kind) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
