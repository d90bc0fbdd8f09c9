"""The schema of `config.toml`, with its defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, create_model, model_validator

from curtainwall.config.agents import (
    BUILTIN,
    PROVIDERS,
    Agents,
    AgentSection,
    ContainersSection,
    ProcessesSection,
    SandboxesSection,
    agent_names,
)
from curtainwall.config.cron import JobName, JobSection
from curtainwall.config.fields import (
    ChannelName,
    Count,
    CredentialName,
    Duration,
    FileName,
    ModelName,
    PathName,
    SecretSection,
    Section,
    matches,
)
from curtainwall.config.matrix import MatrixSection
from curtainwall.config.serve import NotifySection, ServeSection
from curtainwall.config.servers import ServerSection
from curtainwall.config.targets import ServedPlaces
from curtainwall.config.teams import PeersSection, TeamName, TeamSection, check_team_keys
from curtainwall.config.web import WebSection
from curtainwall.config.webhooks import WebhooksSection
from curtainwall.host import Sending
from curtainwall.model import NOBODY, Broken, Mode
from curtainwall.model.people import parse_place

_MOST_INSTRUCTIONS = 60_000


def _check_instructions(text: str) -> str:
    if len(text.encode()) > _MOST_INSTRUCTIONS:
        raise ValueError(f"these instructions are too long; agents take {_MOST_INSTRUCTIONS:,} bytes at most")
    return text


class SessionsSection(Section):
    """What a new session is where nobody says otherwise: on the terminal, on the web, in rooms and on channels of your own."""

    agent: str = Field(BUILTIN, min_length=1, description="which agent works: `builtin`, `claude-local`, `claude-code` …")
    mode: Annotated[Mode, Field(strict=False)] | None = Field(
        None,
        description="`ask` (`default`), `review`, `plan`, `accept-edits`, `bypass`; left out, `ask`, and `accept-edits` where an agent in "
        "a container is given a project. Jobs, webhooks and teams have a mode of their own",
    )
    instructions: Annotated[str, AfterValidator(_check_instructions)] = Field(
        "",
        description="what agents in rooms, jobs, webhooks and on the web are told besides their task where they have no project, as an "
        "`AGENTS.md` would tell them in one. New sessions of the built-in agent have it as such a file in their workspace; other agents "
        "are told it with each turn",
    )
    prune_after: Duration | None = Field(
        None,
        alias="prune-after",
        description='`serve` deletes sessions in which nothing has happened for so long, as `"90d"`, as `sessions clean` does; never those '
        "with open work, of teams, or that a room leads to. Left out, it deletes none",
    )


class ModelSection(Section):
    """Which language model sessions use."""

    name: str = Field(
        "auto",
        min_length=1,
        description="`anthropic:NAME`, `openai:NAME`, `demo`, `script:FILE`; `auto` takes the first provider whose key is set, else `demo`",
    )
    compact_at: float = Field(
        0.835,
        ge=0,
        le=1,
        alias="compact-at",
        description="the used share of the context at which old messages become a summary; 0 is never",
    )
    silence: Duration = Field(120, description="a provider that sends nothing for so long is cut off")
    context_size: Count | None = Field(None, alias="context-size", description="tokens that fit; left out, it is known by the model's name")
    input_price: Annotated[float, Field(ge=0)] | None = Field(
        None, alias="input-price", description="dollars for a million tokens in, where the price list does not know the model"
    )
    output_price: Annotated[float, Field(ge=0)] | None = Field(None, alias="output-price", description="dollars for a million tokens out")


class NamedModelSection(Section):
    """A provider's key (under `anthropic` or `openai`), or a server of your own that speaks Chat Completions (under any other name).

    Sessions use it as `NAME:MODEL`.
    """

    url: Annotated[str, matches(r"https?://.+", "write a URL that starts with `http://` or `https://`")] | None = Field(
        None, description="its base URL, such as `http://localhost:11434/v1`"
    )
    model: str = Field("", description="the model that `NAME` alone means")
    env: Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "write the name of a variable, as `OPENAI_API_KEY`")] | None = Field(
        None, description="the variable that holds the key"
    )
    file: FileName | None = Field(None, description="the file that holds the key and nothing else")
    key: str | None = Field(None, min_length=8, repr=False, description="the key itself; a variable or a file is the better place")
    oauth: bool = Field(
        False, description="under `anthropic`: it is no key but a token, as `claude setup-token` prints one; for Claude Code alone"
    )

    @model_validator(mode="after")
    def _check_one_key(self) -> "NamedModelSection":
        if sum(place is not None for place in (self.env, self.file, self.key)) > 1:
            raise ValueError("name one place for the key: `env`, `file` or `key`")
        if self.oauth and (self.env, self.file, self.key) == (None, None, None):
            raise ValueError("`oauth` says what the key is; name its place: `env`, `file` or `key`")
        return self


class CodeSection(Section):
    """What one program of the built-in agent may use. Time counts only while it computes, never while it waits for a call."""

    seconds: Duration = Field(30, description="computing time")
    memory: Count = Field(256, description="memory in MiB")
    calls: Count = Field(20_000, description="calls of one program")
    workers: Count = Field(8, description="programs that compute at the same time, over all sessions")
    unconfined: bool = Field(
        False, description="run programs even where no confinement of their process works; `curtainwall doctor` says whether one does"
    )


class ListsSection(Section):
    """What is free to reach without asking. A wildcard never covers a private address."""

    hosts: tuple[str, ...] = Field((), description='hosts to fetch from: `"docs.python.org"`, `"*.github.com"`, `"localhost:8080"`')
    remotes: tuple[str, ...] = Field((), description='git remotes to clone and fetch from: `"github.com/me/repo"`, `"github.com/me/*"`')
    push_remotes: tuple[str, ...] = Field((), alias="push-remotes", description="git remotes to push to; reading them is free as well")
    teams: tuple[str, ...] = Field((), description="teams that may be asked")


def _check_place(text: str) -> str:
    parse_place(text)
    return text


class ApprovalsSection(Section):
    """How humans are asked."""

    deadline: Duration | None = Field(None, description='how long an ask stays open, as `"30m"`; without one it waits for ever')
    files: bool = Field(
        False, description="also show open asks as files in the session's `escalations/`, and take answers from files there"
    )
    unrouted: Literal["park", "deny"] = Field("park", description="what happens to an ask that can be shown nowhere")
    remind: Duration | None = Field(None, description='how often `serve` says again that an ask still waits, as `"1h"`; left out, once')
    targets: tuple[Annotated[str, AfterValidator(_check_place)], ...] = Field(
        (),
        description='where asks of every new session are shown besides its own place: `"web"`, '
        '`"matrix:!room:server"`, `"matrix:@person:server"`',
    )
    approver: tuple[str, ...] = Field(
        (),
        description='a program that may say yes in your place: `["~/bin/approver"]` (docs/policy.md); no agent can touch it, '
        "and no workspace may hold it",
    )


class LimitsSection(Section):
    """What one session may use up before it parks and asks for more."""

    tokens: Count = Field(1_000_000, description="tokens, in and out together")
    steps: Count = Field(200, description="requests to the model")
    seconds: Duration = Field(7_200, description='time of work, also as `"2h"`; waiting for a human does not count')
    dollars: float = Field(5.0, gt=0, description="cost in USD, as far as it is known")
    warn_at: float = Field(0.8, alias="warn-at", gt=0, le=1, description="the part of a limit at which a warning is given")


class BreakerSection(Section):
    """When a loop is stopped."""

    repeats: Count = Field(20, description="so many times the same changing call within the window")
    asks: Count = Field(30, description="so many asks within the window")
    window: Duration = Field(60, description='the window, as `"60s"`')


class LogSection(Section):
    """How much one session may write into the log; past it, calls are denied and counted."""

    calls: Count = Field(100_000, description="calls")
    logged_bytes: Count = Field(
        1_000_000_000, alias="logged-bytes", description="bytes, those of big results that are kept beside it included"
    )


class ProtectedSection(Section):
    """Paths that no agent touches, besides those that are always protected (key stores, browser profiles, our own files)."""

    never: tuple[PathName, ...] = Field((), description='neither read nor written: `"~/finance"`')
    readonly: tuple[PathName, ...] = Field((), description='never written: `"~/bin"`')


class ChannelSection(Section):
    """One place where people talk to sessions."""

    enabled: bool = Field(True, description="whether it is served; if not, nobody can answer asks or control sessions there")

    operators: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="who may answer asks and use control words there; others may only talk"
    )


def _check_sending(way: str) -> str:
    Sending.parse(way)
    return way


class CredentialSection(SecretSection):
    """A secret that is sent for an agent, which never sees it. It comes from exactly one of `env`, `file`, `keyring` and `command`."""

    hosts: tuple[str, ...] = Field((), description='where it may be sent: `"api.github.com"`, `"*.example.org"`, `"localhost:8080"`')
    tools: tuple[str, ...] = Field((), description="the tools that may use it; empty, every tool that can, at these hosts")
    send: Annotated[str, AfterValidator(_check_sending)] = Field(
        "bearer", description="how it is sent: `bearer`, `header:NAME`, `basic:USER` or `query:NAME`"
    )
    plain_http: bool = Field(
        False, alias="plain-http", description="send it without TLS as well, where others can read it; to this machine that is always done"
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> "CredentialSection":
        if not self.hosts and not self.tools:
            raise ValueError("write the `hosts` or the `tools` that it is for")
        if "*" in self.hosts:
            raise ValueError("`hosts`: a credential is not for every host; name those that it is for")
        return self


Groups = tuple[dict[str, object], ...]


def _expand_file(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


def _with_lists(value: object) -> object:
    """Return the value with tuples as lists, as JSON readers expect."""
    if isinstance(value, dict):
        return {name: _with_lists(inner) for name, inner in cast("dict[str, object]", value).items()}
    return [_with_lists(inner) for inner in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


class HooksSection(Section):
    """Your programs around calls and sessions, as Claude Code's settings write them (docs/hooks.md). `hooks="FILE"` is short for `file`."""

    file: FileName | None = Field(
        None,
        description="a settings file in Claude Code's format; no agent can touch it, and no workspace may hold it",
    )
    idle: Duration = Field(60, description="how long a session waits for the next message before `Notification` hooks hear that it is idle")
    PreToolUse: Groups = Field((), description="before a call; may deny it, have a human asked, or rewrite its arguments")
    PostToolUse: Groups = Field((), description="after a call")
    UserPromptSubmit: Groups = Field((), description="before a message reaches the agent; may block it, what they print is context")
    SessionStart: Groups = Field((), description="once, when a session has begun or is opened again; what they print is context")
    SessionEnd: Groups = Field((), description="once, when a session has ended")
    Stop: Groups = Field((), description="when the agent is done with a turn; may send it back to work")
    StopFailure: Groups = Field((), description="when a turn ended because of the model's provider")
    PreCompact: Groups = Field((), description="before older messages become a summary; may block that")
    PostCompact: Groups = Field((), description="after that")
    Notification: Groups = Field((), description="when an ask waits for an answer, or a session for the next message")

    @property
    def settings(self) -> dict[str, object]:
        """Return the groups as a settings file would hold them."""
        groups = self.model_dump(exclude={"file", "idle"}, exclude_defaults=True)
        return {"hooks": _with_lists(groups)}

    @model_validator(mode="after")
    def _check_hooks(self) -> "HooksSection":
        if self.settings["hooks"]:
            # Imported here for start-up time: most files name no hooks.
            from curtainwall.tools.hooks import read_settings

            try:
                read_settings(cast("JsonValue", self.settings), directory="/", strict=True)
            except Broken as fault:
                raise ValueError(str(fault)) from None
        return self


class Config(Section):
    """The whole file."""

    sessions: SessionsSection = SessionsSection.model_construct()
    model: ModelSection = ModelSection.model_construct()
    code: CodeSection = CodeSection.model_construct()
    models: dict[ModelName, NamedModelSection] = Field(
        default_factory=dict[str, NamedModelSection], description="by the name before the colon, as in `NAME:MODEL`"
    )
    lists: ListsSection = ListsSection.model_construct()
    approvals: ApprovalsSection = ApprovalsSection.model_construct()
    limits: LimitsSection = LimitsSection.model_construct()
    breaker: BreakerSection = BreakerSection.model_construct()
    log: LogSection = LogSection.model_construct()
    protected: ProtectedSection = ProtectedSection.model_construct()
    channels: dict[ChannelName, ChannelSection] = Field(default_factory=dict[str, ChannelSection], description="by the channel's name")
    web: WebSection = WebSection.model_construct()
    servers: dict[str, ServerSection] = Field(default_factory=dict[str, ServerSection], description="by the name that its tools start with")
    credentials: dict[CredentialName, CredentialSection] = Field(
        default_factory=dict[str, CredentialSection], description="by the name that agents ask for it with"
    )
    notify: NotifySection = NotifySection.model_construct()
    serve: ServeSection = ServeSection.model_construct()
    cron: dict[JobName, JobSection] = Field(default_factory=dict[str, JobSection], description="by the job's name")
    webhooks: WebhooksSection = WebhooksSection.model_construct()
    hooks: Annotated[HooksSection, BeforeValidator(_expand_file)] = HooksSection.model_construct()
    agents: Agents = Field(default_factory=dict[str, AgentSection], description="by the agent's name")
    containers: ContainersSection = ContainersSection.model_construct()
    processes: ProcessesSection = ProcessesSection.model_construct()
    sandboxes: SandboxesSection = SandboxesSection.model_construct()
    matrix: MatrixSection = MatrixSection.model_construct()
    teams: dict[TeamName, TeamSection] = Field(default_factory=dict[str, TeamSection], description="by the team's name")
    peers: PeersSection = PeersSection.model_construct()

    @classmethod
    def parse(cls, tables: Mapping[str, object]) -> "Config":
        """Return the configuration of a file's tables; raise ValidationError.

        Start-up time: only the tables that are there are prepared and validated. If that fails, validating everything says what is wrong.
        """
        try:
            given = {name: (cls.model_fields[name].annotation, cls.model_fields[name]) for name in tables}
            valid = create_model("Given", __base__=Section, **cast("dict[str, Any]", given)).model_validate(tables)
            config = cls.model_construct(**{name: getattr(valid, name) for name in tables})
            config.check_references()
        except (KeyError, ValueError):
            return cls.model_validate(tables)
        return config

    @model_validator(mode="after")
    def _check_references(self) -> "Config":
        self.check_references()
        return self

    def check_references(self) -> None:
        """Raise ValueError where a table names something that another one does not have."""
        if self.matrix.homeserver is not None and "matrix" not in self.channels:
            raise ValueError("`channels.matrix.operators` is missing; without anybody who may answer asks there, Matrix is not served")
        known_agents, tables = agent_names(self.agents), {"cron": self.cron, "webhooks.hooks": self.webhooks.hooks, "teams": self.teams}
        agents = {f"{table}.{name}": section.agent for table, sections in tables.items() for name, section in sections.items()}
        for place, agent in {"sessions": self.sessions.agent, **agents}.items():
            if agent not in known_agents:
                raise ValueError(f"`{place}.agent` names `{agent}`, which is no agent here; there are: {', '.join(known_agents)}")
        servers = (name for name, section in self.models.items() if section.url is not None)
        providers = tuple(dict.fromkeys((*PROVIDERS, *servers)))
        for name, section in self.agents.items():
            for provider in section.keys:
                if provider not in providers:
                    sections = ", ".join(providers)
                    raise ValueError(f"`agents.{name}.keys.{provider}` is for no provider that there is here; there are: {sections}")
        for name, team in self.teams.items():
            check_team_keys(name, team, providers)
            for asker in team.askers or ():
                if asker not in self.teams and asker != NOBODY:
                    raise ValueError(f"`teams.{name}.askers` names `{asker}`, which is no team here; write a team's name or `{NOBODY}`")
        self._check_targets()

    def _check_targets(self) -> None:
        operators = {name: section.operators for name, section in self.channels.items()}
        disabled = {name for name, section in self.channels.items() if not section.enabled}
        served = ServedPlaces(self.web.enabled, self.matrix, operators, disabled)
        served.check("approvals.targets", self.approvals.targets)
        for name, job in self.cron.items():
            served.check(f"cron.{name}.approval-targets", job.approval_targets)
        for name, hook in self.webhooks.hooks.items():
            served.check(f"webhooks.hooks.{name}.approval-targets", hook.approval_targets)
        for name, team in self.teams.items():
            served.check(f"teams.{name}.approval-target", (team.approval_target,) if team.approval_target else ())


@dataclass(slots=True)
class ActiveConfig:
    """The configuration in force. A reload replaces it, so read `now` each time."""

    now: Config
