"""Firings in this machine's house: a firing becomes a session with its instructions, once."""

from collections.abc import Callable, Mapping

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
"""Lets this process look after a session's agent."""


class JobFirings:
    """What a schedule does to this house. Every step can be done again after a crash, and counts once."""

    def __init__(self, wired: GatedSessions, attend: Attend, model: str) -> None:
        self._wired = wired
        self._attend = attend
        self._model = model

    async def fire(self, firing: Firing) -> SessionId:
        """Let a job begin; raise `NotFound` where the configuration no longer has it."""
        job = firing.job
        told = self._wired.setup.config.cron.get(job)
        if told is None:
            raise NotFound(f"there is no job `{job}` in the configuration")
        by, house = Who(name=job, channel=CHANNEL), self._wired.house
        session = await house.bind(place_of(firing), SessionId(house.mint()), by)
        # The house opens it on the terms of the configuration, its mode among them; whatever the job says later, it says as the job.
        await open_new(self._wired.sessions, self._wanted(job, told, f"{job} {clock_time(firing.due)}"), SYSTEM, session)
        message = SendMessage(by=by, message=MessageId(f"{session}-1"), text=str(self._wired.tools.masked(told.instructions)))
        await house.send(session, message, "firing")
        self._attend(session)
        return session

    async def claim_now(self, job: str) -> Firing:
        """Return a firing for somebody who wants a job to begin now; two who want it in the same moment get one each."""
        house, due = self._wired.house, self._wired.house.clock.now()
        while True:
            firing, session = Firing(job, due, by_hand=True), SessionId(house.mint())
            if await house.bind(place_of(firing), session, Who(name=job, channel=CHANNEL)) == session:
                return firing
            due += 1

    async def note(self, data: Mapping[str, JsonValue]) -> None:
        """Write something down in the house's log."""
        await self._wired.house.note(CHANNEL, data)

    def is_begun(self, session: SessionId) -> bool:
        """Tell whether the agent has been at work on a firing, or it was closed."""
        rows = self._wired.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return bool(rows) and (rows[0].turns > 0 or rows[0].status == "closed")

    def is_over(self, session: SessionId) -> bool:
        """Tell whether a firing has come to its end, or its session is gone."""
        rows = self._wired.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return not rows or rows[0].status == "closed" or (rows[0].status == "ready" and rows[0].turns > 0)

    def _wanted(self, job: str, told: JobSection, name: str) -> SessionSpec:
        setup: Setup = self._wired.setup
        routes = tuple(map(parse_place, told.approval_targets))
        limits = told.budget.over(setup.limits)
        model = told.model or model_for(setup.config.agents, told.agent, self._model)
        return SessionSpec(model, told.folder, name, told.agent, told.mode, routes, limits, job=job, channel=CHANNEL)
