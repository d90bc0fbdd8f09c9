"""The firings of one job, by the places that lead to their sessions."""

from collections.abc import Iterable

from curtainwall.model import Route

_BEFORE = {"cron": "@", "webhook": "/"}
"""Where each firing has a place of its own: what stands behind the job's name in a reference."""


def series_of(place: Route) -> tuple[str, str] | None:
    """Return the job that a place is one firing of, or None where a place is no firing."""
    mark = _BEFORE.get(place.channel)
    if mark is None:
        return None
    # A job's name has no such mark in it; whatever comes behind the first is the firing's own.
    name, found, _ = place.reference.partition(mark)
    return (place.channel, name) if found else None


def series_at(places: Iterable[Route]) -> tuple[str, str] | None:
    """Return the job that a session is a firing of, by the places that lead to it; None where it is of none."""
    return next(filter(None, map(series_of, places)), None)
