"""Credentials between the configuration and the room that holds them: where each comes from, and which hosts it is for."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from curtainwall.config.schema import Config
from curtainwall.config.secrets import SecretSection
from curtainwall.host import Credential, FromCommand, FromEnvironment, FromFile, FromKeyring, Sending, Source
from curtainwall.host.home import user_homes
from curtainwall.model import Broken, HostFacts
from curtainwall.policy import Lists


def credentials_in(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[Credential, ...]:
    """Return the credentials that the configuration names; no value is read. Raise `Broken` for a host that is none."""
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


def source_of(section: SecretSection, environ: Mapping[str, str]) -> Source:
    """Return where a secret of the configuration comes from; nothing is read."""
    if section.env:
        return FromEnvironment(section.env, environ)
    if section.file:
        return FromFile(Path(user_homes(environ)[0] + section.file[1:] if section.file.startswith("~/") else section.file))
    if section.keyring:
        service, _, user = section.keyring.rpartition("/")
        return FromKeyring(service, user)
    return FromCommand(section.command, environ)


def _covers(name: str, hosts: tuple[str, ...]) -> Callable[[HostFacts], bool]:
    """Return what tells whether a host is among those named; as in `lists.hosts`, a wildcard never covers a private address."""
    try:
        listed = Lists(hosts=hosts)
    except Broken as fault:
        raise Broken(f"[credentials.{name}]: {str(fault).replace('lists.hosts', 'hosts')}") from None

    def covers(facts: HostFacts) -> bool:
        return bool(listed.of_host(facts.host, facts.port, facts.scope.value))

    return covers
