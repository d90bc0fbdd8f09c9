"""The tables `[cron.NAME]`: jobs that `serve` runs on a schedule."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from curtainwall.config.fields import Count, DirectoryName, Duration, FileName, Section, matches
from curtainwall.model import Limits, Mode
from curtainwall.model.people import parse_place

JobName = Annotated[
    str,
    matches(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
        "a job's name is made of letters, digits, `_`, `.` and `-`, 64 at most, and begins with a letter or digit",
    ),
]
"""A valid name of a job; it has no `@`, which separates the name from the time of a firing."""


def _check_place(text: str) -> str:
    parse_place(text)
    return text


PlaceText = Annotated[str, AfterValidator(_check_place)]
"""A place where asks are shown: `web`, `matrix:!room:server`."""


def _check_schedule(schedule: str) -> str:
    # Start-up time: most files name no job.
    from curtainwall.facts.schedules import Schedule

    Schedule.parse(schedule)
    return schedule


def _check_zone(zone: str) -> str:
    # Start-up time: as above.
    from curtainwall.facts.schedules import Schedule

    Schedule.parse("0 0 * * *", zone)
    return zone


class BudgetSection(Section):
    """What one firing may use up; what is left out is as under `[limits]`."""

    tokens: Count | None = Field(None, description="tokens, in and out together")
    steps: Count | None = Field(None, description="requests to the model")
    seconds: Duration | None = Field(None, description='time of work, also as `"30m"`')
    dollars: Annotated[float, Field(gt=0)] | None = Field(None, description="cost in USD, as far as it is known")

    def over(self, limits: Limits) -> Limits:
        """Return the limits, replaced by those that are set here."""
        return limits.model_copy(update=self.model_dump(exclude_none=True))


class JobSection(Section):
    """A job: what to do, and when. Each firing is a session of its own; docs/cron.md tells the rest."""

    enabled: bool = Field(True, description="whether it fires on its schedule; `cron run` works regardless")
    schedule: Annotated[str, AfterValidator(_check_schedule)] = Field(
        description="minute, hour, day of the month, month, day of the week: `0 3 * * *`"
    )
    zone: Annotated[str, AfterValidator(_check_zone)] = Field(
        "UTC", description="the time zone that the hours are meant in, such as `Europe/Berlin`"
    )
    instructions: str = Field(min_length=1, description="what the agent is told at each firing")
    agent: str = Field("builtin", min_length=1, description="which agent works")
    model: str | None = Field(None, min_length=1, description="which model it uses; left out, as `[model]` says")
    workspace: DirectoryName | None = Field(None, description="the project to work in; left out, each firing has a directory of its own")
    mode: Annotated[Mode, Field(strict=False)] = Field(
        Mode.DEFAULT, description="`ask` (`default`), `review`, `plan`, `accept-edits`, `bypass`"
    )
    policy: FileName | None = Field(None, description="a rule file for this job alone, which forbids something besides those of the house")
    budget: BudgetSection = BudgetSection.model_construct()
    overlap: Literal["skip", "queue", "allow"] = Field(
        "skip", description="what becomes of a firing while the one before is not over: left out, begun after it, or begun beside it"
    )
    missed: Literal["skip", "once", "all"] = Field(
        "once", description="what becomes of firings that nobody was there for: none is made up for, only the last, or each (100 at most)"
    )
    approval_targets: tuple[PlaceText, ...] = Field(
        (), alias="approval-targets", description="where its asks are shown: `web`, `matrix:!room:server`, `matrix:@person:server`"
    )

    @property
    def folder(self) -> Path | None:
        """Return the project's directory."""
        return None if self.workspace is None else Path(self.workspace).expanduser()
