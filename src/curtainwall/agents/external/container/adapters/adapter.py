"""What an adapter is: from a turn's circumstances to files, command line and environment, and from output lines to what was heard. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from curtainwall.agents.external import OutputParser
from curtainwall.agents.external.container.spec import BRIDGE, CERTIFICATE, HOME, ORIENTATION, PROXY


@dataclass(frozen=True, slots=True)
class Task:
    """The circumstances of one turn, as far as an adapter has to know them.

    `conversation` is the agent's own name for what was said before; `is_new` says that nothing was. An agent that takes a name from us gets
    this one. `keys` are stand-ins by provider, which only our proxy knows. `patience` is how many seconds a human may take to answer.
    """

    conversation: str
    is_new: bool
    orientation: str
    provider: str = ""
    model: str = ""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    patience: int = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How the agent is started: command, environment, and files by their names in the orientation directory. The message is its stdin.

    `preface` goes before the message where the agent has no better place for its orientation.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    preface: str = ""
    root_files: tuple[str, ...] = ()
    """Which of the files the agent takes from nobody but root: a copy of root's is in `ROOT_FILES`."""


class Adapter(Protocol):
    """One kind of agent."""

    @property
    def name(self) -> str:
        """Return the name by which people ask for the agent."""
        ...

    @property
    def providers(self) -> Mapping[str, str]:
        """Return the providers that it can talk to, the usual one first, each with the variable that its key goes into."""
        ...

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        ...

    def ear(self) -> OutputParser:
        """Return whoever listens to one turn."""
        ...

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return patterns of files below the agent's home, one of which is there while it knows the conversation."""
        ...


SURROUNDINGS: Final[Mapping[str, str]] = {
    "HOME": HOME,
    "HTTPS_PROXY": PROXY,
    "https_proxy": PROXY,
    "HTTP_PROXY": PROXY,
    "http_proxy": PROXY,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "SSL_CERT_FILE": CERTIFICATE,
    "NODE_EXTRA_CA_CERTS": CERTIFICATE,
    "REQUESTS_CA_BUNDLE": CERTIFICATE,
    "CURL_CA_BUNDLE": CERTIFICATE,
    "GIT_TERMINAL_PROMPT": "0",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "LANG": "C.UTF-8",
}
"""The environment that every agent gets: the one way out, whom to trust there, and no telemetry."""


def environment(adapter: Adapter, task: Task, **more: str) -> dict[str, str]:
    """Return what every agent gets, the stand-in keys that this one can use, and what is its own."""
    keys = {variable: task.keys[provider] for provider, variable in adapter.providers.items() if provider in task.keys}
    return {**SURROUNDINGS, **keys, **more}


def chosen_provider(adapter: Adapter, task: Task) -> str:
    """Return the provider that a turn talks to: the one asked for, or the first that there is a key for."""
    return task.provider or next((name for name in adapter.providers if name in task.keys), next(iter(adapter.providers), ""))


def bridge() -> tuple[str, list[str]]:
    """Return program and arguments that carry stdin and stdout to the session's tools."""
    return BRIDGE[0], list(BRIDGE[1:])


def in_orientation(name: str) -> str:
    """Return the path inside of a file that an adapter asked for."""
    return f"{ORIENTATION}/{name}"
