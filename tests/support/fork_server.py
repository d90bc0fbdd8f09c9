"""A process that has modules imported already and becomes `python -m MODULE` in a child of its own for everyone who connects.

A wish is a line of JSON (the module, its arguments, its environment, where it runs, what else to import first) with three descriptors: its
stdin, stdout and stderr. What comes back are two lines: the pid, then the exit code as `subprocess` tells it. It ends with its own stdin.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from importlib import import_module
from typing import Any


def become(wish: dict[str, Any], descriptors: list[int]) -> None:
    """Be the wanted program, in this process and to its end."""
    os.environ.clear()
    os.environ.update(wish["environ"])
    os.chdir(wish["place"])
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv[1:] = wish["words"]
    sys.modules.pop(wish["module"], None)
    runpy.run_module(wish["module"], run_name="__main__", alter_sys=True)


def mind(client: socket.socket, wish: dict[str, Any], descriptors: list[int]) -> None:
    """Start the program, tell what becomes of it and end; only the program itself returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        client.close()
        return become(wish, descriptors)
    client.sendall(f"{pid}\n".encode())
    client.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def serve(place: str) -> None:
    """Fork until nobody wants anything any more; only a program that was wanted returns before that, when it is done."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(64)
        print("ready", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            with client:
                told, descriptors, _, _ = socket.recv_fds(client, 1 << 18, 3)
                wish = json.loads(told)
                for name in (wish["module"], *wish["imported"]):
                    import_module(name)
                # What is there by now stays: nobody who is forked has to look through it, and copy it by doing so, only to find it in use.
                gc.freeze()
                if os.fork() == 0:
                    listener.close()
                    return mind(client, wish, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
    return None


if __name__ == "__main__":
    serve(sys.argv[1])
