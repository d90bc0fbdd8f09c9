"""What the caller of the proxy provides: bounds, and the callbacks that judge, meter and decide. None of them ever sees a key."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

from curtainwall.egress.refusals import Dialect
from curtainwall.model import Basis, HostFacts, Usage, record

MIB: Final = 1024 * 1024


@record
class EgressBounds:
    """Limits of one session's proxy; sizes in bytes, times in seconds."""

    connections: int = 64
    head: int = 32 * 1024
    body: int = 32 * MIB
    held: int = 64 * MIB  # request bodies of all connections together
    parts: int = 200_000  # values in one JSON body
    depth: int = 100
    handshake: float = 10.0
    sending: float = 30.0  # for a complete head, and between two pieces of a body
    idle: float = 300.0  # between two requests, and of a tunnel
    silence: float = 120.0  # of a provider
    stalled: float = 120.0  # of a client that does not read
    reading_on: float = 2.0  # for the usage of a reply after its client has left
    accounting: float = 5.0  # for logging the usage of calls, and refusals, when the proxy closes
    refusals: float = 60.0  # window in which equal refused requests are counted together


def always() -> bool:
    """Say that a decision holds forever."""
    return True


@record
class HostDecision:
    """The decision about a host, and the reason, which the agent is shown."""

    allowed: bool
    reason: str = ""
    holds: Callable[[], bool] = always
    """Tells whether a yes still holds; checked before anything more passes. If not, the agent must ask again."""
    is_logged: bool = False
    """Whether the refusal is already in the log."""


Decide = Callable[[HostFacts], Awaitable[HostDecision]]
"""Decides whether to allow a blind tunnel to a host that is not a provider."""


class ProviderActionKind(StrEnum):
    """What a provider would do beyond answering."""

    WEB = "web"  # search or fetch
    CODE = "code"  # run code on the provider's machines
    SERVERS = "servers"  # talk to tool servers on the network
    STORED = "stored"  # use files, prompts or contents kept at the provider
    URL = "url"  # fetch one URL as input
    BACKGROUND = "background"  # go on where nobody sees it
    OTHER = "other"  # a tool of the provider's that we do not know


@record
class ProviderAction:
    """Part of a request that makes the provider act beyond the conversation: its kind, its name, and its place in the body."""

    provider: str
    kind: ProviderActionKind
    what: str
    place: str
    removable: bool


Handling = Literal["allow", "remove", "refuse"]
Judge = Callable[[ProviderAction], Awaitable[Handling]]
"""Decides what happens to an action; one that cannot be removed is refused instead."""


class ModelCall(NamedTuple):
    """One outgoing request to a model; `number` counts the calls of this proxy."""

    number: int
    provider: str
    dialect: Dialect
    model: str
    path: str
    size: int
    removed: tuple[ProviderAction, ...] = ()


class CountedUsage(NamedTuple):
    """The usage of a reply so far. `measured` means that the provider counted all of it; cached tokens are part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    measured: bool = False
    model: str = ""
    stop_reason: str = ""

    def usage(self) -> Usage:
        """Return the same as `Usage`; others compute the cost."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=min(self.cached_tokens, self.input_tokens),
            tokens_basis=Basis.MEASURED if self.measured else Basis.ESTIMATED,
        )


Ending = Literal["done", "refused", "stopped", "broken", "left"]
"""How a call ended: answered, answered with an error, stopped by the meter, cut off by the provider, or left by its client."""


class ModelCallEnd(NamedTuple):
    """How a call ended, the provider's status (0 for none), and the reason if it did not end well."""

    how: Ending
    status: int = 0
    why: str = ""


class Meter(Protocol):
    """Keeps the budget and the log of a session's model calls."""

    async def begins(self, call: ModelCall) -> HostDecision:
        """Decide whether the call may be made; it is made right after."""
        ...

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        """Return why the reply must stop here, or None. Called for every counted event, so it must be quick."""
        ...

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Record what a call used in the end; called exactly once for every call that began."""
        ...


class Unmetered:
    """A meter that allows everything and records nothing."""

    async def begins(self, call: ModelCall) -> HostDecision:  # noqa: ARG002 - the port's signature
        """Let it begin."""
        return HostDecision(allowed=True)

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:  # noqa: ARG002 - the port's signature
        """Let it go on."""
        return None

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Record nothing."""


async def remove_actions(_: ProviderAction) -> Handling:
    """Remove every action; one that cannot be removed is refused."""
    return "remove"


async def no_tunnels(facts: HostFacts) -> HostDecision:
    """Refuse every host that is not a provider."""
    return HostDecision(allowed=False, reason=f"`{facts.host}` is not a host that this session may reach")
