"""The tables `[servers.NAME]`: third-party tool servers, and what the arguments of their tools mean."""

from typing import Annotated, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from curtainwall.config.fields import Duration, Section
from curtainwall.model import Case, Role, ToolEffect, fault_of_cases

Roles = Annotated[tuple[Annotated[Role, Field(strict=False)], ...], Field(min_length=1)]


def _expand_roles(value: object) -> object:
    return {"roles": cast("object", value)} if isinstance(value, tuple) else value


class CaseSection(Section):
    """Other roles, where another argument is exactly one of these values; with no value named, where it is given at all."""

    argument: str = Field(description="the other argument")
    equals: tuple[str | bool | int | float, ...] = Field((), description="its values")
    roles: Roles = Field(description="the roles that then hold")


class ArgumentSection(Section):
    """What one argument of a server's tool means. A list of roles alone is short for this."""

    roles: Roles = Field(description='what it names: `["read-path"]`, `["write-path"]`, `["fetch-url"]`, `["run-command"]` …')
    cases: tuple[CaseSection, ...] = Field(
        (),
        description="exceptions, the first that holds counts: tables with `argument`, `equals` and `roles`; a value may only ask for less",
    )
    default: str | None = Field(None, description="what it is when it is left out")
    within: str | None = Field(None, description="the argument that a relative path starts from, instead of the workspace")
    follows: bool = Field(True, description="whether a link is followed; `false` for what is moved or deleted")

    @model_validator(mode="after")
    def _check_cases(self) -> Self:
        cases = [Case(argument=case.argument, equals=case.equals, roles=case.roles) for case in self.cases]
        if fault := fault_of_cases(self.roles, cases):
            raise ValueError(fault)
        return self


class ServerToolSection(Section):
    """What one tool of a server does; a tool without this table is denied. `curtainwall servers annotate NAME` proposes it."""

    effect: Annotated[ToolEffect, Field(strict=False)] = Field(description="what it does at most: `inspect`, `modify`, `execute`, `send`")
    arguments: dict[str, Annotated[ArgumentSection, BeforeValidator(_expand_roles)]] = Field(
        default_factory=dict[str, ArgumentSection], description="by argument, what it means; one that is not named means nothing outside"
    )


class ServerSection(Section):
    """A tool server of somebody else's, in a sandbox without a network of its own. `{workspace}` stands for the session's workspace."""

    command: str = Field(min_length=1, description="the program: a name on the path, or a path")
    args: tuple[str, ...] = Field((), description='its arguments: `["server.js", "{workspace}"]`')
    env: tuple[str, ...] = Field((), description='all that it gets of our environment: `["LANG", "REGION=eu"]`; never our keys')
    read: tuple[str, ...] = Field((), description='what it may read besides the system: `["~/lib/server"]`')
    write: tuple[str, ...] = Field((), description='what it may write: `["{workspace}"]`')
    network: tuple[str, ...] = Field(
        (), description='hosts that it may ask for, as in `lists.hosts`: `["api.github.com"]`; each connection is judged by the rules'
    )
    trusted: bool = Field(False, description="run it outside the sandbox, with network and all files of yours; `doctor` shows it")
    shared: bool = Field(False, description="one process for all sessions instead of one each")
    timeout: Duration = Field(60, description='how long a call may take, as `"60s"`')
    tools: dict[str, ServerToolSection] = Field(default_factory=dict[str, ServerToolSection], description="by the tool's name")
