"""The places where asks are shown, wherever they are configured; a place that nothing serves is refused."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from curtainwall.config.matrix import MatrixSection
from curtainwall.model import record
from curtainwall.model.people import Route, parse_place

_HOW: Final = "write `web`, `matrix:!room:server` or `matrix:@person:server`"


@record
class ServedPlaces:
    """What is served: the web or not, Matrix, who may answer on each channel that has operators, and which channels are switched off."""

    web: bool
    matrix: MatrixSection
    operators: Mapping[str, Sequence[str]]
    disabled: Collection[str] = ()

    def check(self, key: str, places: Iterable[str]) -> None:
        """Raise ValueError for the first of a key's places that nothing serves: an ask that is shown nowhere waits for ever."""
        for place in places:
            if why := self._why_not(parse_place(place)):
                raise ValueError(f"`{key}` names `{place}`, {why}")

    def _why_not(self, place: Route) -> str:
        """Return why an ask would not be shown at a place; empty if it would."""
        match place.channel:
            case "web":
                return "" if self.web else "but `web.enabled` is false"
            case "matrix" if self.matrix.homeserver is None:
                return "but `matrix.homeserver` is not set"
            case channel if channel in self.disabled:
                return f"but `channels.{channel}.enabled` is false"
            case "matrix" if place.reference.startswith("@"):
                may_answer = place.reference in self.operators.get("matrix", ())
                return "" if may_answer else "who could not answer; name them in `channels.matrix.operators`"
            case "matrix" if not place.reference.startswith("!"):
                return f"which is neither a room nor a person; {_HOW}"
            case "matrix":
                rooms = self.matrix.rooms
                return "" if not rooms or place.reference in rooms else "which is not among `matrix.rooms`"
            case channel:
                # A program that embeds us may serve its own channel, whose operators are configured here.
                return "" if channel in self.operators else f"and nothing here serves `{channel}`; {_HOW}"
