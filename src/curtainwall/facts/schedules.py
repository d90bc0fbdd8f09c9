"""Computes when a job is due: cron's five fields in the job's time zone, with the rules of Debian's cron."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from curtainwall.model import Millis, record

_FIELDS = 5


@record
class Schedule:
    """A cron expression and its time zone.

    When the clocks go forward, a job that was due in the skipped hour runs right after it. When they go back, a job at a fixed hour runs
    once, and a job every few minutes keeps running.
    """

    expression: str
    zone: str = "UTC"

    @staticmethod
    def parse(expression: str, zone: str = "UTC") -> "Schedule":
        """Parse a schedule; raise ValueError, which says what is wrong."""
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
        """Yield every time it is due after a moment, in order, without end."""
        begin = datetime.fromtimestamp(moment / 1000, ZoneInfo(self.zone))
        for due in CronSim(self.expression, begin):
            yield round(due.timestamp() * 1000)

    def between(self, after: Millis, upto: Millis, most: int) -> list[Millis]:
        """Return when it was due after a moment and up to another; at most the last `most` times."""
        times: list[Millis] = []
        for due in self.after(after):
            if due > upto:
                break
            times.append(due)
            if len(times) > most:
                del times[0]
        return times

    def next(self, moment: Millis) -> Millis:
        """Return when it is due next after a moment."""
        return next(self.after(moment))
