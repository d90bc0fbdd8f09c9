"""External agents in containers without a network: adapters, images, the engine, and the agent that runs them."""

from curtainwall.agents.external.container.adapters import Adapter, Adapters, PlainAgent
from curtainwall.agents.external.container.agent import ContainerAgent
from curtainwall.agents.external.container.devcontainer import devcontainer_image
from curtainwall.agents.external.container.engine import RECIPE_LABEL, Engine, engine_socket
from curtainwall.agents.external.container.fleet import Fleet
from curtainwall.agents.external.container.images import ImagePins, Images
from curtainwall.agents.external.container.spec import (
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    ContainerExtras,
    ContainerFolders,
    ContainerGone,
    ContainerLimits,
    ContainerNetwork,
    ContainerSockets,
    EngineMissing,
    ExtraMount,
    ForwardedPort,
    ImageChoice,
    ImageMissing,
    ImageUnclear,
    LentProgram,
)
from curtainwall.agents.external.container.turn import ContainerPorts

__all__ = [
    "EGRESS_SOCKET",
    "RECIPE_LABEL",
    "TOOLS_SOCKET",
    "Adapter",
    "Adapters",
    "ContainerAgent",
    "ContainerExtras",
    "ContainerFolders",
    "ContainerGone",
    "ContainerLimits",
    "ContainerNetwork",
    "ContainerPorts",
    "ContainerSockets",
    "Engine",
    "EngineMissing",
    "ExtraMount",
    "Fleet",
    "ForwardedPort",
    "ImageChoice",
    "ImageMissing",
    "ImagePins",
    "ImageUnclear",
    "Images",
    "LentProgram",
    "PlainAgent",
    "devcontainer_image",
    "engine_socket",
]
