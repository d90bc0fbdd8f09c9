"""When a job is due: cron's five fields, read in the job's own time zone as Debian's cron reads them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from curtainwall.model import Millis

_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression and the zone that its hours are meant in.

    Where the clocks go forward, what was due in the hour that is left out runs right after it; where they go back, what is due at a fixed
    hour runs once, and what is due every so many minutes goes on running.
    """

    expression: str
    zone: str = "UTC"

    @staticmethod
    def parse(expression: str, zone: str = "UTC") -> "Schedule":
        """Return the schedule; raise ValueError that says what is wrong with it."""
        fields = " ".join(expression.split())
        try:
            ZoneInfo(zone)
        except (ValueError, OSError, KeyError):
            raise ValueError(f"there is no time zone `{zone}` on this machine; write one such as `Europe/Berlin`") from None
        if len(fields.split()) != _FIELDS:
            raise ValueError("write minute, hour, day of the month, month and day of the week, as in `0 3 * * *`")
        try:
            next(CronSim(fields, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as fault:
            raise ValueError(f"no schedule: {str(fault).lower() or 'it never comes'}; write five fields, as in `0 3 * * *`") from None
        return Schedule(fields, zone)

    def after(self, moment: Millis) -> Iterator[Millis]:
        """Yield every time at which it is due after a moment, in order, without end."""
        begin = datetime.fromtimestamp(moment / 1000, ZoneInfo(self.zone))
        for due in CronSim(self.expression, begin):
            yield round(due.timestamp() * 1000)

    def between(self, after: Millis, upto: Millis, most: int) -> list[Millis]:
        """Return when it was due after a moment and up to another; of more than `most`, the last ones."""
        found: list[Millis] = []
        for due in self.after(after):
            if due > upto:
                break
            found.append(due)
            if len(found) > most:
                del found[0]
        return found

    def next(self, moment: Millis) -> Millis:
        """Return when it is due next after a moment."""
        return next(self.after(moment))
