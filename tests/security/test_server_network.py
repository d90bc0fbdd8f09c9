"""Tool servers that may use the network: only hosts that their user named, only where policy says so, over nothing but the bridge."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from curtainwall.host import Dialler
from curtainwall.model import CONNECT_SERVER, AnswerApproval, ApprovalAsked, CallRequest, CallRequested, Effect, Role, Scope
from curtainwall.session import Rules
from curtainwall.tools.servers import ServerSpec
from tests.support.certificates import Authority
from tests.support.covers import covers
from tests.support.houses import ANN, events, run, until
from tests.support.policies import policy
from tests.support.servers import FREE, Desk, bad_server, desk, review
from tests.support.talking import of

pytestmark = pytest.mark.usefixtures("bubblewrap")

FREELY = """
@id("free-for-tools") @title("The tools' own host is free")
permit (principal, action == Action::"send-url", resource in Host::"free.example.com")
when { context.tool == "egress.connect_server" };
"""
HOSTS = ("free.example.com", "asked.example.com", "other.example.com")


@dataclass
class World:
    """All the hosts there are, on one port of this machine; it counts who came, and for which name."""

    authority: Authority
    port: int = 0
    came: list[str] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        host = next(line for line in head.splitlines() if line.lower().startswith("host:")).partition(":")[2].strip().partition(":")[0]
        self.came.append(host)
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(host)}\r\nconnection: close\r\n\r\n{host}".encode()
        )
        await writer.drain()
        writer.close()

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        self.resolved.append(name)
        return ["127.0.0.1"]

    @property
    def dialler(self) -> Dialler:
        """Return a dialler to whom this machine is the network."""
        return Dialler(lambda _address, _port: Scope.PUBLIC, resolve=self.resolve)

    @property
    def certificate(self) -> bytes:
        return self.authority._certificate.public_bytes(serialization.Encoding.PEM)


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    made = World(Authority(tmp_path))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=made.authority.server(*HOSTS))
    made.port = server.sockets[0].getsockname()[1]
    (tmp_path / "trust.pem").write_bytes(made.certificate)
    try:
        yield made
    finally:
        server.close()


@asynccontextmanager
async def served(tmp_path: Path, there: World, *network: str) -> AsyncGenerator[Desk]:
    """Open a session with a server that asks for URLs, and may ask for these hosts."""
    trust = str(tmp_path / "trust.pem")
    spec = bad_server(network=network, read=(trust,), environment={"SSL_CERT_FILE": trust}, tools={"get": FREE, "probe": FREE})
    specs = await review(tmp_path, spec)
    async with desk(tmp_path, *specs, rules=Rules(policy(FREELY)), dialler=there.dialler) as at:
        yield at


def connects(at: Desk) -> list[CallRequested]:
    return [event for event in of(CallRequested, events(at.house, at.session)) if event.subject.tool == CONNECT_SERVER]


@covers("servers.network-is-judged")
def test_a_server_reaches_the_host_that_is_named_and_allowed_and_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as there, served(tmp_path, there, f"free.example.com:{there.port}") as at:
            assert await at.value("bad.get", url=f"https://free.example.com:{there.port}/") == "got: free.example.com"
            for url in (f"https://other.example.com:{there.port}/", "https://free.example.com/", f"https://127.0.0.1:{there.port}/"):
                assert str(await at.value("bad.get", url=url)).startswith("could not: ")
            told = str(await at.value("bad.get", url=f"http://free.example.com:{there.port}/"))
            assert "403" in told, "plain HTTP could be read by everyone on the way"
            assert there.came == ["free.example.com"]
            assert there.resolved == ["free.example.com."], "no name was looked up that nobody had allowed"
            (asked,) = connects(at)
            assert [(it.role, it.value) for it in asked.subject.resources if it.role is not Role.USE_TOOL] == [
                (Role.SEND_URL, f"https://free.example.com:{there.port}")
            ]
            assert asked.subject.canonical["by"] == "bad", "the log says who wanted it"

    run(story())


@covers("servers.network-is-judged")
def test_a_host_that_policy_asks_about_is_reached_after_a_human_said_yes(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as there, served(tmp_path, there, "*.example.com") as at:
            call = asyncio.create_task(at.value("bad.get", url=f"https://asked.example.com:{there.port}/"))
            (asked,) = await until(lambda: of(ApprovalAsked, events(at.house, at.session)))
            assert there.came == []
            await at.house.send(at.session, AnswerApproval(by=ANN, approval=asked.approval, granted=True))
            assert await call == "got: asked.example.com"
            again = await at.value("bad.get", url=f"https://asked.example.com:{there.port}/")
            assert again == "got: asked.example.com", "a yes holds for a moment, since the tunnel could have stayed open as well"
            call = asyncio.create_task(at.value("bad.get", url=f"https://other.example.com:{there.port}/"))
            asked = (await until(lambda: of(ApprovalAsked, events(at.house, at.session))[1:]))[0]
            await at.house.send(at.session, AnswerApproval(by=ANN, approval=asked.approval, granted=False))
            assert "403" in str(await call)
            assert there.came == ["asked.example.com", "asked.example.com"]

    run(story())


@covers("servers.network-is-judged")
def test_with_a_way_out_a_server_still_sees_nothing_of_this_machine(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as there, served(tmp_path, there, f"free.example.com:{there.port}") as at:
            aims = {"port": there.port, "socket": str(tmp_path / "ca"), "abstract": "none", "home": str(tmp_path / "ca")}
            aims |= {"database": str(tmp_path / "ca" / "authority.pem"), "secret_file": str(tmp_path / "ca" / "authority.pem")}
            aims |= {"outside": str(tmp_path / "outside.txt"), "pid": 1_000_000, "secret": "no such secret"}
            inside = json.loads(str(await at.value("bad.probe", targets=aims)))
            names = ("tcp", "unix", "abstract", "home", "database", "secret_file", "signal", "interfaces")
            assert {name: inside[name] for name in names if not inside[name].startswith("could not")} == {}
            assert not (tmp_path / "outside.txt").exists()
            assert there.came == []

    run(story())


def test_an_agent_cannot_ask_for_a_tunnel_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as there, served(tmp_path, there, "*") as at:
            answer = await at.gate.request(
                at.session, CallRequest(tool=CONNECT_SERVER, arguments={"url": "https://free.example.com", "by": "me"})
            )
            assert (answer.verdict.effect, answer.verdict.because) == (Effect.DENY, ("unknown-tool",))
            assert CONNECT_SERVER not in {tool.full_name for tool in at.hub.listing()}

    run(story())


@pytest.mark.parametrize(("more", "told"), [({"trusted": True}, "your whole network"), ({"shared": True}, "belongs to no session")])
def test_a_server_whose_network_nobody_could_judge_is_refused(more: dict[str, bool], told: str) -> None:
    with pytest.raises(Exception, match=told):
        ServerSpec("a", "x", network=("example.com",), **more)
