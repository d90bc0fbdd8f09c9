"""The pages of unattended work: jobs and their firings, teams and their conversations."""

from collections.abc import Collection, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.plain import plain_line
from curtainwall.channels.web.pages.site import Site, who
from curtainwall.channels.web.ports import TeamPairs
from curtainwall.model import ApprovalQuery, SessionId, record
from curtainwall.teams.pairs import PairFigures, Shortage

_SHOWN_FIRINGS = 100


class PlanPages:
    """Jobs and teams."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        guarded = self._site.guarded
        return [
            Route("/cron", guarded(self._cron), methods=["GET"]),
            Route("/cron/{job}/run", guarded(self._run, operators=True), methods=["POST"]),
            Route("/teams", guarded(self._teams), methods=["GET"]),
        ]

    async def _cron(self, request: Request) -> Response:
        jobs = self._site.ports.jobs
        return self._site.page(request, "cron.html", jobs=jobs.rows(), firings=jobs.firings(_SHOWN_FIRINGS), most=_SHOWN_FIRINGS)

    async def _run(self, request: Request) -> Response:
        job = str(request.path_params["job"])
        session = await self._site.ports.jobs.run(job, who(request))
        return self._site.done(request, f"`{plain_line(job, 60)}` fired; this is its session", f"/sessions/{session}")

    async def _teams(self, request: Request) -> Response:
        teams = self._site.ports.teams
        # Every conversation's log is read, which must not block others.
        pairs = await run_in_threadpool(teams.pairs)
        asking = {row.session for row in self._site.ports.index.approvals(ApprovalQuery(limit=None, brief=True))}
        waits = await run_in_threadpool(_waits, teams, pairs, asking)
        sums = {
            "messages": sum(figures.messages for figures in pairs),
            "tokens": sum(figures.tokens for figures in pairs),
            "dollars": sum(figures.dollars for figures in pairs),
            "open": sum(figures.open for figures in pairs),
        }
        return self._site.page(request, "teams.html", teams=teams.teams(), pairs=pairs, sums=sums, asking=asking, waits=waits)


@record
class _Waits:
    """The obstacles to an answer: exhausted budgets of the team or of those that it waits for, and asks of the latter."""

    short: tuple[Shortage, ...]
    asked: tuple[SessionId, ...]


def _waits(teams: TeamPairs, pairs: Sequence[PairFigures], asking: Collection[SessionId]) -> dict[SessionId, _Waits]:
    waits: dict[SessionId, _Waits] = {}
    for figures in pairs:
        chain = teams.chain(figures.pair) if figures.open else None
        if chain is not None:
            asked = tuple(session for session in chain.sessions() if session != figures.session and session in asking)
            waits[figures.session] = _Waits(chain.shortages(), asked)
    return waits
