"""What a user may set about models: keys, addresses, sizes, prices, patience. No value of a key is ever held here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from curtainwall.host import FromEnvironment, Source

KEY_VARIABLES: Final = MappingProxyType({"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"})
"""Where the key of each provider is looked for, in the order in which one becomes the default."""

DEFAULT_MODELS: Final = MappingProxyType({"anthropic": "claude-sonnet-5", "openai": "gpt-5.5"})
"""The model of each provider where none is named."""

SILENCE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost, in dollars; read from a cache they cost `cached`, or as much as others."""

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that speaks Chat Completions: its base URL, the model meant when none is named, and its key, if it wants one."""

    url: str
    model: str = ""
    key: Source | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Everything that finding a model needs. Whoever masks learns a key, by `learn`, before it is used.

    `keys` and `urls` are by provider (`anthropic`, `openai`), `endpoints` by the name a user gave, the rest holds for every model.
    """

    keys: Mapping[str, Source] = field(default_factory=dict[str, Source])
    urls: Mapping[str, str] = field(default_factory=dict[str, str])
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    context_size: int | None = None
    price: Price | None = None
    silence_seconds: float = SILENCE_SECONDS
    learn: Callable[[str, str], None] = field(default=lambda _name, _value: None, repr=False)


def keys_in(environ: Mapping[str, str]) -> dict[str, Source]:
    """Return the keys that the environment holds, by provider."""
    return {
        provider: FromEnvironment(variable, environ) for provider, variable in KEY_VARIABLES.items() if environ.get(variable, "").strip()
    }
