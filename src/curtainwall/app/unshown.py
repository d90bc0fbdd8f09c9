"""Places that the configuration wants asks shown at and that nobody serves: such an ask would be shown nowhere."""

from collections.abc import Iterable, Iterator

from curtainwall.app.config import Config
from curtainwall.channels.places import parse_place
from curtainwall.model import Route


def unshown_targets(config: Config) -> tuple[str, ...]:
    """Return a sentence for each place that is named and not served, with the key that names it."""
    found = ((key, place, _why_not(config, parse_place(place))) for key, places in _named(config) for place in places)
    return tuple(f"`{key}` names `{place}`, {why}; asks are not shown there" for key, place, why in found if why)


def _named(config: Config) -> Iterator[tuple[str, Iterable[str]]]:
    yield "approvals.targets", config.approvals.targets
    for name, job in config.cron.items():
        yield f"cron.{name}.approval-targets", job.approval_targets
    for name, hook in config.webhooks.hooks.items():
        yield f"webhooks.hooks.{name}.approval-targets", hook.approval_targets
    for name, team in config.teams.items():
        yield f"teams.{name}.approval-target", (team.approval_target,) if team.approval_target else ()


def _why_not(config: Config, place: Route) -> str:
    """Return why an ask would not be shown at a place; nothing where it would."""
    match place.channel:
        case "web":
            return "" if config.web.enabled else "but `web.enabled` is false"
        case "matrix" if config.matrix.homeserver is None:
            return "but `matrix.homeserver` is not set"
        case "matrix" if not place.reference:
            return "which is no room; write `matrix:!room:server`"
        case "matrix":
            rooms = config.matrix.rooms
            return "" if not rooms or place.reference in rooms else "which is not among `matrix.rooms`"
        case channel:
            # A program that has the house in it may serve a channel of its own, which then has its operators here.
            return "" if channel in config.channels else f"and nothing here serves `{channel}`; write `web` or `matrix:!room:server`"
