"""The agents of this process: a session finds its agent by the name in its log, and each kind is set up when it is first needed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from curtainwall.model import AWAKE, Agent, NotFound, SessionId, TurnAt, TurnResult

NameOf = Callable[[SessionId], str]
"""Tells the name of a session's agent, which its log has from the beginning."""


class AgentWorker(Agent, Protocol):
    """An agent that remembers what it said."""

    def last_words(self, session: SessionId) -> str:
        """Return what the agent said last."""
        ...


@runtime_checkable
class WakeableAgent(Protocol):
    """An agent with something that is started and ended apart from its work."""

    async def wake(self, session: SessionId) -> str:
        """Get a session's agent ready before anybody needs it, and say what came of it."""
        ...

    async def sleep(self, session: SessionId) -> None:
        """Let it go, unless it is at work."""
        ...


class AgentKind(Protocol):
    """One kind of agents. What it needs is made with the first `worker`, so that whoever needs none pays nothing."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of its agents."""
        ...

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, where an agent of this name could not work here; nothing is started."""
        ...

    def require_model(self, agent: str, model: str) -> None:
        """Raise where an agent of this name cannot use a model of this name."""
        ...

    async def worker(self) -> AgentWorker:
        """Return whoever works for the agents of this kind."""
        ...

    async def close(self) -> None:
        """Let go of what was made; calling it where nothing was is harmless."""
        ...


class AgentRegistry:
    """All agents behind the one port."""

    def __init__(self, name_of: NameOf, *kinds: AgentKind) -> None:
        self._name_of = name_of
        self._kinds = kinds
        self._workers: dict[str, AgentWorker] = {}
        self._making = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all agents."""
        return tuple(name for kind in self._kinds for name in kind.names)

    def kind_of(self, agent: str) -> AgentKind:
        """Return the kind that an agent of this name is of; raise `NotFound`."""
        for kind in self._kinds:
            if agent in kind.names:
                return kind
        raise NotFound(f"there is no agent `{agent}` here; there are: {', '.join(self.names)}")

    def require_model(self, agent: str, model: str) -> None:
        """Raise where an agent of this name cannot use a model of this name."""
        self.kind_of(agent).require_model(agent, model)

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, where an agent of this name could not work here."""
        await self.kind_of(agent).require_ready(agent)

    async def work(self, at: TurnAt) -> TurnResult:
        """Let the session's agent work on the turn."""
        return await (await self._worker(at.session)).work(at)

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Let the session's agent replace older messages by a summary."""
        await (await self._worker(session)).compact(session, instructions)

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session."""
        for worker in self._workers.values():
            worker.forget(session)

    async def wake(self, session: SessionId) -> str:
        """Get a session's agent ready, where that takes something, and say what came of it."""
        worker = await self._worker(session)
        return await worker.wake(session) if isinstance(worker, WakeableAgent) else AWAKE

    async def sleep(self, session: SessionId) -> None:
        """Let a session's agent go; the next message wakes it."""
        worker = self._workers.get(self._name_of(session))
        if isinstance(worker, WakeableAgent):
            await worker.sleep(session)
        self.forget(session)

    def last_words(self, session: SessionId) -> str:
        """Return what the session's agent said last; nothing where it has not worked here."""
        worker = self._workers.get(self._name_of(session))
        return "" if worker is None else worker.last_words(session)

    async def close(self) -> None:
        """Let go of everything that was made."""
        for kind in self._kinds:
            await kind.close()

    async def _worker(self, session: SessionId) -> AgentWorker:
        name = self._name_of(session)
        if name not in self._workers:
            # Whoever comes meanwhile waits: of two that are made at once, one would keep processes that nobody knows of.
            async with self._making:
                if name not in self._workers:
                    self._workers[name] = await self.kind_of(name).worker()
        return self._workers[name]
