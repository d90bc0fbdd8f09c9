"""A user's model settings (keys, addresses, sizes, prices), and the context size of each model. Key values are never held here."""

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from curtainwall.host import CredentialSource, FromEnvironment
from curtainwall.model import record

KEY_VARIABLES: Final = MappingProxyType({"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"})
"""The environment variables for each provider's key; the first provider with a key becomes the default."""

DEFAULT_MODELS: Final = MappingProxyType({"anthropic": "claude-sonnet-5", "openai": "gpt-5.5"})
"""The default model of each provider."""

SILENCE_SECONDS: Final = 120.0


@record
class Price:
    """The price of a million tokens in dollars; tokens read from a cache cost `cached`, or as much as others."""

    input: float
    output: float
    cached: float | None = None


@record
class ModelEndpoint:
    """A server that speaks Chat Completions: its base URL, the model meant when none is named, and its key, if it wants one."""

    url: str
    model: str = ""
    key: CredentialSource | None = None


@record
class ModelSettings:
    """Everything needed to find a model. `learn` tells the masker a key before the key is used.

    `keys` and `urls` are by provider (`anthropic`, `openai`), `endpoints` by the name a user gave, the rest holds for every model.
    """

    keys: Mapping[str, CredentialSource] = field(default_factory=dict[str, CredentialSource])
    urls: Mapping[str, str] = field(default_factory=dict[str, str])
    endpoints: Mapping[str, ModelEndpoint] = field(default_factory=dict[str, ModelEndpoint])
    context_size: int | None = None
    price: Price | None = None
    silence_seconds: float = SILENCE_SECONDS
    learn: Callable[[str, str], None] = field(default=lambda _name, _value: None, repr=False)


def keys_in(environ: Mapping[str, str]) -> dict[str, CredentialSource]:
    """Return the keys that the environment holds, by provider."""
    return {
        provider: FromEnvironment(variable, environ) for provider, variable in KEY_VARIABLES.items() if environ.get(variable, "").strip()
    }


DEFAULT_SIZE: Final = 128_000
DEFAULT_LOCAL_SIZE: Final = 32_000

# The longest matching prefix counts.
_SIZES: Final = {
    "claude-": 200_000,
    "claude-fable-": 1_000_000,
    "claude-mythos-": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "gpt-3.5": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4.1": 1_000_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-5.3": 128_000,
    "gpt-5.3-codex": 400_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_000_000,
    "gpt-5.6": 1_050_000,
    "gpt-6": 1_050_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
}


def context_size_of(model: str, *, local: bool = False) -> int:
    """Return a model's context size in tokens; for an unknown model, a size that is rather too small than too big."""
    name = model.rpartition("/")[2].lower()
    prefix = max((start for start in _SIZES if name.startswith(start)), key=len, default=None)
    if prefix is not None:
        return _SIZES[prefix]
    return DEFAULT_LOCAL_SIZE if local else DEFAULT_SIZE
