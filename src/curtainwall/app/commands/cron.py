"""`curtainwall cron`: the jobs, letting one fire now, and what became of the firings."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from curtainwall.app.home import find_home
from curtainwall.app.jobs import HouseFirings, jobs_in
from curtainwall.app.screen import Output, OutputOption, columns, note, show, show_json, timestamp, when
from curtainwall.app.wiring import Setup, files_of, hooks_of, local_user, open_house, open_store, set_up
from curtainwall.channels.cron import Past, pasts
from curtainwall.model import HOUSE, Millis, NotFound, SessionQuery
from curtainwall.runtime import Stores, SystemClock
from curtainwall.session import lift

app = typer.Typer()

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="the job, as `cron list` names it")]


@app.command("list")
def list_jobs(output: OutputOption = Output.TEXT) -> None:
    """List the jobs of the configuration: when each is due next, and what became of its last firing."""
    setup, now = set_up(), SystemClock().now()
    with open_store(setup.home) as store:
        past = _pasts(store)
        rows = [_row(store, past.get(job.name, Past()), job.name, job.schedule.next(now)) for job in jobs_in(setup.config)]
    if output is Output.JSON:
        show_json([{**row, "next": timestamp(due), "last": timestamp(last)} for row, due, last in rows])
        return
    if not rows:
        note("there are no jobs; `[cron.NAME]` in the configuration makes one (docs/cron.md)")
        return
    lines = [
        (row["job"], setup.config.cron[row["job"]].schedule, when(due), when(last) if last else "never", row["status"], row["session"])
        for row, due, last in rows
    ]
    show(columns(("job", "schedule", "next", "last", "status", "session"), lines))


@app.command()
def run(job: JobArgument, output: OutputOption = Output.TEXT) -> int:
    """Let a job fire now, whatever its schedule says, and work on it here until it is done or waits for somebody.

    Exit codes: 0 done, 1 failed, 3 parked on an approval or a budget, 130 interrupted.
    """
    setup = set_up()
    if job not in setup.config.cron:
        raise NotFound(f"there is no job `{job}`; `curtainwall cron list` names them")
    return asyncio.run(_ran(setup, job, output))


@app.command()
def history(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="of this job alone")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 50,
    output: OutputOption = Output.TEXT,
) -> None:
    """List past firings, the last first: the session that each became, or why it did not run."""
    with open_store(find_home()) as store:
        rows = sorted(_firings(store, job), key=lambda row: str(row["due"]), reverse=True)[:limit]
    if output is Output.JSON:
        show_json(rows)
        return
    if not rows:
        note("nothing has fired yet")
        return
    show(
        columns(
            ("due", "job", "status", "session", "why"), [[row[key] for key in ("due", "job", "status", "session", "why")] for row in rows]
        )
    )


def _firings(store: Stores, only: str | None) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for job, past in _pasts(store).items():
        if only in (None, job):
            told = ((due, session, _status(store, session), "") for due, session in past.fired.items())
            left = ((due, "", "skipped", why) for due, why in past.skipped.items() if due not in past.fired)
            waits = ((due, "", "queued", "the one before is not over") for due in past.queued)
            found += (
                {"due": timestamp(due) or "", "job": job, "status": status, "session": session, "why": why}
                for due, session, status, why in (*told, *left, *waits)
            )
    return found


def _row(store: Stores, past: Past, job: str, due: Millis) -> tuple[dict[str, str], Millis, Millis | None]:
    session = past.last or ""
    status = _status(store, session) if session else "never fired"
    return {"job": job, "status": status, "session": session}, due, max(past.fired) if past.fired else None


def _status(store: Stores, session: str) -> str:
    rows = store.index.sessions(SessionQuery(prefix=session, limit=1))
    if not rows:
        return "deleted"
    return "done" if rows[0].status == "ready" and rows[0].turns else rows[0].status


def _pasts(store: Stores) -> Mapping[str, Past]:
    return pasts(lift(entry) for entry in store.log.read(HOUSE))


async def _ran(setup: Setup, job: str, output: Output) -> int:
    # Start-up time: listing jobs needs no agent.
    from curtainwall.app.openings import Wanted
    from curtainwall.app.working import agents_at_work, default_model_of, models_of
    from curtainwall.channels.terminal import Line, Telling, one_shot

    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_house(setup))
        model = default_model_of(wired)
        work = await stack.enter_async_context(agents_at_work(wired, models_of(wired), Wanted(model)))
        session = await HouseFirings(wired, work.turns.attend, model).fire(job, wired.house.clock.now())
        note(f"{job} fired: session {session}")
        await stack.enter_async_context(files_of(wired, session))
        await stack.enter_async_context(hooks_of(wired, session))
        line = Line(desk=work.desk, feed=wired.house.feed, listening=work.journal, clock=wired.house.clock)
        telling = Telling(
            shape=output.value,
            on_ask="park",
            out=sys.stdout,
            err=sys.stderr,
            colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
            keys=False,
            attend=work.turns.attend,
        )
        return await one_shot(line, session, local_user(), None, telling)
