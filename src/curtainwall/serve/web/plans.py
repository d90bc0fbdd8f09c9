"""What the web is given by this house of what goes on by itself: its jobs, and its teams."""

from collections.abc import Sequence

from curtainwall.channels.cron import FiringRow, JobRow, Pasts, firing_rows, job_rows
from curtainwall.channels.web import TeamTold
from curtainwall.compose.gate import Wired
from curtainwall.model import NotFound, SessionId, Who
from curtainwall.serve.cron.firings import HouseFirings
from curtainwall.serve.cron.jobs import jobs_in, status_in
from curtainwall.teams.chains import Chain
from curtainwall.teams.figures import PairFigures
from curtainwall.teams.pairs import Pair


class HouseJobs:
    """The jobs in force at the moment somebody looks."""

    def __init__(self, wired: Wired, firings: HouseFirings) -> None:
        self._wired = wired
        self._firings = firings
        self._pasts = Pasts(wired.house.feed)
        self._status_of = status_in(wired.store)

    def rows(self) -> Sequence[JobRow]:
        """Return the jobs: when each is due next, and what became of its last firing."""
        return job_rows(jobs_in(self._wired.setup.config), self._pasts.all(), self._status_of, self._wired.house.clock.now())

    def firings(self, most: int) -> Sequence[FiringRow]:
        """Return the last firings, the last first."""
        return firing_rows(self._pasts.all(), self._status_of, most)

    async def run(self, job: str, by: Who) -> SessionId:
        """Let a job fire now, and its session work here; the house's log tells who wanted it."""
        if job not in self._wired.setup.config.cron:
            raise NotFound("there is no such job")
        firing = await self._firings.claim_now(job)
        await self._firings.note({"what": "wanted", "job": job, "due": firing.due, "by": str(by)})
        return await self._firings.fire(firing)


class HousePairing:
    """The teams of the configuration, and what the log tells of their conversations."""

    def __init__(self, wired: Wired) -> None:
        self._wired = wired

    def teams(self) -> Sequence[TeamTold]:
        """Return the teams of the configuration."""
        return [
            TeamTold(
                name,
                team.agent,
                team.mode,
                team.project,
                team.description,
                None if team.askers is None else tuple(team.askers),
                team.colour or "",
            )
            for name, team in sorted(self._wired.setup.config.teams.items())
        ]

    def pairs(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        return self._wired.teams.talk.figures()

    def chain(self, pair: Pair) -> Chain | None:
        """Return a pair's conversation with those that it waits for, where it has talked."""
        return self._wired.teams.talk.chain(pair)
