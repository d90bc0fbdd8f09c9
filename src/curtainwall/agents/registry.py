"""The agents of this process. A session's log names its agent; each kind of agent is set up when it is first needed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from curtainwall.model import AWAKE, Agent, NotFound, SessionId, TurnAt, TurnResult

NameOf = Callable[[SessionId], str]
"""Returns the name of a session's agent, which its log holds from the first event on."""


class AgentWorker(Agent, Protocol):
    """An agent that remembers its last reply."""

    def last_words(self, session: SessionId) -> str:
        """Return the agent's last reply."""
        ...


@runtime_checkable
class WakeableAgent(Protocol):
    """An agent with a process or container that can be started and stopped between turns."""

    async def wake(self, session: SessionId) -> str:
        """Start a session's agent ahead of its next turn and return a description of the outcome."""
        ...

    async def sleep(self, session: SessionId) -> None:
        """Stop a session's agent unless it is working."""
        ...


class AgentKind(Protocol):
    """One kind of agent. The first call of `worker` creates what it needs, so an unused kind costs nothing."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of this kind's agents."""
        ...

    async def require_ready(self, agent: str) -> None:
        """Raise, with a remedy, if an agent of this name cannot work here; start nothing."""
        ...

    def require_model(self, agent: str, model: str) -> None:
        """Raise if an agent of this name cannot use a model of this name."""
        ...

    async def worker(self) -> AgentWorker:
        """Return the worker for all agents of this kind."""
        ...

    async def close(self) -> None:
        """Release what was created. Harmless if nothing was."""
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
        """Return the kind of the agent with this name; raise `NotFound`."""
        for kind in self._kinds:
            if agent in kind.names:
                return kind
        raise NotFound(f"there is no agent `{agent}` here; there are: {', '.join(self.names)}")

    def require_model(self, agent: str, model: str) -> None:
        """Raise if an agent of this name cannot use a model of this name."""
        self.kind_of(agent).require_model(agent, model)

    async def require_ready(self, agent: str) -> None:
        """Raise, with a remedy, if an agent of this name cannot work here."""
        await self.kind_of(agent).require_ready(agent)

    async def work(self, at: TurnAt) -> TurnResult:
        """Have the session's agent work on the turn."""
        return await (await self._worker(at.session)).work(at)

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Have the session's agent replace older messages with a summary."""
        await (await self._worker(session)).compact(session, instructions)

    def forget(self, session: SessionId) -> None:
        """Discard what is held in memory for a session."""
        for worker in self._workers.values():
            worker.forget(session)

    async def wake(self, session: SessionId) -> str:
        """Start a session's agent, if its kind can be started, and return a description of the outcome."""
        worker = await self._worker(session)
        return await worker.wake(session) if isinstance(worker, WakeableAgent) else AWAKE

    async def sleep(self, session: SessionId) -> None:
        """Stop a session's agent; the next message wakes it."""
        worker = self._workers.get(self._name_of(session))
        if isinstance(worker, WakeableAgent):
            await worker.sleep(session)
        self.forget(session)

    def last_words(self, session: SessionId) -> str:
        """Return the agent's last reply, or an empty string if it has not worked here."""
        worker = self._workers.get(self._name_of(session))
        return "" if worker is None else worker.last_words(session)

    async def close(self) -> None:
        """Release everything that was created."""
        for kind in self._kinds:
            await kind.close()

    async def _worker(self, session: SessionId) -> AgentWorker:
        name = self._name_of(session)
        if name not in self._workers:
            # Concurrent callers wait: if two workers were created at once, one would keep processes that nothing tracks.
            async with self._making:
                if name not in self._workers:
                    self._workers[name] = await self.kind_of(name).worker()
        return self._workers[name]
