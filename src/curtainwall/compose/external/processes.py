"""The parts behind local agents, put together: program, confinement, pool, and their ways out."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from curtainwall.agents.external.process import Around, Limits, ProcessAgent, find_claude, folders_of
from curtainwall.compose.external.process_access import ProcessWays
from curtainwall.compose.external.providers import accesses, see_that_a_key_is_there, see_that_team_keys_stand
from curtainwall.compose.gate import Wired
from curtainwall.compose.models import model_settings
from curtainwall.config.agents import LOCAL
from curtainwall.config.schema import Config
from curtainwall.egress import Access, Authority, Egress
from curtainwall.host import Dialler, Missing, find_bubblewrap
from curtainwall.model import CommandRefused, CurtainwallError, Journal, NotFound
from curtainwall.tools import scopes

_MIB: Final = 1024 * 1024
_PROVIDER: Final = "anthropic"
_OWN_CHOICE: Final = frozenset({"", "auto"})


class Processes:
    """Everything that local agents need, made when it is first needed."""

    def __init__(self, wired: Wired, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._config = wired.setup.config
        self._agent: ProcessAgent | None = None
        self._egress: Egress | None = None

    async def see_that_it_can(self, agent: str) -> None:
        """Raise, with what to do, where the program, the confinement or the key is missing."""
        await see_that_local_can(agent, self._config, self._accesses_of(""))

    def see_model(self, agent: str, model: str) -> None:
        """Raise where the agent cannot use a model of this name."""
        provider, _, name = model.partition(":")
        if model not in _OWN_CHOICE and not (name and provider == _PROVIDER):
            raise CommandRefused(f"`{agent}` cannot use the model `{model}`; it takes {_PROVIDER}:NAME, or `auto` for its own choice")

    async def agent(self) -> ProcessAgent:
        """Return the agent that keeps the processes of all sessions."""
        if self._agent is None:
            wired = self._wired
            authority = await asyncio.to_thread(Authority, wired.setup.home.root / "ca")
            self._egress = Egress(authority, Dialler(scopes(wired.setup.own_ports)), wired.setup.own_ports)
            price = model_settings(self._config, wired.masker.learn).price
            around = Around(
                feed=wired.house.feed,
                gate=wired.gate,
                journal=self._journal,
                clock=wired.house.clock,
                masker=wired.masker,
                outside=ProcessWays(wired, self._journal, self._egress, self._accesses_of, price),
                folders_of=partial(folders_of, wired.setup.home),
                program_of=lambda: find_claude(self._config.processes.program),
                limits=limits_of(self._config),
                shares=wired.shares,
            )
            self._agent = ProcessAgent(around)
        return self._agent

    def _accesses_of(self, team: str) -> dict[str, Access]:
        see_that_team_keys_stand(self._config, self._wired.setup.config, team)
        return accesses(self._config, self._wired.masker.learn, agent=LOCAL, team=team)

    async def close(self) -> None:
        """End the processes, and let go of everything."""
        if self._agent is not None:
            await self._agent.close()
        if self._egress is not None:
            self._egress.close()


async def see_that_local_can(agent: str, config: Config, given: Mapping[str, Access]) -> None:
    """Raise, with what to do, where the program, the confinement or the key is missing; `given` is what the agent may be given."""
    async for fault in _faults_of_local(agent, config, given):
        raise fault


async def lacks_of_local(agent: str, config: Config, given: Mapping[str, Access]) -> tuple[str, ...]:
    """Return everything that is missing, with what to do."""
    return tuple([str(fault) async for fault in _faults_of_local(agent, config, given)])


async def _faults_of_local(agent: str, config: Config, given: Mapping[str, Access]) -> AsyncIterator[CurtainwallError]:
    try:
        find_claude(config.processes.program)
    except CurtainwallError as fault:
        yield fault
    found = await asyncio.to_thread(find_bubblewrap)
    if isinstance(found, Missing):
        yield NotFound(f"`{agent}` cannot be confined here: {found.reason}; {found.remedy}")
    try:
        await see_that_a_key_is_there(agent, given, (_PROVIDER,))
    except CurtainwallError as fault:
        yield fault


def limits_of(config: Config) -> Limits:
    """Return how much processes may use."""
    told = config.processes
    return Limits(
        processes=told.most,
        memory=told.memory * _MIB,
        idle=float(told.idle),
        health=float(told.health),
        silence=float(told.silence),
        turn=float(told.turn),
    )
