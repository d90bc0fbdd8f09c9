"""Who speaks, and where: people, channels, and the routes between them and a session."""

from curtainwall.model.frozen import Frozen

_RUNTIME = "runtime"


class Who(Frozen):
    """The cause of an event: a person on a channel, or a named part of this program."""

    name: str
    channel: str = "local"

    @property
    def is_human(self) -> bool:
        """Tell whether this is a person; the runtime itself and an automatic approver are not."""
        return self.channel != _RUNTIME

    def __str__(self) -> str:
        return self.name if self.channel == "local" else f"{self.name} on {self.channel}"


class Route(Frozen):
    """A place where a session's asks are shown: a channel and its own reference (room, browser user, terminal)."""

    channel: str
    reference: str


SYSTEM = Who(name="curtainwall", channel=_RUNTIME)

HOUSE_CHANNELS = ("local", SYSTEM.channel)
"""The channels on which only the user and the program itself write; no other channel has such a name."""


def parse_place(text: str) -> Route:
    """Parse a place written as `channel` or `channel:reference`; raise ValueError."""
    channel, _, reference = text.partition(":")
    if not channel.strip() or channel != channel.strip():
        raise ValueError("write a place as `web` or as `matrix:!room:server`")
    return Route(channel=channel, reference=reference)
