"""The tables `[notify]` and `[serve]`: notifications, health and traces of `curtainwall serve`."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from curtainwall.config.fields import Duration, FileName, Section, matches


def _canonical(text: str) -> str:
    # Start-up time: most files name no address.
    from curtainwall.facts import Unclear, canonical_url

    try:
        return canonical_url(text).text
    except Unclear as fault:
        raise ValueError(fault.message) from None


Url = Annotated[str, AfterValidator(_canonical)]
Variable = Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "write the name of a variable, as `NTFY_TOKEN`")]


class NotifySection(Section):
    """Where `serve` says that somebody is waited for. A message names tool and session, never what was asked for, and no secret."""

    url: Url | None = Field(None, description="a topic of ntfy, or what takes the same POST: `https://ntfy.example.org/curtainwall`")
    token_env: Variable | None = Field(None, alias="token-env", description="the variable that holds the token for it")
    token_file: FileName | None = Field(None, alias="token-file", description="the file that holds the token and nothing else")
    command: tuple[str, ...] = Field((), description='a program that is given the message as JSON on stdin: `["notify-me"]`')
    link: Url | None = Field(None, description="where the inbox is for whoever gets the message: `https://cw.example.org/inbox`")
    after: Duration = Field(15, description="an ask that is answered sooner is not told")
    every: Duration = Field(10, description="at most one message in so long; what comes together is told together")

    @model_validator(mode="after")
    def _check_consistency(self) -> "NotifySection":
        if self.token_env and self.token_file:
            raise ValueError("name one place for the token: `token-env` or `token-file`")
        if (self.token_env or self.token_file) and not self.url:
            raise ValueError("a token is for a `url`; write that, too")
        return self


class ServeSection(Section):
    """How `serve` tells how it is, and how it ends."""

    status_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, alias="status-port", description="a port on this machine alone for `/health` and `/metrics`"
    )
    grace: Duration = Field(5, description="calls that run when `serve` is told to stop may take so long to come to their end")
    traces: bool = Field(
        True, description="give spans and metrics to OpenTelemetry if its own variables configure it; read when `serve` starts"
    )
