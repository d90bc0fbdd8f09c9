"""Places as people read them: where a session comes from, and which firings of one job belong together."""

from collections.abc import Iterable

from curtainwall.model import Route
from curtainwall.teams.pairs import Pair

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


def origin_of(places: Iterable[Route]) -> str:
    """Return where a session comes from in a word or two, such as `cron: nightly`; nothing where no place leads to it."""
    told: list[str] = []
    for place in places:
        series = series_of(place)
        pair = Pair.at(place)
        name = series[1] if series else place.reference if pair is None else str(pair)
        told.append(f"{place.channel}: {name}" if name else place.channel)
    return ", ".join(dict.fromkeys(told))
