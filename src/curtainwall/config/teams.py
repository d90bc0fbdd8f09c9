"""The tables `[teams.NAME]` and `[peers]`: the teams, and how they talk."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from curtainwall.config.agents import BUILTIN, LOCAL, SIGNS_IN, Keys, KeySection, check_tokens
from curtainwall.config.fields import Count, DirectoryName, Duration, FileName, Section, matches
from curtainwall.model import NOBODY, Mode
from curtainwall.model.people import parse_place

COLOUR: Final = r"#[0-9A-Fa-f]{6}"
"""The pattern of a colour."""


def _check_not_nobody(name: str) -> str:
    if name == NOBODY:
        raise ValueError("this name stands for whoever asks without a team; choose another")
    return name


_TEAM = matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a team's name is made of letters, digits, `_`, `.` and `-`, 64 at most")

TeamName = Annotated[str, _TEAM, AfterValidator(_check_not_nobody)]
"""A valid name of a team."""


def _check_place(text: str) -> str:
    parse_place(text)
    return text


PlaceName = Annotated[str, AfterValidator(_check_place)]
"""A place where asks are shown: a channel, and a place on it."""


class TeamSection(Section):
    """A team: an agent in a project, which other agents and people can ask. Each asker has a conversation of its own with it."""

    project: DirectoryName = Field(
        description="the directory that it works in, from `/` or `~/` on; it must be there when the team is asked"
    )
    description: str = Field("", description="what the team knows or does; askers read it")
    agent: str = Field("builtin", min_length=1, description="which agent serves it")
    model: str | None = Field(None, min_length=1, description="its model; left out, that of new sessions")
    mode: Annotated[Mode, Field(strict=False)] = Field(
        Mode.DEFAULT, description="`ask` (`default`), `review`, `plan`, `accept-edits` or `bypass`"
    )
    policy: FileName | None = Field(None, description="a rule file for this team alone, which forbids something besides those of the house")
    colour: Annotated[str, matches(COLOUR, "write a colour as `#E91E63`")] | None = Field(
        None, description="its colour where teams are shown or listed, as `#E91E63`"
    )
    askers: tuple[str, ...] | None = Field(
        None, description='the teams that may ask it, `"nobody"` for those without one; left out, everybody whom the rules let'
    )
    approval_target: PlaceName | None = Field(
        None,
        alias="approval-target",
        description='where its asks are shown: `"web"`, `"matrix:!room:server"`, `"matrix:@person:server"`; left out, nowhere',
    )
    token_env: Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "write the name of a variable, as `BACKEND_TOKEN`")] | None = Field(
        None, alias="token-env", description="the variable with the token by which the team is known over HTTP; left out, it is not"
    )
    token_file: FileName | None = Field(None, alias="token-file", description="the file that holds the token and nothing else, instead")
    tokens: Count | None = Field(
        None, description="tokens that one asker may use in all its conversations; left out, the asker's own limit"
    )
    dollars: Annotated[float, Field(gt=0)] | None = Field(None, description="the same in USD")
    keys: Keys = Field(default_factory=dict[str, KeySection], description="by the provider's name")

    @model_validator(mode="after")
    def _check_consistency(self) -> "TeamSection":
        check_tokens(self.keys)
        return self


class PeersSection(Section):
    """How teams talk."""

    wait: Duration = Field(30, description="how long an ask waits for its answer; later the answer can be fetched")
    notice_days: Annotated[float, Field(gt=0)] = Field(30.0, alias="notice-days", description="how long a notice may wait")
    listen: Annotated[
        str, matches(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", "write an address and a port, as `127.0.0.1:8725`")
    ] = Field("127.0.0.1:8725", description="where `serve` offers the tools of teams over HTTP, if a team has a token")
    project_roots: tuple[DirectoryName, ...] | None = Field(
        None, alias="project-roots", description="the directories in which the projects of teams must lie; left out, anywhere"
    )
    depth: Count = Field(4, description="through how many teams a question may go")
    threads: Count = Field(50, description="how many conversations one asker may have in use with one team at a time")
    compact_after: Count = Field(1_000, alias="compact-after", description="messages after which a conversation becomes a summary")
    warm: int = Field(
        0,
        ge=0,
        description="for how many of the most used conversations with `claude-local` a process starts when the teams are first worked for",
    )
    archive_after: Duration = Field(90 * 86_400, alias="archive-after", description="unused for so long, a conversation counts as archived")

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and the port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def check_team_keys(name: str, team: TeamSection, providers: Sequence[str]) -> None:
    """Raise if a team has a key that its agent would not use, or for an unknown provider."""
    if team.keys and team.agent == BUILTIN:
        raise ValueError(f"`teams.{name}.keys` is for the agents of others; `{BUILTIN}` uses the keys of `[models.PROVIDER]`")
    for provider in team.keys:
        if team.agent == LOCAL and provider != SIGNS_IN:
            raise ValueError(f"`teams.{name}.keys.{provider}`: `{LOCAL}` talks to `{SIGNS_IN}` alone")
        if provider not in providers:
            raise ValueError(f"`teams.{name}.keys.{provider}` is for no provider that there is here; there are: {', '.join(providers)}")


def team_files(teams: Mapping[str, TeamSection]) -> tuple[str, ...]:
    """Return the files that hold tokens, which no agent may touch."""
    return tuple(team.token_file for team in teams.values() if team.token_file)


def team_variables(teams: Mapping[str, TeamSection]) -> tuple[str, ...]:
    """Return the variables that hold tokens, which no child of ours may have."""
    return tuple(team.token_env for team in teams.values() if team.token_env)
