"""The adapter protocol: turns a task into files, command line and environment, and output lines into reports. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from curtainwall.agents.external import OutputParser
from curtainwall.agents.external.container.spec import BRIDGE, CERTIFICATE, HOME, ORIENTATION, PROXY
from curtainwall.model import record


@record
class Task:
    """The task of one turn, as an adapter gets it.

    `conversation` is the agent's name for the conversation, and `is_new` means that it has not begun. An agent that lets us choose the
    name gets this one. `keys` are stand-ins by provider, which only our proxy knows. `patience` is how many seconds a human may take to
    answer.
    """

    conversation: str
    is_new: bool
    orientation: str
    provider: str = ""
    model: str = ""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    patience: int = 7 * 24 * 3600


@record
class AgentLaunch:
    """How the agent is started: command, environment, and files by their names in the orientation directory. The message is its stdin.

    `preface` goes before the message where the agent has no better place for its orientation.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    preface: str = ""
    root_files: tuple[str, ...] = ()
    """The files that the agent accepts only from root; `ROOT_FILES` holds copies that belong to root."""


class Adapter(Protocol):
    """One kind of agent. The shipped ones print events as JSON lines; any other line must not become text."""

    @property
    def name(self) -> str:
        """Return the name by which people choose the agent."""
        ...

    @property
    def providers(self) -> Mapping[str, str]:
        """Return the providers that it can use, the usual one first, each with the environment variable for its key."""
        ...

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        ...

    def output_parser(self) -> OutputParser:
        """Return a parser for the output of one turn."""
        ...

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return patterns of files below the agent's home; at least one exists while the agent knows the conversation."""
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
"""The environment of every agent: the proxy, the certificates to trust, and no telemetry."""


def environment(adapter: Adapter, task: Task, **more: str) -> dict[str, str]:
    """Return the common environment, the stand-in keys that this agent can use, and its own variables."""
    keys = {variable: task.keys[provider] for provider, variable in adapter.providers.items() if provider in task.keys}
    return {**SURROUNDINGS, **keys, **more}


def chosen_provider(adapter: Adapter, task: Task) -> str:
    """Return the provider for a turn: the requested one, or the first that has a key."""
    return task.provider or next((name for name in adapter.providers if name in task.keys), next(iter(adapter.providers), ""))


def bridge() -> tuple[str, list[str]]:
    """Return the program and arguments that connect stdin and stdout to the session's tools."""
    return BRIDGE[0], list(BRIDGE[1:])


def in_orientation(name: str) -> str:
    """Return the path inside the container of a file that an adapter provides."""
    return f"{ORIENTATION}/{name}"
