"""Places as people read them: the origin of a session."""

from collections.abc import Iterable

from curtainwall.channels.series import series_of
from curtainwall.model import Route
from curtainwall.teams.pairs import Pair


def origin_of(places: Iterable[Route]) -> str:
    """Return where a session comes from in a word or two, such as `cron: nightly`; "" if no place leads to it."""
    origins: list[str] = []
    for place in places:
        series = series_of(place)
        pair = Pair.at(place)
        name = series[1] if series else place.reference if pair is None else str(pair)
        origins.append(f"{place.channel}: {name}" if name else place.channel)
    return ", ".join(dict.fromkeys(origins))
