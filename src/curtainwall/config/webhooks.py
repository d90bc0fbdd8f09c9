"""The table `[webhooks]`: deliveries from other systems that start sessions."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from curtainwall.config.cron import BudgetSection, PlaceText
from curtainwall.config.fields import Count, DirectoryName, Duration, FileName, Section, matches
from curtainwall.model import Mode

HookName = Annotated[
    str,
    matches(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
        "a webhook's name is made of letters, digits, `_`, `.` and `-`, 64 at most, and begins with a letter or digit",
    ),
]
"""A valid name of a webhook; it is part of its address."""

_Variable = Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "write the name of a variable, as `HOOK_SECRET`")]
_Header = Annotated[str, matches(r"[A-Za-z0-9-]{1,64}", "write the name of a header, as `X-Hub-Signature-256`")]
_DEFAULT_PROOF = {"hmac": ("X-Hub-Signature-256", "sha256="), "token": ("Authorization", "Bearer ")}


def _is_template(prompt: str) -> bool:
    # Imported here for start-up time: most configurations have no webhooks.
    from curtainwall.facts.deliveries import is_template

    return is_template(prompt)


class HookSection(Section):
    """A webhook: who may deliver, what the agent is told, and where the answer goes. What is delivered is data, never a word of yours."""

    enabled: bool = Field(True, description="whether it takes deliveries; sessions that have begun go on")
    scheme: Literal["hmac", "token"] = Field(
        "hmac", description="how a sender proves itself: a signature of the body, or the secret itself"
    )
    secret_env: _Variable | None = Field(None, alias="secret-env", description="the variable that holds the secret")
    secret_file: FileName | None = Field(None, alias="secret-file", description="the file that holds the secret and nothing else")
    header: _Header | None = Field(
        None, description="the header with the proof; left out, `X-Hub-Signature-256` for a signature, `Authorization` for a token"
    )
    prefix: str | None = Field(None, description="what stands before the proof; left out, `sha256=` or `Bearer `")
    time_header: _Header | None = Field(
        None,
        alias="time-header",
        description="the header with the time in seconds, where `TIME.BODY` is signed; old deliveries are refused then",
    )
    key_header: _Header | None = Field(
        None, alias="key-header", description="for tokens: the header that names a delivery; left out, the same body is the same delivery"
    )
    tolerance: Duration = Field(300, description="how old a signed time may be")
    prompt: str = Field(
        min_length=1,
        description="what the agent is told; `{{ field.name }}` stands for a part of the payload, quoted, "
        'and `{{ field.name or "text" }}` for that text where it is missing or null',
    )
    body: Literal["json", "text"] = Field("json", description="what a delivery is, whatever type it says it has: JSON, or text as it is")
    size: Count = Field(262_144, description="bytes of a body at most")
    per_minute: Count = Field(60, alias="per-minute", description="deliveries in a minute at most")
    callback: Annotated[str, matches(r"https?://\S+", "write a URL that starts with `http://` or `https://`")] | None = Field(
        None, description="where the outcome is sent, judged like any request of the session's; left out, nowhere: whoever wants it polls"
    )
    agent: str = Field("builtin", min_length=1, description="which agent works")
    model: str | None = Field(None, min_length=1, description="which model it uses; left out, as `[model]` says")
    workspace: DirectoryName | None = Field(None, description="the project to work in; left out, each delivery has a directory of its own")
    mode: Annotated[Mode, Field(strict=False)] = Field(
        Mode.DEFAULT, description="`ask` (`default`), `review`, `plan`, `accept-edits`, `bypass`"
    )
    policy: FileName | None = Field(
        None, description="a rule file for this webhook alone, which forbids something besides those of the house"
    )
    budget: BudgetSection = BudgetSection.model_construct()
    approval_targets: tuple[PlaceText, ...] = Field(
        (), alias="approval-targets", description="where its asks are shown: `web`, `matrix:!room:server`, `matrix:@person:server`"
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> "HookSection":
        if (self.secret_env is None) == (self.secret_file is None):
            raise ValueError("write exactly one of `secret-env` and `secret-file`")
        if self.scheme == "token" and self.time_header:
            raise ValueError("`time-header` is for signatures; a token signs nothing")
        if self.scheme == "hmac" and self.key_header:
            raise ValueError("`key-header` is for tokens; of a signed delivery, what is signed tells it from others")
        if self.body == "text" and "{{" in self.prompt:
            raise ValueError("`{{ … }}` stands for a part of JSON; text has none, so take it out of `prompt`")
        if "{{" in self.prompt and not _is_template(self.prompt):
            raise ValueError(
                '`{{` in `prompt` begins a field: write `{{ field.name }}`, or `{{ field.name or "text" }}` where it may be missing'
            )
        return self

    @property
    def proof_header(self) -> str:
        """Return the header with the proof."""
        return self.header or _DEFAULT_PROOF[self.scheme][0]

    @property
    def proof_prefix(self) -> str:
        """Return what precedes the proof in its header."""
        return _DEFAULT_PROOF[self.scheme][1] if self.prefix is None else self.prefix

    @property
    def folder(self) -> Path | None:
        """Return the project's directory."""
        return None if self.workspace is None else Path(self.workspace).expanduser()


def _split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class WebhooksSection(Section):
    """Where deliveries are taken, and what becomes of them (docs/webhooks.md)."""

    listen: Annotated[
        str, matches(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", "write an address and a port, as `127.0.0.1:8724`")
    ] = Field("127.0.0.1:8724", description="where to listen; put a server with TLS before it to be reached from elsewhere")
    hooks: dict[HookName, HookSection] = Field(default_factory=dict[str, HookSection], description="by the webhook's name")

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and the port to listen on."""
        return _split_address(self.listen)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that hold secrets, which no agent may touch."""
        return tuple(hook.secret_file for hook in self.hooks.values() if hook.secret_file)

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that hold secrets, which no child of ours may have."""
        return tuple(hook.secret_env for hook in self.hooks.values() if hook.secret_env)
