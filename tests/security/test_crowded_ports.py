"""A port of ours from the side of somebody who may connect and no more: another user of this machine, or a page in a browser."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest

from curtainwall.serve import http as http_connections
from curtainwall.serve.http import MOST, listen, most_connections, serve_pages
from tests.support.webs import CONFIG, Web, web_at


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("crowded").resolve(), CONFIG) as made:
        yield made


def caller(port: int, said: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(said)
    return made


def is_let_go(one: socket.socket) -> bool:
    """Tell whether the other side has hung up, which it says with an end or with a reset."""
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nco"])
def test_whoever_connects_without_end_takes_neither_our_descriptors_nor_the_place_of_others(web: Web, said: bytes) -> None:
    before = descriptors()
    callers: list[socket.socket] = []
    try:
        for _ in range(3 * MOST):
            with suppress(OSError):
                callers.append(caller(web.port, said))
        web.until(lambda: sum(not is_let_go(it) for it in callers) <= most_connections())
        # Both ends of each are in this process.
        assert descriptors() - before - len(callers) <= 2 * most_connections() + 16
        assert httpx2.get(f"{web.base}/sign-in", trust_env=False, timeout=60).status_code == 200
    finally:
        for one in callers:
            one.close()


def test_somebody_who_is_signed_in_stays_connected_whoever_else_comes(web: Web) -> None:
    ann = web.visit()
    with closing(caller(web.port)) as stream:
        cookie = "; ".join(f"{name}={value}" for name, value in ann.client.cookies.items())
        stream.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nCookie: {cookie}\r\n\r\n".encode())
        assert stream.recv(15) == b"HTTP/1.1 200 OK"
        callers = [caller(web.port) for _ in range(MOST + 20)]
        web.until(lambda: any(map(is_let_go, callers)))
        stream.settimeout(0.2)
        with suppress(TimeoutError):
            while stream.recv(65_536):
                pass
        assert not is_let_go(stream)
        for one in callers:
            one.close()


def test_a_request_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "_WITHIN", 0.2)

    async def work() -> None:
        ear = listen("127.0.0.1", 0, "nothing")
        serving = asyncio.create_task(serve_pages(_nobody, ear))
        for said in (b"", b"GET / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", ear.getsockname()[1])
            writer.write(said)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(work())


async def _nobody(_scope: object, receive: object, _send: object) -> None:
    assert callable(receive)
    while (await receive())["type"] != "http.disconnect":
        pass


def test_a_process_that_may_open_few_files_lets_fewer_in() -> None:
    assert 4 * 2 * _most_where(1024) <= 1024 // 2
    assert _most_where(256) < _most_where(1024) <= MOST


def _most_where(files: int) -> int:
    """Return how many are let in by a process that may open so many files."""
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({files}, {files}))"
    program = f"{limit}; from curtainwall.serve.http import most_connections; print(most_connections())"
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
