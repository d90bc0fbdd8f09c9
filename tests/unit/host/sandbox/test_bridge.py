"""A bridge into a confinement: the one port that leads out, there from the beginning, and nothing beside it."""

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest

from curtainwall.host import Bridge, Bubblewrap, Confinement, ConfinementFailed, Finished, find_bubblewrap, run_confined
from curtainwall.host.sandbox import bridge_entry
from tests.support.covers import covers

pytestmark = pytest.mark.usefixtures("bubblewrap")

ASK = 'exec 3<>/dev/tcp/127.0.0.1/3128 && printf "hello\\n" >&3 && cat <&3'
"""What a shell inside says to the port."""


class Greeter:
    """A server of ours on the other end, that greets whoever comes."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._server: asyncio.Server | None = None

    async def serve(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._greet, sock=listener)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readline())
        writer.write(b"from outside\n")
        await writer.drain()
        writer.close()


async def bridged(command: str) -> tuple[Finished, list[bytes]]:
    greeter = Greeter()
    try:
        done = await run_confined(["/bin/bash", "-c", command], Confinement(cwd="/tmp", bridge=Bridge(greeter.serve)))
    finally:
        await greeter.close()
    return done, greeter.heard


@covers("bridge.one-way-out")
def test_the_first_thing_a_confined_program_does_can_be_to_use_the_bridge() -> None:
    done, heard = asyncio.run(bridged(ASK))
    assert (done.code, done.out, heard) == (0, b"from outside\n", [b"hello\n"]), done.err


@covers("bridge.one-way-out")
def test_beside_the_bridge_there_is_no_network_and_no_names() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        look = f"""
        tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'; echo
        (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo "reached the host"
        (exec 3<>/dev/tcp/192.0.2.1/443) 2>/dev/null && echo "reached the network"
        getent hosts example.com && echo "resolved a name"
        echo "$HTTPS_PROXY $http_proxy $NO_PROXY"
        """
        done, heard = asyncio.run(bridged(look))
    proxy = "http://127.0.0.1:3128"
    assert done.out.decode().splitlines() == ["lo", f"{proxy} {proxy} 127.0.0.1,::1"], done.err
    assert heard == []


@covers("bridge.one-way-out")
def test_nobody_inside_can_listen_in_the_bridges_place() -> None:
    take = "import socket; socket.create_server(('127.0.0.1', 3128), reuse_port=True)"
    done, _ = asyncio.run(bridged(f'/usr/bin/python3 -c "{take}" 2>&1 | tail -1; {ASK}'))
    assert b"Address already in use" in done.out
    assert done.out.endswith(b"from outside\n")


def test_two_bridges_lead_to_two_servers() -> None:
    async def story() -> None:
        (_, one), (_, two) = await asyncio.gather(bridged(ASK.replace("hello", "one")), bridged(ASK.replace("hello", "two")))
        assert (one, two) == ([b"one\n"], [b"two\n"])

    asyncio.run(story())


def test_a_server_that_cannot_be_opened_keeps_the_program_from_starting(tmp_path: Path) -> None:
    async def serve(_: socket.socket) -> None:
        raise ConfinementFailed("there is nobody at the other end")

    confinement = Confinement(cwd="/tmp", writable=(str(tmp_path),), bridge=Bridge(serve))
    with pytest.raises(ConfinementFailed, match="nobody at the other end"):
        asyncio.run(run_confined(["/bin/bash", "-c", f"touch {tmp_path}/ran"], confinement))
    assert not (tmp_path / "ran").exists()


ORDINARY = """
import json, os, socket, subprocess, sys
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
entry, bubblewrap, ask = sys.argv[1:]
told, tells = os.pipe()
mine = "--unshare-all --unshare-user --disable-userns --uid 1000 --gid 1000 --ro-bind / / --proc /proc --dev /dev --cap-drop ALL".split()
shell = ["bash", "-c", "read go; " + ask]
inside = subprocess.Popen(
    [bubblewrap, *mine, "--die-with-parent", "--json-status-fd", str(tells), *shell], pass_fds=[tells],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}, cwd="/",
)
os.close(tells)
child = json.loads(os.fdopen(told).readline())["child-pid"]
namespace = os.open(f"/proc/{child}/ns/net", os.O_RDONLY)
ours, theirs = socket.socketpair()
given = [namespace, theirs.fileno()]
subprocess.run([sys.executable, "-I", "-S", "-c", entry, *map(str, given), "3128"], pass_fds=given, env={}, check=True)
_, (handed,), *_ = socket.recv_fds(ours, 1, 1)
listener = socket.socket(fileno=handed)
inside.stdin.write(b"go\\n"), inside.stdin.close()
there, _ = listener.accept()
there.sendall(b"from outside")
there.close()
print(os.geteuid(), inside.stdout.read().decode())
"""


def test_an_ordinary_user_has_bridges_too(bubblewrap: str) -> None:
    found = find_bubblewrap()
    assert isinstance(found, Bubblewrap)
    entry = Path(bridge_entry.__file__).read_text(encoding="utf-8")
    told = subprocess.run(
        ["/usr/bin/python3", "-c", ORDINARY, entry, found.path, ASK], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.stdout.split(maxsplit=1)[1:] == ["from outside\n"], told.stderr
    assert int(told.stdout.split()[0]) != 0
