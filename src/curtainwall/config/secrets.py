"""Secrets: where the configuration says they are, how to read them, and the keys that we generate for ourselves."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from curtainwall.config.agents import KeySection
from curtainwall.config.fields import SecretSection
from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config
from curtainwall.config.teams import team_files, team_variables
from curtainwall.config.web_people import web_files
from curtainwall.host import Credential, CredentialSource, FromCommand, FromEnvironment, FromFile, FromKeyring, Sending
from curtainwall.host.home import user_homes
from curtainwall.model import Broken, HostFacts
from curtainwall.policy import Lists


def credentials_in(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[Credential, ...]:
    """Return the credentials that the configuration names, without reading values; raise `Broken` for an invalid host."""
    return tuple(
        Credential(
            name=name,
            source=source_of(section, environ),
            covers=_covers(name, section.hosts),
            sending=Sending.parse(section.send),
            tools=frozenset(section.tools),
            plain_http=section.plain_http,
        )
        for name, section in config.credentials.items()
    )


def credential_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold credentials, which no agent may touch."""
    return tuple(section.file for section in config.credentials.values() if section.file)


def credential_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold credentials, which no child of ours may have."""
    return tuple(section.env for section in config.credentials.values() if section.env)


def source_of(section: SecretSection, environ: Mapping[str, str]) -> CredentialSource:
    """Return the source of a configured secret, without reading it."""
    if section.env:
        return FromEnvironment(section.env, environ)
    if section.file:
        return FromFile(Path(user_homes(environ)[0] + section.file[1:] if section.file.startswith("~/") else section.file))
    if section.keyring:
        service, _, user = section.keyring.rpartition("/")
        return FromKeyring(service, user)
    return FromCommand(section.command, environ)


def _covers(name: str, hosts: tuple[str, ...]) -> Callable[[HostFacts], bool]:
    """Return a predicate for the named hosts; as in `lists.hosts`, a wildcard never covers a private address."""
    try:
        lists = Lists(hosts=hosts)
    except Broken as fault:
        raise Broken(f"[credentials.{name}]: {str(fault).replace('lists.hosts', 'hosts')}") from None

    def covers(facts: HostFacts) -> bool:
        return bool(lists.of_host(facts.host, facts.port, facts.scope.value))

    return covers


TELEMETRY_KEYS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS")
"""The variables with the headers for collectors, as `api-key=…,other=…`."""

PROVIDER_KEYS = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY")


def model_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold keys, which no agent may touch."""
    ours = (config.notify.token_file,) if config.notify.token_file else ()
    separate = (key.file for key in _separate_keys(config) if key.file)
    return (*(section.file for section in config.models.values() if section.file), *separate, *ours)


def model_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold keys, which no child of ours may have."""
    ours = (config.notify.token_env,) if config.notify.token_env else ()
    separate = (key.env for key in _separate_keys(config) if key.env)
    return (*PROVIDER_KEYS, *TELEMETRY_KEYS, *(section.env for section in config.models.values() if section.env), *separate, *ours)


def model_secrets(config: Config, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys that are in the configuration or the environment, for the masker."""
    configured = {name: section.key for name, section in config.models.items() if section.key}
    from_environment = {variable.lower(): value for variable in model_variables(config) if (value := environ.get(variable, "").strip())}
    return {**_telemetry_secrets(environ), **from_environment, **{f"{name}-key": key for name, key in configured.items()}}


def _telemetry_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the headers for collectors, each for itself."""
    pairs = (pair.partition("=") for variable in TELEMETRY_KEYS for pair in environ.get(variable, "").split(","))
    values = (unquote(value).strip() for _, _, value in pairs)
    return {f"otel-header-{number}": value for number, value in enumerate(values, 1) if len(value) >= _SHORTEST_HEADER}


def _separate_keys(config: Config) -> tuple[KeySection, ...]:
    """Return the keys that belong to single agents and teams."""
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


_SHORTEST_HEADER: Final = 8
SHORTEST: Final = 16


def shared_secret(what: str, variable: str | None, file: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the secret in a variable or a file; raise `Broken`, which says what to do, if it is missing or too short."""
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
    hook = config.webhooks.hooks[name]
    return shared_secret(f"the secret of webhook `{name}`", hook.secret_env, hook.secret_file, environ)


def faults_in_secrets(config: Config, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield what is wrong with the secrets of webhooks, teams, Matrix and notifications, as `serve` would see them in this environment."""
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


_KEY_SIZE = 32


def house_key(path: Path) -> bytes:
    """Return the key in a file, creating it if there is none; two processes that do so at once get the same key."""
    for _ in range(2):
        key = existing_key(path)
        if key is not None:
            return key
        draft = path.with_name(f".{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(_KEY_SIZE))
            os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.close(descriptor)
            draft.unlink()
    raise Broken(f"the key `{path}` cannot be made")


def existing_key(path: Path) -> bytes | None:
    """Return the key in a file, or None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Broken(f"the key `{path}` cannot be read: {error.strerror}") from None
    try:
        key = os.read(descriptor, _KEY_SIZE + 1)
    finally:
        os.close(descriptor)
    if len(key) != _KEY_SIZE:
        raise Broken(f"the key `{path}` is damaged; put it back from a backup, or remove it and let a new one be made")
    return key
