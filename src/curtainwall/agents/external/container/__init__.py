"""Foreign agents in containers without a network: adapters, images, the engine, and the agent that keeps them."""

from curtainwall.agents.external.container.adapters import Adapter, Adapters, PlainAgent
from curtainwall.agents.external.container.agent import ContainerAgent
from curtainwall.agents.external.container.engine import Engine
from curtainwall.agents.external.container.fleet import Fleet
from curtainwall.agents.external.container.images import Images
from curtainwall.agents.external.container.inside import EGRESS_SOCKET, TOOLS_SOCKET
from curtainwall.agents.external.container.terms import (
    ContainerGone,
    EngineMissing,
    Folders,
    ImageMissing,
    Limits,
    Outside,
    Program,
    Reach,
)
from curtainwall.agents.external.container.turn import Around

__all__ = [
    "EGRESS_SOCKET",
    "TOOLS_SOCKET",
    "Adapter",
    "Adapters",
    "Around",
    "ContainerAgent",
    "ContainerGone",
    "Engine",
    "EngineMissing",
    "Fleet",
    "Folders",
    "ImageMissing",
    "Images",
    "Limits",
    "Outside",
    "PlainAgent",
    "Program",
    "Reach",
]
