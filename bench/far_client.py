"""The other process: a client over TLS, directly or through a session's proxy, that does what each line on its standard input says."""

import json
import socket
import ssl
import sys
import time
from typing import Any

_BODY = b'{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hello, are you there?"}]}'
_PIECE = 256 * 1024


def connect(told: dict[str, Any]) -> ssl.SSLSocket:
    """Return a connection to the provider: straight, or by CONNECT through a socket."""
    context = ssl.create_default_context(cadata=told["trust"])
    if "socket" not in told:
        plain = socket.create_connection(("127.0.0.1", told["port"]))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname="localhost")
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    plain.connect(told["socket"])
    plain.sendall(b"CONNECT %b:443 HTTP/1.1\r\nhost: %b\r\n\r\n" % ((told["host"].encode(),) * 2))
    assert plain.recv(4096).startswith(b"HTTP/1.1 200")
    return context.wrap_socket(plain, server_hostname=told.get("name", told["host"]))


def request(told: dict[str, Any], stream: str = "") -> bytes:
    """Return what a client of the provider's sends, with the headers that clients have."""
    lines = [
        "POST /v1/messages?beta=true HTTP/1.1",
        f"host: {told['host']}",
        f"x-api-key: {told['key']}",
        "accept: application/json",
        "user-agent: bench/1",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: one,two,three",
        "x-app: cli",
        "accept-encoding: gzip, deflate",
        "content-type: application/json",
        f"content-length: {len(_BODY)}",
        *([f"x-stream: {stream}"] if stream else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + _BODY


def small(connection: ssl.SSLSocket, sent: bytes, count: int) -> list[float]:
    """Return how long each of so many requests took."""
    took: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        connection.sendall(sent)
        came = connection.recv(_PIECE)
        while not came.endswith(b"}}"):
            came += connection.recv(_PIECE)
        took.append(time.perf_counter() - began)
    return took


def stream(connection: ssl.SSLSocket, sent: bytes) -> float:
    """Return how many seconds a byte of a stream took."""
    size, last, buffer = 0, b"", bytearray(_PIECE)
    began = time.perf_counter()
    connection.sendall(sent)
    while not last.endswith(b"\r\n0\r\n\r\n"):
        got = connection.recv_into(buffer)
        assert got, "the stream ended too early"
        size += got
        last = (last + buffer[max(0, got - 8) : got])[-8:]
    return (time.perf_counter() - began) / size


def strangers(told: dict[str, Any], count: int) -> int:
    """Ask for so many names that the connection is not for, and return how many handshakes failed."""
    failed = 0
    for number in range(count):
        try:
            connect({**told, "name": f"name-{number}.example.test"}).close()
        except OSError:
            failed += 1
    return failed


def main() -> None:
    """Do what each line says until the input ends."""
    open_: dict[str, ssl.SSLSocket] = {}
    for line in sys.stdin:
        told = json.loads(line)
        if told["do"] == "strangers":
            print(json.dumps(strangers(told, told["count"])), flush=True)
            continue
        where = told.get("socket", "direct")
        if where not in open_:
            open_[where] = connect(told)
        if told["do"] == "small":
            print(json.dumps(small(open_[where], request(told), told["count"])), flush=True)
        else:
            print(json.dumps([stream(open_[where], request(told, told["stream"]))]), flush=True)


if __name__ == "__main__":
    main()
