"""`curtainwall cron`: list jobs, fire one now, and list past firings."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.channels.cron import STOPPED, FiringRow, JobHistory, JobRow, firing_rows, job_histories, job_rows
from curtainwall.cli import loop
from curtainwall.cli.global_options import is_quiet
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import Output, OutputOption, columns, hint, note, show, show_json, timestamp
from curtainwall.config.loader import load_config
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user, when
from curtainwall.model import HOUSE, CommandRefused, NotFound
from curtainwall.runtime import Stores, SystemClock
from curtainwall.serve.jobs import jobs_in, status_in
from curtainwall.session import lift

if TYPE_CHECKING:
    from curtainwall.compose.setup import Setup

app = typer.Typer()

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="the job, as `cron list` names it")]


@app.command("list")
def list_jobs(output: OutputOption = Output.TEXT) -> None:
    """List the jobs of the configuration: when each is due next, and what became of its last firing."""
    home = find_home()
    jobs = jobs_in(load_config(home.config))
    with open_for_reading(home) as store:
        rows = job_rows(jobs, _histories(store), status_in(store), SystemClock().now())
    if output is Output.JSON:
        show_json(
            [
                {
                    "job": it.job,
                    "schedule": it.schedule,
                    "zone": it.zone,
                    "status": it.status,
                    "session": it.session or "",
                    "next": timestamp(it.next) if it.enabled else None,
                    "enabled": it.enabled,
                    "last": timestamp(it.last),
                    "policy": it.policy,
                }
                for it in rows
            ]
        )
        return
    if not rows:
        hint("there are no jobs; `[cron.NAME]` in the configuration makes one (docs/cron.md)")
        return
    lines = [
        (
            it.job,
            it.schedule,
            it.zone,
            _next(it),
            when(it.last) if it.last else "never",
            it.status,
            it.session or "",
            it.policy,
        )
        for it in rows
    ]
    show(columns(("job", "schedule", "zone", "next", "last", "status", "session", "rules of its own"), lines))
    _report_stopped(rows)


def _next(row: JobRow) -> str:
    return when(row.next) if row.enabled else "disabled"


@app.command()
def run(job: JobArgument, output: OutputOption = Output.TEXT) -> int:
    """Let a job fire now, whatever its schedule says, and work on it here until it is done or waits for somebody.

    Exit codes: 0 done, 1 failed, 3 parked on an approval or a budget, 130 interrupted.
    """
    # Start-up time: listing jobs needs no rules.
    from curtainwall.compose.setup import load_setup

    setup = load_setup()
    if job not in setup.config.cron:
        raise NotFound(f"there is no job `{job}`; `curtainwall cron list` names them")
    return loop.run(_ran(setup, job, output))


@app.command()
def history(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="of this job alone")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 50,
    output: OutputOption = Output.TEXT,
) -> None:
    """List past firings, the last first: the session that each became, or why it did not run."""
    with open_for_reading(find_home()) as store:
        histories = _histories(store)
        firings = firing_rows(histories, status_in(store), limit, job)
    # Past firings can be listed even if the rules of a job do not load.
    if job is not None and job not in histories and job not in load_config(find_home().config).cron:
        raise NotFound(f"there is no job `{job}`, and there never was one that fired; `curtainwall cron list` names them")
    if output is Output.JSON:
        show_json([_firing(it) for it in firings])
        return
    if not firings:
        hint("nothing has fired yet")
        return
    show(columns(("due", "job", "status", "session", "why"), [(when(it.due), *list(_firing(it).values())[1:]) for it in firings]))
    _report_stopped(firings)


def _report_stopped(rows: Iterable[JobRow | FiringRow]) -> None:
    stopped = ", ".join(dict.fromkeys(str(it.session) for it in rows if it.status == STOPPED))
    if stopped:
        hint(f"no process works on {stopped} now; `curtainwall serve` goes on, and so does `curtainwall start --resume ID`")


def _firing(row: FiringRow) -> dict[str, str]:
    return {"due": timestamp(row.due) or "", "job": row.job, "status": row.status, "session": row.session or "", "why": row.why}


def _histories(store: Stores) -> Mapping[str, JobHistory]:
    return job_histories(lift(entry) for entry in store.log.read(HOUSE))


async def _ran(setup: "Setup", job: str, output: Output) -> int:
    # Start-up time: listing jobs needs no agent.
    from curtainwall.channels.terminal import OneShotSettings, one_shot, wants_colour
    from curtainwall.compose.agents import default_model_of, model_finder, run_agents
    from curtainwall.compose.ask_files import ask_files_of
    from curtainwall.compose.gate import open_gate, session_hooks
    from curtainwall.operations.open import SessionSpec
    from curtainwall.serve.firings import JobFirings

    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(setup))
        model = default_model_of(wired)
        work = await stack.enter_async_context(run_agents(wired, model_finder(wired), SessionSpec(model)))
        # The agent starts when we begin to follow it; otherwise a quick one could finish unseen.
        firings = JobFirings(wired, lambda _: None, model)
        session = await firings.fire(await firings.claim_now(job))
        note(f"{job} fired: session {session}")
        if (why := wired.sessions.state(session).closed) is not None:
            raise CommandRefused(f"{job} was not begun: {why}")
        await stack.enter_async_context(ask_files_of(wired, session))
        await stack.enter_async_context(session_hooks(wired, session))
        line = replace(work.line, live=work.journal)
        settings = OneShotSettings(
            shape=output.value,
            on_ask="park",
            out=sys.stdout,
            err=sys.stderr,
            colour=wants_colour(sys.stdout),
            keys=False,
            quiet=is_quiet(),
            attend=work.turns.attend,
        )
        return await one_shot(line, session, local_user(), None, settings)
