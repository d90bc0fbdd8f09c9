"""Model settings made from the configuration: keys, addresses and prices. No key is read here."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from curtainwall.agents.builtin.models import AUTO, ModelEndpoint, ModelSettings, Price, default_model, keys_in
from curtainwall.config.schema import Config, NamedModelSection
from curtainwall.host import CredentialSource, FromEnvironment, FromFile
from curtainwall.host.home import user_homes
from curtainwall.model import Broken

PROVIDERS = ("anthropic", "openai")
ONLY_FOREIGN = ("gemini",)
"""Providers that only agents in containers use, not our own; a section with one of these names may have just a key."""


def model_settings(config: Config, learn: Callable[[str, str], None], environ: Mapping[str, str] = os.environ) -> ModelSettings:
    """Return the settings for finding models; raise `Broken` for a server without an address."""
    keys = keys_in(environ)
    urls: dict[str, str] = {}
    endpoints: dict[str, ModelEndpoint] = {}
    for name, section in config.models.items():
        key = key_in(section, environ)
        if name in PROVIDERS:
            # A token is for signing in to another program, so we cannot use it.
            keys |= {} if key is None or section.oauth else {name: key}
            urls |= {} if section.url is None else {name: section.url}
        elif section.url is None and name in ONLY_FOREIGN:
            continue
        elif section.url is None:
            raise Broken(
                f"[models.{name}]: `url` is missing; write the base URL of its Chat Completions API, as `http://localhost:11434/v1`"
            )
        else:
            endpoints[name] = ModelEndpoint(section.url, section.model, key)
    defaults = config.model
    price = None if defaults.input_price is None or defaults.output_price is None else Price(defaults.input_price, defaults.output_price)
    return ModelSettings(keys, urls, endpoints, defaults.context_size, price, float(defaults.silence), learn)


def default_model_name(config: Config, learn: Callable[[str, str], None]) -> str:
    """Return the default model for a new session."""
    name = config.model.name
    return default_model(model_settings(config, learn)) if name == AUTO else name


def key_in(section: NamedModelSection, environ: Mapping[str, str]) -> CredentialSource | None:
    """Return the source of a section's key, if it names one."""
    if section.env:
        return FromEnvironment(section.env, environ)
    if section.file:
        return FromFile(Path(user_homes(environ)[0] + section.file[1:] if section.file.startswith("~/") else section.file))
    return FromEnvironment("key", {"key": section.key}) if section.key else None
