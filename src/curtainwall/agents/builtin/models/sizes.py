"""How many tokens fit into a model's context, by the beginning of its name."""

from typing import Final

DEFAULT_SIZE: Final = 128_000
DEFAULT_LOCAL_SIZE: Final = 32_000

# The longest beginning counts.
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
    """Return how many tokens fit; for a model that nobody knows, a size that is rather too small than too big."""
    name = model.rpartition("/")[2].lower()
    known = max((start for start in _SIZES if name.startswith(start)), key=len, default=None)
    if known is not None:
        return _SIZES[known]
    return DEFAULT_LOCAL_SIZE if local else DEFAULT_SIZE
