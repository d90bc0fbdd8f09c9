"""The firings of one job, by the places that lead to their sessions."""

from collections.abc import Iterable

from curtainwall.model import Route

_SEPARATORS = {"cron": "@", "webhook": "/"}
"""For channels where each firing has its own place: the separator after the job's name in a reference."""


def series_of(place: Route) -> tuple[str, str] | None:
    """Return the job that a place is one firing of, or None if it is not a firing."""
    separator = _SEPARATORS.get(place.channel)
    if separator is None:
        return None
    # A job's name never contains the separator; everything after the first one belongs to the firing.
    name, is_firing, _ = place.reference.partition(separator)
    return (place.channel, name) if is_firing else None


def series_at(places: Iterable[Route]) -> tuple[str, str] | None:
    """Return the job that a session is a firing of, judged by its places; None if it is not a firing."""
    return next(filter(None, map(series_of, places)), None)
