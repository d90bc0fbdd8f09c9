"""The places where asks are shown, wherever they are configured; a place that nothing serves is refused."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from curtainwall.model.people import Route, parse_place

if TYPE_CHECKING:
    # The schema checks itself with this module.
    from curtainwall.config.schema import Config

_HOW = "write `web`, `matrix:!room:server` or `matrix:@person:server`"


def check_targets(config: "Config") -> None:
    """Raise ValueError for the first place that nothing serves, with its key: an ask that is shown nowhere waits for ever."""
    for key, places in _places(config):
        for place in places:
            if why := _why_not(config, parse_place(place)):
                raise ValueError(f"`{key}` names `{place}`, {why}")


def _places(config: "Config") -> Iterator[tuple[str, Iterable[str]]]:
    yield "approvals.targets", config.approvals.targets
    for name, job in config.cron.items():
        yield f"cron.{name}.approval-targets", job.approval_targets
    for name, hook in config.webhooks.hooks.items():
        yield f"webhooks.hooks.{name}.approval-targets", hook.approval_targets
    for name, team in config.teams.items():
        yield f"teams.{name}.approval-target", (team.approval_target,) if team.approval_target else ()


def _why_not(config: "Config", place: Route) -> str:
    """Return why an ask would not be shown at a place; empty if it would."""
    match place.channel:
        case "web":
            return "" if config.web.enabled else "but `web.enabled` is false"
        case "matrix" if config.matrix.homeserver is None:
            return "but `matrix.homeserver` is not set"
        case "matrix" if place.reference.startswith("@"):
            operators = config.channels["matrix"].operators if "matrix" in config.channels else ()
            return "" if place.reference in operators else "who could not answer; name them in `channels.matrix.operators`"
        case "matrix" if not place.reference.startswith("!"):
            return f"which is neither a room nor a person; {_HOW}"
        case "matrix":
            rooms = config.matrix.rooms
            return "" if not rooms or place.reference in rooms else "which is not among `matrix.rooms`"
        case channel:
            # A program that embeds us may serve its own channel, whose operators are configured here.
            return "" if channel in config.channels else f"and nothing here serves `{channel}`; {_HOW}"
