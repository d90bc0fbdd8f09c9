"""The tables of agents: images, custom agents, and the limits of containers, processes and sandboxes."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from curtainwall.config.fields import Count, Duration, ModelName, SecretSection, Section, matches
from curtainwall.model import BUILTIN_AGENT

BUILTIN: Final = BUILTIN_AGENT
_AUTO: Final = "auto"
SHIPPED: Final = ("claude-code", "codex", "opencode", "gemini")
"""The container agents that need no configuration; their adapters are in `agents/external/container/adapters`."""

PROVIDERS: Final = ("anthropic", "openai", "gemini")
"""The providers that external agents can use with nothing but a key."""

SIGNS_IN: Final = "anthropic"
"""The provider whose program also accepts a token in place of a key."""


def contained_agents(own: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the agents that work in containers: the shipped ones and the user's."""
    return tuple(dict.fromkeys((*SHIPPED, *(name for name in own if name != LOCAL))))


def agent_names(own: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all agents that a session can have."""
    return (BUILTIN, LOCAL, *contained_agents(own))


def _check_agent_name(name: str) -> str:
    if name == BUILTIN:
        raise ValueError("this name is taken by the agent that comes with the house; choose another")
    return name


AgentName = Annotated[
    str,
    matches(r"[a-z][a-z0-9-]{0,31}", "a name here is made of small letters, digits and dashes, 32 at most, and begins with a letter"),
    AfterValidator(_check_agent_name),
]
"""A valid name of an agent."""

Variable = Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*=.*", "write it as `NAME=value`")]
Lent = Annotated[str, matches(r"/[^:]+:/[^:]+", "write two whole paths, as `/opt/agent:/usr/local/bin/agent`")]
Mounted = Annotated[
    str, matches(r"(?:/|~/)[^:]+:/[^:]+(?::rw)?", "write it as `/path/here:/path/inside`, with `:rw` behind it to let the agent write")
]
CacheName = Annotated[
    str,
    matches(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+){0,3}", "write a path in its home, as `.cache/pip`"),
]
Forwarded = Annotated[str, matches(r"[0-9]{1,5}(?::[0-9]{1,5})?", "write a port, as `3000`, or two as `HERE:INSIDE`")]

DEV: Final = "dev"
"""The name that stands for our image with compilers and interpreters."""

DEVCONTAINER: Final = "devcontainer"
"""The name that stands for the image that a project's `devcontainer.json` names."""

RESERVED_VARIABLES: Final = frozenset(
    """
    HOME HTTPS_PROXY HTTP_PROXY NO_PROXY SSL_CERT_FILE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_TERMINAL_PROMPT
    DO_NOT_TRACK NO_COLOR LANG ANTHROPIC_API_KEY CLAUDE_CODE_OAUTH_TOKEN OPENAI_API_KEY GEMINI_API_KEY GOOGLE_API_KEY
    """.split()
)
"""Variables that Curtainwall sets for every agent: the proxy, certificates and stand-in keys."""


class KeySection(SecretSection):
    """A provider's key for this agent or team alone, in place of the one that the others use (docs/containers.md).

    It comes from exactly one of `env`, `file`, `keyring` and `command`.
    """

    oauth: bool = Field(False, description="under `anthropic`: it is no key but a token, as `claude setup-token` prints one")


Keys = dict[ModelName, KeySection]
"""The keys of one agent or team, by the provider's name."""


def check_tokens(keys: Mapping[str, KeySection]) -> None:
    """Raise if a token is configured for a provider that does not accept one."""
    for provider, key in keys.items():
        if key.oauth and provider != SIGNS_IN:
            raise ValueError(f"`keys.{provider}`: `oauth` is for `{SIGNS_IN}` alone; take it away, or name the place of a key")


class AgentSection(Section):
    """An agent in a container: what to change about one that ships, or, with a `command`, one of your own (docs/containers.md).

    Of `claude-local`, which needs no container, `model` and `keys` can be set.
    """

    image: str | None = Field(
        None,
        min_length=1,
        description="an image of yours that the agent is layered on; with `command` or `ready`, the one that it runs in. "
        "`dev` is ours with compilers, Python, Node and ssh; `devcontainer` the one that a project's `devcontainer.json` names",
    )
    ready: bool = Field(False, description="the image has the agent in it already: nothing is built on it")
    model: str = Field("", description="the model of new sessions, as `anthropic:NAME`; left out, the agent's own choice")
    command: tuple[str, ...] = Field(
        (), description='a program of your own that reads a message from stdin: `["my-agent", "--thread", "{conversation}"]`'
    )
    resume: tuple[str, ...] = Field((), description="what its command line ends with when something was said before")
    providers: dict[str, str] = Field(
        default_factory=dict[str, str],
        description='the models that it talks to, each with the variable for its key: `{openai="OPENAI_API_KEY"}`',
    )
    env: tuple[Variable, ...] = Field(
        (), description='variables that it gets besides: `["REGION=eu-west-1"]`; never a secret, it can read them'
    )
    programs: tuple[Lent, ...] = Field((), description="programs of this machine that it sees read-only, as `HERE:INSIDE`")
    mounts: tuple[Mounted, ...] = Field(
        (), description="directories and files of this machine that it sees, as `HERE:INSIDE`; read-only unless `:rw` follows"
    )
    caches: tuple[CacheName, ...] = Field(
        (), description='directories in its home that all its sessions in one project share: `[".cache/pip", ".npm"]`'
    )
    ports: tuple[Forwarded, ...] = Field(
        (), description='ports in its container that you reach at 127.0.0.2 while it runs: `["3000", "8080:5173"]`'
    )
    keep: bool = Field(False, description="in a project, what it leaves running (a dev server) goes on after the turn, watched")
    keys: Keys = Field(default_factory=dict[str, KeySection], description="by the provider's name")

    @model_validator(mode="after")
    def _check_consistency(self) -> "AgentSection":
        if not self.command and (self.resume or self.providers):
            raise ValueError("`resume` and `providers` are for an agent of your own; write its `command`")
        if (self.command or self.ready) and self.image in (None, DEV, DEVCONTAINER):
            raise ValueError("write the `image` that it runs in")
        for name in (each.partition("=")[0] for each in self.env):
            if name.upper() in RESERVED_VARIABLES or name.upper().startswith("CURTAINWALL_"):
                raise ValueError(f"`env`: `{name}` is set by Curtainwall; choose another name")
        for each in self.mounts:
            check_mount_point(each.split(":")[1])
        for port in (int(number) for each in self.ports for number in each.split(":")):
            if not 1024 <= port <= 65535:
                raise ValueError(f"`ports`: {port} cannot be forwarded; write a port from 1024 to 65535")
        check_tokens(self.keys)
        for provider in self.keys:
            if self.command and provider not in self.providers:
                raise ValueError(f"`keys.{provider}`: the agent does not talk to `{provider}`; name it in `providers` first")
        return self


_TAKEN: Final = tuple("/workspace /home/agent /etc /run /var/run /tmp /proc /sys /dev /usr /bin /sbin /lib /lib64".split())
"""Places in a container that are its own."""


def check_mount_point(inside: str) -> None:
    """Raise if a path in the container is not plain, or if something of the container's lies at, above or below it."""
    parts = inside.split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"`mounts`: `{inside}` is not a plain path; write it without `//`, `.` and `..`")
    for taken in _TAKEN:
        if f"{inside}/".startswith(f"{taken}/") or taken.startswith(f"{inside}/"):
            raise ValueError(f"`mounts`: `{inside}` belongs to the container itself (`{taken}`); choose another place, such as `/data`")


def _check_agents(agents: dict[str, AgentSection]) -> dict[str, AgentSection]:
    for name, section in agents.items():
        if name == LOCAL:
            _check_local_agent(section)
        elif not section.command and name not in SHIPPED:
            raise ValueError(f"there is no agent `{name}`; write the `command` of your own, or name one of {', '.join(SHIPPED)}")
    return agents


def _check_local_agent(section: AgentSection) -> None:
    others = [name for name in section.model_fields_set if name not in ("model", "keys")]
    if others:
        raise ValueError(
            f"`{LOCAL}.{others[0]}` is for agents in containers; of `{LOCAL}`, `model` and `keys` can be set, and `[processes]`"
        )
    if any(provider != SIGNS_IN for provider in section.keys):
        raise ValueError(f"`{LOCAL}` talks to `{SIGNS_IN}` alone; write its key as `[agents.{LOCAL}.keys.{SIGNS_IN}]`")


Agents = Annotated[dict[AgentName, AgentSection], AfterValidator(_check_agents)]
"""The agents that the file configures."""


def agent_model(agents: Mapping[str, AgentSection], agent: str) -> str:
    """Return the default model of an external agent: the one of its section, or the agent's own choice."""
    section = agents.get(agent)
    return (section.model if section else "") or _AUTO


def model_for(agents: Mapping[str, AgentSection], agent: str, usual: str) -> str:
    """Return the default model of an agent; `usual` is the one of our own agent."""
    return usual if agent == BUILTIN else agent_model(agents, agent)


class ContainersSection(Section):
    """What the containers of agents may use."""

    most: Count = Field(5, description="containers that run at once; more wait")
    memory: Count = Field(4096, description="memory of each, in MiB")
    cpus: float = Field(2.0, gt=0, description="processors of each")
    processes: Count = Field(256, description="processes in each")
    disk: Count = Field(
        10_240, description="what a session's workspace and its agent's home may hold together, in MiB; in a project, what a turn may add"
    )
    turn: Duration = Field(7_200, description="how long one turn may work; waiting for a human does not count")
    pause: Duration = Field(60, description="one that has nothing to do, or waits for a human, is paused after so long")
    idle: Duration = Field(900, description="one that has nothing to do is removed after so long")


LOCAL: Final = "claude-local"
"""The name of Claude Code as a process on this machine."""


class ProcessesSection(Section):
    """Claude Code as a confined process of this machine, the agent `claude-local` (docs/process-agents.md)."""

    program: str = Field("", description="Claude Code's program; left out, `claude` on the path")
    most: Count = Field(10, description="processes that live at once; the one that rested longest makes room, and more wait")
    memory: Count = Field(4096, description="memory of each, in MiB")
    idle: Duration = Field(300, description="one that has nothing to do is ended after so long; the next message resumes its conversation")
    health: Duration = Field(30, description="how often one that has nothing to do is asked for a sign of life")
    silence: Duration = Field(
        180, description="one that says nothing for so long in a turn is ended, unless a call runs or a human is asked"
    )
    turn: Duration = Field(7_200, description="how long one turn may work; waiting for a human does not count")


_LEFT_OUT = "left out, by the size of this machine"


class SandboxesSection(Section):
    """What commands, git, tool servers and local agents may use together; read when a process starts (docs/confinement.md)."""

    session_commands: Count = Field(
        4, alias="session-commands", description="commands of one session that run at once; others wait for a free place"
    )
    commands: Count | None = Field(
        None, description=f"commands of all sessions that run at once; {_LEFT_OUT} (4 for each core, at least 8)"
    )
    session_memory: Count | None = Field(
        None, alias="session-memory", description=f"memory of one session's sandboxes, in MiB; {_LEFT_OUT} (a quarter, at least 2048)"
    )
    memory: Count | None = Field(None, description=f"memory of all sandboxes, in MiB; {_LEFT_OUT} (half, at least 2048)")
    session_processes: Count = Field(1024, alias="session-processes", description="processes and threads in one session's sandboxes")
    processes: Count = Field(4096, description="processes and threads in all sandboxes")

    @model_validator(mode="after")
    def _check_session_shares(self) -> "SandboxesSection":
        pairs = (("commands", self.session_commands, self.commands), ("memory", self.session_memory, self.memory))
        for name, of_session, of_all in (*pairs, ("processes", self.session_processes, self.processes)):
            is_written = {name, f"session_{name}"} <= self.model_fields_set
            if is_written and of_session is not None and of_all is not None and of_session > of_all:
                raise ValueError(f"`session-{name}` is {of_session}, more than the {of_all} that all sessions have; write at most that")
        return self
