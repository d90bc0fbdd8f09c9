"""The provider libraries' own models, each on a client that records, retries nothing by itself and asks for no tools of the provider's."""

import importlib
import warnings
from dataclasses import dataclass
from typing import Literal, assert_never

import httpx2
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.settings import ModelSettings as LibrarySettings

from curtainwall.agents.builtin.models.wire import timeouts

Speech = Literal["anthropic", "openai", "chat"]
"""How a provider is spoken to: Anthropic's Messages, OpenAI's Responses, or Chat Completions."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One model at one address."""

    speech: Speech
    provider: str
    model: str
    url: str


def load_library(speech: Speech) -> None:
    """Load what a provider needs, prices included; this takes a second or two, and may be done in a thread."""
    for module in ("genai_prices", "pydantic_ai.models.anthropic" if speech == "anthropic" else "pydantic_ai.models.openai"):
        importlib.import_module(module)


def library_model(upstream: Upstream, key: str, client: httpx2.AsyncClient, silence_seconds: float) -> LibraryModel:
    """Return the library's model for an upstream; only the library that it needs is loaded."""
    _quiet_the_library()
    limit = timeouts(silence_seconds)
    match upstream.speech:
        case "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            claude = AsyncAnthropic(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return AnthropicModel(upstream.model, provider=AnthropicProvider(anthropic_client=claude))
        case "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            gpt = AsyncOpenAI(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return OpenAIResponsesModel(upstream.model, provider=OpenAIProvider(openai_client=gpt))
        case "chat":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            other = AsyncOpenAI(api_key=key, base_url=upstream.url, http_client=client, max_retries=0, timeout=limit)
            return OpenAIChatModel(upstream.model, provider=OpenAICompatibleProvider(upstream.provider, openai_client=other))
        case _:
            assert_never(upstream.speech)


def _quiet_the_library() -> None:
    """Leave out the warnings that are not for the user: we judge counts ourselves, and which model to use is the user's choice."""
    warnings.filterwarnings("ignore", message="Failed to extract usage", category=Warning)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
    warnings.filterwarnings("ignore", message="The model .* is deprecated", category=DeprecationWarning)


def library_settings(upstream: Upstream, *, may_run: bool) -> LibrarySettings:
    """Return the settings of a request: the prompt is cached where that must be asked for, and stored nowhere where that can be."""
    settings = LibrarySettings() if may_run else LibrarySettings(tool_choice="none")
    match upstream.speech:
        case "anthropic":
            settings["cache"] = True
            return settings
        case "openai":
            from pydantic_ai.models.openai import OpenAIResponsesModelSettings

            return OpenAIResponsesModelSettings(**settings, openai_store=False)
        case "chat":
            return settings
        case _:
            assert_never(upstream.speech)
