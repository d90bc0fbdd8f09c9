"""Firings of jobs: each becomes a session with its instructions, once."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from curtainwall.channels.cron import CHANNEL, Firing, place_of
from curtainwall.compose.gate import GatedSessions
from curtainwall.compose.setup import Setup
from curtainwall.config.agents import model_for
from curtainwall.config.cron import JobSection
from curtainwall.host.user import clock_time
from curtainwall.model import (
    SYSTEM,
    MessageId,
    NotFound,
    SendMessage,
    SessionId,
    SessionQuery,
    Who,
)
from curtainwall.model.people import parse_place
from curtainwall.operations.open import SessionSpec, open_new

Attend = Callable[[SessionId], None]
"""Makes this process run a session's agent."""


class JobFirings:
    """Turns firings into sessions. Every step can be repeated after a crash, and counts once."""

    def __init__(self, wired: GatedSessions, attend: Attend, model: str) -> None:
        self._wired = wired
        self._attend = attend
        self._model = model

    async def fire(self, firing: Firing) -> SessionId:
        """Start a job; raise `NotFound` if the configuration no longer has it."""
        job = firing.job
        section = self._wired.setup.config.cron.get(job)
        if section is None:
            raise NotFound(f"there is no job `{job}` in the configuration")
        by, registry = Who(name=job, channel=CHANNEL), self._wired.registry
        session = await registry.bind(place_of(firing), SessionId(registry.mint()), by)
        # The system opens it with the configured settings, including its mode; whatever the job says later, it says as the job.
        await open_new(self._wired.sessions, self._spec_for(job, section, f"{job} {clock_time(firing.due)}"), SYSTEM, session)
        message = SendMessage(by=by, message=MessageId(f"{session}-1"), text=str(self._wired.tools.masked(section.instructions)), once=True)
        if await self._wired.incoming.admit(session, message.text, "firing"):
            await registry.send(session, message, "firing")
        self._attend(session)
        return session

    async def claim_now(self, job: str) -> Firing:
        """Return a firing for a job that a person starts now; two people at the same moment get one each."""
        registry, due = self._wired.registry, self._wired.registry.clock.now()
        while True:
            firing, session = Firing(job, due, by_hand=True), SessionId(registry.mint())
            if await registry.bind(place_of(firing), session, Who(name=job, channel=CHANNEL)) == session:
                return firing
            due += 1

    async def note(self, data: Mapping[str, JsonValue]) -> None:
        """Write a note to the house log."""
        await self._wired.registry.note(CHANNEL, data)

    def is_begun(self, session: SessionId) -> bool:
        """Tell whether the agent has worked on a firing, or it was closed."""
        rows = self._wired.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return bool(rows) and (rows[0].turns > 0 or rows[0].status == "closed")

    def is_over(self, session: SessionId) -> bool:
        """Tell whether a firing has ended, or its session is gone."""
        rows = self._wired.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return not rows or rows[0].status == "closed" or (rows[0].status == "ready" and rows[0].turns > 0)

    def _spec_for(self, job: str, section: JobSection, name: str) -> SessionSpec:
        setup: Setup = self._wired.setup
        routes = tuple(map(parse_place, section.approval_targets))
        limits = section.budget.over(setup.limits)
        model = section.model or model_for(setup.config.agents, section.agent, self._model)
        spec = SessionSpec(model, section.folder, name, section.agent, section.mode, routes, limits, job=job, channel=CHANNEL)
        return spec if section.folder is not None else replace(spec, instructions=setup.config.sessions.instructions)
