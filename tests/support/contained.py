"""Sessions whose agents live in containers: a real house with its gate, a real engine, and a provider that answers what it is asked."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curtainwall.agents.external.container import (
    Adapter,
    Adapters,
    ContainerAgent,
    ContainerExtras,
    ContainerFolders,
    ContainerLimits,
    ContainerNetwork,
    ContainerPorts,
    Engine,
    Fleet,
    ImageChoice,
    LentProgram,
)
from curtainwall.facts import Masker
from curtainwall.host import ViewsOfSessions
from curtainwall.host.home import Home
from curtainwall.model import (
    Live,
    Mode,
    SessionId,
    TurnAt,
    Workspace,
)
from curtainwall.runtime import NoHooks, SessionGate, SessionJournal, Stores, SystemClock, Turns
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.certificates import Authority
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.foreign import Outside, Rig
from tests.support.houses import house, policy
from tests.support.mcp import native
from tests.support.prompted import prompted
from tests.support.real_parts import CLAUDE, CODEX, GEMINI, OPENCODE

LENT = {
    "claude-code": (LentProgram(CLAUDE, "/usr/local/bin/claude"),),
    "codex": (LentProgram(CODEX.parents[1], "/usr/local/lib/codex"),),
    "opencode": (LentProgram(OPENCODE, "/usr/local/bin/opencode"),),
    "gemini": (LentProgram(GEMINI, "/usr/local/lib/gemini"),),
}
"""The CLI agents of this machine, as they are lent to containers."""


class Ways(Outside):
    """The ways out of a container, for as long as a turn lasts."""

    @asynccontextmanager
    async def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ContainerNetwork]:
        async with self.sockets(at.session, run, user, at.turn) as pem:
            yield ContainerNetwork(keys=dict.fromkeys(providers, self.key), certificates=pem)


@dataclass
class Contained(Rig):
    """A house whose agents are in containers."""

    ways: Ways
    engine: Engine
    fleet: Fleet
    agent: ContainerAgent
    docker: DockerEngine
    views: ViewsOfSessions

    async def open(self, agent: str, model: str = "", mode: Mode = Mode.DEFAULT) -> SessionId:
        """Open a session with its own workspace and let its agent work."""
        session = SessionId(self.house.mint())
        workspace = self.folders(session).workspace
        workspace.mkdir(parents=True)
        return await self.begin(session, agent, Workspace(path=str(workspace), own=True), model, mode)

    def folders(self, session: SessionId) -> ContainerFolders:
        return _folders(self.home, session)

    async def becomes(self, session: SessionId, wanted: str) -> None:
        """Wait until the engine says so of a session's container; one that is removed is `gone`."""
        async with asyncio.timeout(60):
            while wanted not in ([each.state for each in await self.engine.list_containers(session)] or ["gone"]):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.02)

    async def container(self, session: SessionId) -> str:
        """Return the id of a session's container."""
        return (await self.engine.list_containers(session))[0].id

    async def inspect(self, session: SessionId) -> dict[str, Any]:
        """Return what the engine's own client says of a session's container."""
        id_ = await self.container(session)
        return json.loads(await asyncio.to_thread(self.docker.docker, "inspect", id_))[0]

    async def inside(self, session: SessionId, script: str) -> str:
        """Run a script in a session's container as its agent would, and return what it says."""
        return await asyncio.to_thread(self.docker.docker, "exec", await self.container(session), "sh", "-c", script)


def _folders(home: Path, session: SessionId) -> ContainerFolders:
    root = home / session
    return ContainerFolders(root / "workspace", root / "orientation", home / "r" / session[-8:], root / "state")


def _given(folders: ContainerFolders, workspace: Workspace, mode: Mode) -> ContainerFolders:
    return replace(folders, workspace=Path(workspace.path), is_own=workspace.own, is_readonly=mode is Mode.PLAN)


@asynccontextmanager
async def contained(
    engine: DockerEngine,
    home: Path,
    *more: Adapter,
    limits: ContainerLimits | None = None,
    stores: Stores | None = None,
    extras: ContainerExtras | None = None,
) -> AsyncGenerator[Contained]:
    """Open a house whose agents are in containers of this engine."""
    scratch = home / "authority"
    scratch.mkdir(parents=True, exist_ok=True)
    names = frozenset({*LENT, *(each.name for each in more)})
    rules, views_home = Rules(policy=policy(), view_agents=names), Home(home / "views")
    views_home.prepare()
    views = ViewsOfSessions(views_home, names)
    async with prompted() as provider, house(stores or MemoryStore(SystemClock()), rules) as opened:
        docker = Engine(engine.address)
        fleet = Fleet(docker, limits or ContainerLimits(), home=str(home))
        journal = SessionJournal(opened)
        ways = Ways(opened, provider, Authority(scratch))
        around = ContainerPorts(
            feed=opened.feed,
            gate=SessionGate(opened, native()),
            journal=journal,
            clock=opened.clock,
            masker=Masker(key=b"k" * 32, known={}),
            fleet=fleet,
            outside=ways,
            adapters=Adapters(*more),
            folders_of=lambda session, workspace, mode: _given(_folders(home, session), workspace, mode),
            image_of=lambda _agent, _workspace, _base: ImageChoice(IMAGE),
            programs_of=lambda agent: LENT.get(agent, ()),
            extras_of=lambda _agent, _workspace, _mode: extras or ContainerExtras(),
            views=views,
        )
        agent = ContainerAgent(around)
        turns = Turns(opened, agent, NoHooks(), lambda _session: "")
        try:
            yield Contained(opened, home, provider, journal, turns, ways, docker, fleet, agent, engine, views)
        finally:
            await turns.close()
            await agent.close()
            await docker.close()
            views.close()


@asynccontextmanager
async def listening(rig: Contained, session: SessionId) -> AsyncGenerator[Callable[[], list[Live]]]:
    """Collect what is said live."""
    heard: list[Live] = []

    async def collect() -> None:
        async with rig.journal.listen(session) as said:
            async for live in said:
                heard.append(live)  # noqa: PERF401 - it is looked at meanwhile

    task = asyncio.create_task(collect())
    try:
        yield lambda: heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
