"""Credentials by name: what each is for, how it is sent, and its value in the one moment in which we send it ourselves."""

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal
from urllib.parse import quote

from curtainwall.host.credential_sources import Source, Unavailable
from curtainwall.model import HostFacts

Way = Literal["bearer", "header", "basic", "query"]

_SHORTEST: Final = 6
_LONGEST: Final = 16_384
_WAYS: Final = ("bearer", "header", "basic", "query")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_FRAMING: Final = frozenset("host content-length transfer-encoding connection te trailer upgrade expect".split())
_THIS_MACHINE = re.compile(r"127(?:\.[0-9]+){3}|::1|localhost|.+\.localhost")


@dataclass(frozen=True, slots=True)
class Sending:
    """How a credential travels: `bearer`, `header:X-Api-Key`, `basic:user` or `query:key`."""

    way: Way = "bearer"
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Sending":
        """Return what a text says; raise ValueError that says what to write."""
        way, colon, name = text.partition(":")
        if way not in _WAYS or (way == "bearer") is bool(colon) or (colon and not name):
            raise ValueError("write `bearer`, `header:NAME`, `basic:USER` or `query:NAME`")
        if way in {"header", "query"} and not _TOKEN.fullmatch(name):
            raise ValueError(f"`{name}` is no name of a {'header' if way == 'header' else 'parameter'}")
        if way == "header" and name.lower() in _FRAMING:
            raise ValueError(f"the header `{name}` is ours to write")
        if way == "basic" and (":" in name or not name.isprintable()):
            raise ValueError(f"`{name}` is no user name")
        return cls(way, name)

    def headers(self, value: str) -> tuple[tuple[str, str], ...]:
        """Return the headers that carry a value."""
        match self.way:
            case "bearer":
                return (("Authorization", f"Bearer {value}"),)
            case "header":
                return ((self.name, value),)
            case "basic":
                return (("Authorization", f"Basic {self._pair(value)}"),)
            case "query":
                return ()

    def query(self, value: str) -> str:
        """Return what a URL's query carries, or nothing."""
        return f"{quote(self.name, safe='')}={quote(value, safe='')}" if self.way == "query" else ""

    def forms(self, value: str) -> tuple[str, ...]:
        """Return everything that gives a value away where it is sent so."""
        return (value, self._pair(value)) if self.way == "basic" else (value,)

    def _pair(self, value: str) -> str:
        return base64.b64encode(f"{self.name}:{value}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Credential:
    """One entry of the configuration. `covers` says whether a host is among those that it is for; without `tools`, any may use it there."""

    name: str
    source: Source
    covers: Callable[[HostFacts], bool]
    sending: Sending = Sending()
    tools: frozenset[str] = frozenset()
    plain_http: bool = False

    def see_that_it_may_go(self, tool: str, facts: HostFacts) -> None:
        """Raise `Unavailable` unless the credential is for this tool at this host, over a connection that nobody else can read."""
        if self.tools and tool not in self.tools:
            raise Unavailable(f"the credential `{self.name}` is not for `{tool}`")
        if not self.covers(facts):
            raise Unavailable(f"the credential `{self.name}` is not for the host `{facts.host}` on port {facts.port}")
        if not (facts.secure or self.plain_http or _THIS_MACHINE.fullmatch(facts.host)):
            raise Unavailable(f"the credential `{self.name}` is only sent over https")


class Secret:
    """A value that shows itself to nobody who does not ask for it by its one method."""

    __slots__ = ("_value", "credential")

    def __init__(self, credential: Credential, value: str) -> None:
        self.credential = credential
        self._value = value

    def __repr__(self) -> str:
        return f"Secret({self.credential.name})"

    def reveal(self) -> str:
        """Return the value, for the one place that sends it."""
        return self._value


class Credentials:
    """The credentials of this house. INVARIANT: whoever masks has learned a value before anyone else gets it."""

    def __init__(self, known: Iterable[Credential] = (), learn: Callable[[str, str], None] = lambda _name, _value: None) -> None:
        self._known = {credential.name: credential for credential in known}
        self._learn = learn

    def names(self) -> tuple[str, ...]:
        """Return what can be asked for."""
        return tuple(sorted(self._known))

    def find(self, name: str) -> Credential:
        """Return the credential of that name; raise `Unavailable` with what was probably meant."""
        found = self._known.get(name)
        if found is None:
            near = get_close_matches(name, self._known, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else "; `[credentials.NAME]` in the configuration makes one"
            raise Unavailable(f"there is no credential `{name}`{meant}")
        return found

    async def resolve(self, name: str) -> Secret:
        """Read the value of a credential, let it be masked from now on, and return it; raise `Unavailable`."""
        credential = self.find(name)
        try:
            value = await credential.source.read()
        except Unavailable as fault:
            raise Unavailable(f"the credential `{name}` cannot be had: {fault}") from None
        for form in credential.sending.forms(value):
            self._learn(name, form)
        _see_that_it_is_sound(name, value, credential.sending)
        return Secret(credential, value)

    async def learn_at_hand(self) -> None:
        """Let every value be masked that can be read without asking anyone; the others follow with their first use."""
        for credential in self._known.values():
            if credential.source.is_at_hand:
                try:
                    await self.resolve(credential.name)
                except Unavailable:
                    continue  # the call that needs it will say so


def _see_that_it_is_sound(name: str, value: str, sending: Sending) -> None:
    if not _SHORTEST <= len(value) <= _LONGEST:
        raise Unavailable(
            f"the credential `{name}` must have between {_SHORTEST} and {_LONGEST} characters; a shorter one cannot be masked"
        )
    plain = value.isprintable() and (value.isascii() or sending.way in {"basic", "query"})
    if not plain:
        raise Unavailable(f"the credential `{name}` holds a line break or another character that cannot be sent as it is configured")
