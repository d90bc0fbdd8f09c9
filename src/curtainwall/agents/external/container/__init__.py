"""External agents in containers without a network: adapters, images, the engine, and the agent that runs them."""

from curtainwall.agents.external.container.adapters import Adapter, Adapters, PlainAgent
from curtainwall.agents.external.container.agent import ContainerAgent
from curtainwall.agents.external.container.engine import Engine
from curtainwall.agents.external.container.fleet import Fleet
from curtainwall.agents.external.container.images import Images
from curtainwall.agents.external.container.spec import (
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    ContainerFolders,
    ContainerGone,
    ContainerLimits,
    ContainerNetwork,
    ContainerSockets,
    EngineMissing,
    ImageMissing,
    LentProgram,
)
from curtainwall.agents.external.container.turn import ContainerPorts

__all__ = [
    "EGRESS_SOCKET",
    "TOOLS_SOCKET",
    "Adapter",
    "Adapters",
    "ContainerAgent",
    "ContainerFolders",
    "ContainerGone",
    "ContainerLimits",
    "ContainerNetwork",
    "ContainerPorts",
    "ContainerSockets",
    "Engine",
    "EngineMissing",
    "Fleet",
    "ImageMissing",
    "Images",
    "LentProgram",
    "PlainAgent",
]
