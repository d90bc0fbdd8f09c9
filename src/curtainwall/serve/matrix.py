"""Matrix as a service; its libraries are loaded only if the configuration names a homeserver."""

from collections.abc import Iterable

from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"matrix", "channels"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the channel, if the configuration asks for it."""
    if serving.config.matrix.homeserver is None:
        return ()
    # Start-up time, and memory: its libraries are a third of what `serve` loads.
    from curtainwall.serve.rooms import channels

    return channels(serving)
