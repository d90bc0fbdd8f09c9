"""Resolves a name such as `anthropic:claude-sonnet-5` to a model, or to a message that lists the known names."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtainwall.agents.builtin.language_model import LanguageModel
from curtainwall.agents.builtin.models.settings import DEFAULT_MODELS, KEY_VARIABLES, ModelEndpoint, ModelSettings, context_size_of
from curtainwall.model import NotFound

if TYPE_CHECKING:
    from curtainwall.agents.builtin.models.clients import Upstream
    from curtainwall.host import CredentialSource

AUTO: Final = "auto"
_URLS: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}


def default_model(settings: ModelSettings) -> str:
    """Return the name of the default model: that of the first provider with a key, else `demo`."""
    for provider in KEY_VARIABLES:
        if provider in settings.keys:
            return f"{provider}:{DEFAULT_MODELS[provider]}"
    return "demo"


def find_model(name: str, settings: ModelSettings) -> LanguageModel:
    """Return the model with this name; raise `NotFound` with the known names, or `Broken` for an invalid script."""
    name = default_model(settings) if name in {"", AUTO} else name
    kind, colon, rest = name.partition(":")
    if name == "demo":
        return _demo(settings)
    if kind == "script":
        return _script(rest, settings)
    if kind in settings.endpoints and not (kind in KEY_VARIABLES and colon):
        return _at_endpoint(kind, rest, settings.endpoints[kind], settings)
    if kind in KEY_VARIABLES:
        return _at_provider(kind, rest or DEFAULT_MODELS[kind], settings)
    raise NotFound(_unknown(name, kind, settings))


def fault_in_name(name: str, settings: ModelSettings) -> str:
    """Return what is wrong with a name regardless of keys, or nothing; this loads no model."""
    kind = name.partition(":")[0]
    is_known = name in {"", AUTO, "demo"} or kind == "script" or kind in settings.endpoints or kind in KEY_VARIABLES
    return "" if is_known else _unknown(name, kind, settings)


def _demo(settings: ModelSettings) -> LanguageModel:
    # Imported here because only its users need its many texts.
    from curtainwall.agents.builtin.models.demo import DemoModel

    return DemoModel(settings.context_size)


def _script(file: str, settings: ModelSettings) -> LanguageModel:
    # Imported here for the same reason.
    from curtainwall.agents.builtin.models.script import ScriptModel

    if not file:
        raise NotFound("name the file to play, as `script:FILE`")
    return ScriptModel.read(Path(file).expanduser(), settings.context_size)


def _at_provider(provider: str, model: str, settings: ModelSettings) -> LanguageModel:
    # Imported here because the provider libraries take about two seconds to load, and `demo` and scripts do not need them.
    from curtainwall.agents.builtin.models.clients import Upstream

    key = settings.keys.get(provider)
    hint = f"set {KEY_VARIABLES[provider]} in the environment, or `key` under `[models.{provider}]` in the configuration"
    if key is None:
        raise NotFound(f"`{provider}:{model}` needs a key; {hint}, or use `demo`")
    url = settings.urls.get(provider, _URLS[provider])
    return _provider_model(Upstream("anthropic" if provider == "anthropic" else "openai", provider, model, url), key, hint, settings)


def _at_endpoint(name: str, model: str, endpoint: ModelEndpoint, settings: ModelSettings) -> LanguageModel:
    # Imported here for the same reason.
    from curtainwall.agents.builtin.models.clients import Upstream

    model = model or endpoint.model
    if not model:
        raise NotFound(f"name the model to use at `{name}`, as `{name}:MODEL`, or set `model` under `[models.{name}]` in the configuration")
    hint = f"set its key under `[models.{name}]` in the configuration"
    return _provider_model(Upstream("chat", name, model, endpoint.url), endpoint.key, hint, settings)


def _provider_model(upstream: "Upstream", key: "CredentialSource | None", hint: str, settings: ModelSettings) -> LanguageModel:
    # Imported here for the same reason.
    from curtainwall.agents.builtin.models.provider import ProviderConfig, ProviderModel

    size = settings.context_size or context_size_of(upstream.model, local=upstream.speech == "chat")
    terms = ProviderConfig(key, hint, size, settings.price, settings.silence_seconds)
    return ProviderModel(f"{upstream.provider}:{upstream.model}", upstream, terms, settings.learn)


def _unknown(name: str, kind: str, settings: ModelSettings) -> str:
    places = [*KEY_VARIABLES, *sorted(settings.endpoints)]
    names = ", ".join(["`demo`", "`script:FILE`", *(f"`{place}:MODEL`" for place in places)])
    near = get_close_matches(kind, [*places, "demo", "script"], n=1, cutoff=0.75)
    return f"there is no model `{name}`; there are {names}{f'; did you mean `{near[0]}`?' if near else ''}"
