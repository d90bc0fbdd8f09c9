"""Secrets that others show us, or that we show others: read from where the configuration says, with words for what is missing."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from curtainwall.config.plain_files import read_plain
from curtainwall.config.schema import Config
from curtainwall.model import Broken

SHORTEST: Final = 16


def shared_secret(what: str, variable: str | None, file: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the secret in a variable or a file; raise `Broken` with what to do where there is none, or one that could be guessed."""
    if variable is not None:
        where = f"the variable `{variable}`"
        if variable not in environ:
            raise Broken(f"{what} cannot be read: {where} is not set; set it before `curtainwall serve` starts")
        secret = environ[variable].strip()
    else:
        assert file is not None
        where = f"`{file}`"
        try:
            secret = read_plain(Path(file).expanduser()).decode().strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise Broken(f"{what} cannot be read: {fault}") from None
    if not secret:
        raise Broken(f"{what} cannot be read: {where} is empty")
    if len(secret) < SHORTEST:
        raise Broken(f"{what} in {where} has fewer than {SHORTEST} characters; make a longer one")
    return secret


def secret_of_hook(config: Config, name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the secret of a webhook; raise `Broken`."""
    told = config.webhooks.hooks[name]
    return shared_secret(f"the secret of webhook `{name}`", told.secret_env, told.secret_file, environ)


def faults_in_secrets(config: Config, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield what is wrong with the secrets of webhooks, teams, Matrix and notifications, as `serve` would find them in this environment."""
    for name in config.webhooks.hooks:
        try:
            secret_of_hook(config, name, environ)
        except Broken as fault:
            yield str(fault)
    for name, team in config.teams.items():
        if team.token_env is None and team.token_file is None:
            continue
        try:
            shared_secret(f"the token of team `{name}`", team.token_env, team.token_file, environ)
        except Broken as fault:
            yield str(fault)
    for variable in config.matrix.variables:
        if variable not in environ:
            yield f"what signs in to Matrix cannot be read: the variable `{variable}` is not set; set it before `curtainwall serve` starts"
    variable = config.notify.token_env
    if variable is not None and variable not in environ:
        yield f"the token for `notify.url` cannot be read: the variable `{variable}` is not set; set it before `curtainwall serve` starts"
