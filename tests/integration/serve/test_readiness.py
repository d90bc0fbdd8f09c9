"""`serve` under a service manager: a real datagram socket stands for systemd's."""

import socket
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program


@covers("serve.tells-its-manager")
@pytest.mark.parametrize("is_abstract", [False, True])
def test_serve_says_when_it_is_ready_alive_and_stopping(program: Program, tmp_path: Path, is_abstract: bool) -> None:
    program.configure("[web]\nenabled = false\n")
    name = f"@curtainwall-{tmp_path.name}-{id(program)}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if is_abstract else name)
        manager.settimeout(60)
        running = program.begin("serve", NOTIFY_SOCKET=name, WATCHDOG_USEC="200000")
        assert manager.recv(4096).decode().splitlines() == ["READY=1", f"STATUS=serving {program.home}"]
        assert [manager.recv(4096) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        running.child.terminate()
        last = manager.recv(4096)
        while last == b"WATCHDOG=1":
            last = manager.recv(4096)
        assert last.decode().splitlines() == ["STOPPING=1", "STATUS=parking what runs"]
        assert running.code() == 0
