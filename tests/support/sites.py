"""Web servers on this machine that say what a test tells them, and remember what they were asked."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

PUBLIC = "127.0.0.2"
"""An address of this machine that tests of the tool call public, so that a real connection can be made to it."""


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


Answering = Callable[[Seen], bytes]


def reply(status: int = 200, body: bytes | str = b"", **headers: str) -> bytes:
    """Return a whole answer; header names are written with underscores."""
    content = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Some", *(f"{name}: {value}" for name, value in {"content-length": str(len(content)), **named}.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def redirect(to: str, status: int = 302) -> bytes:
    """Return an answer that leads elsewhere."""
    return reply(status, location=to)


@dataclass
class Site:
    """A server with pages by their path."""

    port: int = 0
    pages: dict[str, bytes | Answering] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)

    @property
    def paths(self) -> list[str]:
        return [each.target for each in self.seen]

    def answer(self, seen: Seen) -> bytes:
        self.seen.append(seen)
        page = self.pages.get(seen.target.partition("?")[0], reply(404, "nothing here", content_type="text/plain"))
        return page if isinstance(page, bytes) else page(seen)


def _read(sock: socket.socket) -> Seen | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += sock.recv(65536)
    return Seen(method, target, headers, body)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that hang up, and certificates that are refused, belong to the tests."""


@contextmanager
def site(address: str = "127.0.0.1", trust: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Site]:
    """Serve until the test is over."""
    made = Site()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            sock = self.request if trust is None else trust.wrap_socket(self.request, server_side=True)
            try:
                if (seen := _read(sock)) is not None:
                    sock.sendall(made.answer(seen))
            finally:
                sock.close()

    with _Server((address, port), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.hold.set()
            server.shutdown()
            thread.join()


@dataclass
class FakeNames:
    """A name server: each look-up takes the next list of a name, and the last one for ever."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def says(self, name: str, *answers: Sequence[str]) -> None:
        self.answers[name] = list(answers)

    async def __call__(self, name: str, port: int) -> Sequence[str]:
        plain = name.removesuffix(".")
        self.asked.append(plain)
        waiting = self.answers.get(plain)
        if not waiting:
            raise OSError("unknown name")
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]
