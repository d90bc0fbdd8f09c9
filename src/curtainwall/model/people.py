"""Who speaks, and where: people, channels, and the routes between them and a session."""

from curtainwall.model.frozen import Frozen


class Who(Frozen):
    """Someone or something that caused an event: a person on a channel, or a part of ours by its name."""

    name: str
    channel: str = "local"

    def __str__(self) -> str:
        return self.name if self.channel == "local" else f"{self.name} on {self.channel}"


class Route(Frozen):
    """A place where a session's asks are shown: a channel and its own reference (room, browser user, terminal)."""

    channel: str
    reference: str


SYSTEM = Who(name="curtainwall", channel="runtime")

HOUSE_CHANNELS = ("local", SYSTEM.channel)
"""Where only the user and the house itself speak; no other channel has such a name."""
