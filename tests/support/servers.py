"""Tool servers for tests: real ones and a bad one, behind a hub and a gate like everything else."""

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from curtainwall.compose.network import ServerEgress
from curtainwall.compose.servers import needed_paths
from curtainwall.facts import Masker
from curtainwall.host import Dialler
from curtainwall.model import Answer, BudgetKind, CallRequest, Feed, Mode, Place, Presence, SessionId, ToolEffect, Workspace
from curtainwall.runtime import SessionGate, SessionRegistry, Stores, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, ToolHub, filesystem_runners
from curtainwall.tools.servers import (
    LaunchMachine,
    Review,
    Reviews,
    ServerNetwork,
    Servers,
    ServerSpec,
    SupervisorGrounds,
    ToolRoles,
    propose_roles,
    tools_by_name,
)
from curtainwall.tools.servers.offered import OfferedTool, parse_tool
from curtainwall.tools.session_tools import session_runners
from tests.support.houses import house, open_session

TOOL_SERVER = Path(__file__).with_name("tool_server.py")
FREE = ToolRoles(ToolEffect.INSPECT)
"""Roles of a tool that may be called without a question."""


def all_offered(tools: Iterable[dict[str, JsonValue]]) -> dict[str, OfferedTool]:
    """Return a server's tools by name, out of what it said."""
    return tools_by_name(filter(None, map(parse_tool, tools)))


def bad_server(name: str = "bad", *options: str, **more: Any) -> ServerSpec:
    """Return the server that does whatever a test wants of it."""
    reads = (*more.pop("read", ()), str(TOOL_SERVER))
    return ServerSpec(name, "/usr/bin/python3", (str(TOOL_SERVER), *options), read=() if more.get("trusted") else reads, **more)


def real_server(name: str, command: tuple[str, ...], *more: str, write: tuple[str, ...] = ()) -> ServerSpec:
    """Return a server of others, with what its command line needs to be read."""
    program, *args = command
    return ServerSpec(name, program, (*args, *more), read=needed_paths(program, args), write=write)


@dataclass
class Desk:
    """A session with servers behind its gate."""

    root: Path
    house: SessionRegistry
    gate: SessionGate
    hub: ToolHub
    servers: Servers
    session: SessionId
    workspace: Path

    @property
    def place(self) -> Place:
        return place_at(self.workspace, self.session)

    async def call(self, tool: str, **arguments: JsonValue) -> Answer:
        """Call a tool through the gate."""
        return await self.gate.request(self.session, CallRequest(tool=tool, arguments=arguments))

    async def value(self, tool: str, **arguments: JsonValue) -> JsonValue:
        """Call a tool that must be allowed and work."""
        answer = await self.call(tool, **arguments)
        assert answer.result is not None, answer.verdict
        assert answer.result.ok, answer.result.value
        return answer.result.value

    async def failure(self, tool: str, **arguments: JsonValue) -> str:
        """Call a tool that must be allowed and fail."""
        answer = await self.call(tool, **arguments)
        assert answer.result is not None, answer.verdict
        assert not answer.result.ok, answer.result.value
        return str(answer.result.value)


def place_at(workspace: Path, session: str = "s1", *, own: bool = True, mode: Mode = Mode.DEFAULT) -> Place:
    """Return a session's place."""
    return Place(session=SessionId(session), workspace=Workspace(path=str(workspace), own=own), mode=mode)


def servers_at(
    root: Path, *specs: ServerSpec, never: tuple[str, ...] = (), feed: Feed | None = None, ways: ServerNetwork | None = None
) -> Servers:
    """Return servers whose files are in a directory of the test's."""
    for name in ("logs", "servers"):
        (root / name).mkdir(exist_ok=True)
    grounds = SupervisorGrounds(LaunchMachine(str(root / "home"), never, network=ways), Masker(b"k" * 32), root / "logs", root / "servers")
    return Servers(specs, Reviews(root / "servers"), grounds, feed)


async def review(root: Path, *specs: ServerSpec) -> tuple[ServerSpec, ...]:
    """Take over what servers offer and return them with the roles proposed, as corrected by somebody who knows them.

    That person believes a server which says that a tool only reads, where no argument has a role.
    """
    found: list[ServerSpec] = []
    empty = root / "empty"
    empty.mkdir(exist_ok=True)
    for spec in specs:
        servers = servers_at(root, spec)
        link = await servers.supervisor.open(spec, None if spec.shared else place_at(empty))
        try:
            offered = tools_by_name(await link.list_tools())
        finally:
            await link.close()
        Reviews(root / "servers").write(spec.name, Review(link.about, offered))
        proposed = {tool.name: propose_roles(tool, trusted=spec.trusted, server=spec.name).roles for tool in offered.values()}
        harmless = {name: FREE for name, roles in proposed.items() if not roles.meanings and offered[name].hint("readOnlyHint")}
        found.append(replace(spec, tools={**proposed, **harmless, **spec.tools}))
    return tuple(found)


@asynccontextmanager
async def desk(
    root: Path,
    *specs: ServerSpec,
    own: bool = True,
    stores: Stores | None = None,
    rules: Rules | None = None,
    mode: Mode = Mode.DEFAULT,
    dialler: Dialler | None = None,
) -> AsyncGenerator[Desk]:
    """Open a session with these servers behind its gate, in a directory that is named by its real path."""
    workspace = root / "workspace"
    workspace.mkdir(exist_ok=True)
    masker = Masker(b"k" * 32)
    native = NativeTools(
        Catalogue(NATIVE_TOOLS), home=str(root / "home"), masker=masker, runners={**filesystem_runners(masker), **session_runners(_no_more)}
    )
    async with house(stores or MemoryStore(SystemClock()), rules) as opened:

        async def ask(session: SessionId, wish: CallRequest, presence: Presence) -> Answer:
            return await gate.request(session, wish, presence=presence)

        ways = ServerEgress(root / "ca", ask, dialler)
        servers = servers_at(root, *specs, feed=opened.feed, ways=ways)
        hub = ToolHub(native, servers)
        gate = SessionGate(opened, hub)
        try:
            session = await open_session(opened, workspace, own=own, mode=mode)
            yield Desk(root, opened, gate, hub, servers, session, workspace)
        finally:
            await hub.aclose()
            await ways.aclose()


async def _no_more(_session: SessionId, _kind: BudgetKind, _more: float) -> float:
    raise AssertionError("no server raises a budget")


def processes_with(mark: str) -> list[int]:
    """Return the processes of this machine whose command line holds a mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                is_dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                continue
            if mark.encode() in command and not is_dead:
                found.append(int(entry.name))
    return found
