"""What a caller sets and is asked: bounds, and the callbacks that judge, meter and decide; none of them ever sees a key."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

from curtainwall.egress.refusals import Dialect
from curtainwall.model import Basis, HostFacts, Usage

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EgressBounds:
    """How much one session's proxy takes; sizes in bytes, times in seconds."""

    connections: int = 64
    head: int = 32 * 1024
    body: int = 32 * MIB
    held: int = 64 * MIB  # request bodies of all connections together
    parts: int = 200_000  # values in one JSON body
    depth: int = 100
    handshake: float = 10.0
    sending: float = 30.0  # for a head to be whole, and between two pieces of a body
    idle: float = 300.0  # between two requests, and of a tunnel
    silence: float = 120.0  # of a provider
    stalled: float = 120.0  # of a client that does not read
    reading_on: float = 2.0  # for what a reply used, after its client has left
    accounting: float = 5.0  # for what calls used, and what was refused, to be written down when the proxy closes
    refusals: float = 60.0  # in which refused requests that are alike are counted together


def always() -> bool:
    """Say that what was decided holds as long as anybody wants it."""
    return True


@dataclass(frozen=True, slots=True)
class HostDecision:
    """What was decided about a host, and why; the reason is told to the agent."""

    allowed: bool
    reason: str = ""
    holds: Callable[[], bool] = always
    """Tells whether a yes still holds; asked before anything more passes. Where it does not, it has to be asked for anew."""
    is_logged: bool = False
    """Whether the log says already that it was refused."""


Decide = Callable[[HostFacts], Awaitable[HostDecision]]
"""Says whether a blind tunnel to a host that is no provider may be made."""


class ProviderActionKind(StrEnum):
    """What a provider would do beyond answering."""

    WEB = "web"  # search or fetch
    CODE = "code"  # run code on the provider's machines
    SERVERS = "servers"  # talk to tool servers on the network
    STORED = "stored"  # use files, prompts or contents kept at the provider
    URL = "url"  # fetch one URL as input
    BACKGROUND = "background"  # go on where nobody sees it
    OTHER = "other"  # a tool of the provider's that we do not know


@dataclass(frozen=True, slots=True)
class ProviderAction:
    """One thing in a request that has the provider reach beyond the conversation: what, where in the body, and the words it came in."""

    provider: str
    kind: ProviderActionKind
    what: str
    place: str
    removable: bool


Handling = Literal["allow", "remove", "refuse"]
Judge = Callable[[ProviderAction], Awaitable[Handling]]
"""Says what becomes of a reach; what cannot be removed is refused instead."""


class ModelCall(NamedTuple):
    """One request to a model, as it goes out: `number` counts the calls of this proxy."""

    number: int
    provider: str
    dialect: Dialect
    model: str
    path: str
    size: int
    removed: tuple[ProviderAction, ...] = ()


class CountedUsage(NamedTuple):
    """What a reply has used so far; `measured` says that the provider itself counted the whole of it. `cached` is a part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    measured: bool = False
    model: str = ""
    stop_reason: str = ""

    def usage(self) -> Usage:
        """Return the same in the words of the model; what it costs is for others to say."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=min(self.cached_tokens, self.input_tokens),
            tokens_basis=Basis.MEASURED if self.measured else Basis.ESTIMATED,
        )


Ending = Literal["done", "refused", "stopped", "broken", "left"]
"""How a call ended: answered whole, answered with an error, stopped by the meter, cut by the provider, or its client went away."""


class ModelCallEnd(NamedTuple):
    """How a call ended, with what status the provider answered (0 for none), and why where it did not end well."""

    how: Ending
    status: int = 0
    why: str = ""


class Meter(Protocol):
    """Whoever keeps the budget and the log of a session's model calls."""

    async def begins(self, call: ModelCall) -> HostDecision:
        """Say whether the call may be made; it is made right after."""
        ...

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        """Return why the reply has to stop here, or None; asked at every event that was counted, so it must be quick."""
        ...

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Take down what a call used in the end; told exactly once for every call that began."""
        ...


class Unmetered:
    """A meter that lets everything pass and keeps nothing."""

    async def begins(self, call: ModelCall) -> HostDecision:  # noqa: ARG002 - the port's signature
        """Let it begin."""
        return HostDecision(allowed=True)

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:  # noqa: ARG002 - the port's signature
        """Let it go on."""
        return None

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Keep nothing."""


async def remove_actions(_: ProviderAction) -> Handling:
    """Remove every reach; what cannot be removed is refused."""
    return "remove"


async def no_tunnels(facts: HostFacts) -> HostDecision:
    """Refuse every host that is no provider."""
    return HostDecision(allowed=False, reason=f"`{facts.host}` is not a host that this session may reach")
