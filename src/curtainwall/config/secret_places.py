"""Where keys of models and notifications lie: what agents must not touch, children must not inherit, and is masked from the start."""

import os
from collections.abc import Mapping

from curtainwall.config.agents import KeySection
from curtainwall.config.credentials import credential_files, credential_variables
from curtainwall.config.schema import Config
from curtainwall.config.teams import team_files, team_variables
from curtainwall.config.web_people import web_files

PROVIDER_KEYS = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY")


def model_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold keys, which no agent may touch."""
    ours = (config.notify.token_file,) if config.notify.token_file else ()
    own = (key.file for key in _own_keys(config) if key.file)
    return (*(section.file for section in config.models.values() if section.file), *own, *ours)


def model_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold keys, which no child of ours may have."""
    ours = (config.notify.token_env,) if config.notify.token_env else ()
    own = (key.env for key in _own_keys(config) if key.env)
    return (*PROVIDER_KEYS, *(section.env for section in config.models.values() if section.env), *own, *ours)


def model_secrets(config: Config, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys that are at hand without reading anything, for the masker."""
    named = {name: section.key for name, section in config.models.items() if section.key}
    found = {variable.lower(): value for variable in model_variables(config) if (value := environ.get(variable, "").strip())}
    return {**found, **{f"{name}-key": key for name, key in named.items()}}


def _own_keys(config: Config) -> tuple[KeySection, ...]:
    """Return the keys that agents and teams have of their own."""
    return tuple(key for section in (*config.agents.values(), *config.teams.values()) for key in section.keys.values())


def secret_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold secrets."""
    return (
        *credential_files(config),
        *model_files(config),
        *config.webhooks.files,
        *config.matrix.files,
        *web_files(config),
        *team_files(config.teams),
    )


def secret_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold secrets."""
    return (
        *model_variables(config),
        *credential_variables(config),
        *config.webhooks.variables,
        *config.matrix.variables,
        *team_variables(config.teams),
    )
