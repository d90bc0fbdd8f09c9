"""The table `[web]`: where the pages are served and to whom, and what is required before another machine may reach them."""

import ipaddress
from typing import Annotated

from pydantic import Field, model_validator

from curtainwall.config.fields import Duration, FileName, Section, matches

Person = Annotated[
    str, matches(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", "a name here is made of letters, digits, `_`, `.`, `@` and `-`, 64 at most")
]
"""A person on the web, as the log names them."""

_MONTH = 30 * 86_400


class WebSection(Section):
    """The pages in a browser, which `serve` offers (docs/web.md). Only this machine reaches them unless you say otherwise."""

    enabled: bool = Field(True, description="whether `serve` offers the pages at all")
    host: str = Field(
        "127.0.0.1", min_length=1, description="the address to listen at; another than this machine's own needs TLS or `allow-remote`"
    )
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(7878, description="the port; agents never reach it")
    operators: tuple[Person, ...] | None = Field(
        None, min_length=1, description="who may answer asks and change sessions there; left out, you, by the name of your account"
    )
    users: tuple[Person, ...] = Field((), description="who may sign in, look and talk, and nothing else")
    tokens: dict[Person, FileName] = Field(
        default_factory=dict[str, str],
        description="for each person the file that holds a token of theirs, which signs in as often as they like; 32 characters or more",
    )
    hosts: tuple[str, ...] = Field((), description='other names under which browsers find it: `"box.example.org"`')
    url: Annotated[str, matches(r"https?://[^/\s]+", "write `http://` or `https://` and a host, and no path")] | None = Field(
        None, description="how it is reached from outside, for links: `https://box.example.org`"
    )
    certificate: FileName | None = Field(None, description="the certificate, and those between it and its authority, as PEM")
    key: FileName | None = Field(None, description="the certificate's key; no agent can touch that file")
    allow_remote: bool = Field(
        False, alias="allow-remote", description="listen at another address without TLS, because something before us encrypts"
    )
    signed_in: Duration = Field(_MONTH, alias="signed-in", description='how long a sign-in lasts, as `"30d"`')

    @model_validator(mode="after")
    def _check_consistency(self) -> "WebSection":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` belong together; write both")
        if not is_this_machine(self.host) and self.certificate is None and not self.allow_remote:
            raise ValueError(
                "`host`: other machines would reach the pages without encryption; write `certificate` and `key`, or `allow-remote = true`"
            )
        strangers = sorted(set(self.tokens) - {*self.users, *(self.operators or self.tokens)})
        if strangers:
            raise ValueError(f"`tokens`: `{strangers[0]}` is neither among `operators` nor `users`")
        return self

    @property
    def address(self) -> str:
        """Return the beginning of links to the pages."""
        # We listen on one address; for `localhost` a browser may first try another address, where someone else may listen.
        host = "127.0.0.1" if self.host == "localhost" else f"[{self.host}]" if ":" in self.host else self.host
        return self.url or f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def is_this_machine(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
