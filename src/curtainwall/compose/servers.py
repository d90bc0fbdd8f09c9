"""Servers between the configuration and the room of tools: what the file says of them, and where on this machine they run."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.config.schema import Config
from curtainwall.config.servers import ServerSection, ServerToolSection
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.host.home import Home, user_homes
from curtainwall.model import Broken, Case, Feed, Meaning
from curtainwall.policy import host_entry
from curtainwall.tools.servers import ServerSpec, ToolRoles, allowed_environment

if TYPE_CHECKING:
    from curtainwall.facts import Masker
    from curtainwall.host import Shares
    from curtainwall.policy import Protection
    from curtainwall.tools.servers import ServerNetwork, Servers


def server_specs(config: Config, secret: Iterable[str], environ: Mapping[str, str] = os.environ) -> tuple[ServerSpec, ...]:
    """Return the servers that the configuration names; `secret` are the variables that no server may have. Raise `Broken`."""
    return tuple(_spec(name, section, frozenset(secret), environ) for name, section in config.servers.items())


def check_server(name: str, env: Iterable[str], network: Iterable[str], secret: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that a server may ask for, as they are spelt; raise `Broken` for hosts and variables that it could not be given."""
    try:
        allowed_environment(env, {}, frozenset(secret))
        return tuple(host_entry("network", entry) for entry in network)
    except Broken as fault:
        raise Broken(f"[servers.{name}]: {fault}") from None


def _spec(name: str, section: ServerSection, secret: frozenset[str], environ: Mapping[str, str]) -> ServerSpec:
    try:
        environment = allowed_environment(section.env, environ, secret)
        network = tuple(host_entry("network", entry) for entry in section.network)
    except Broken as fault:
        raise Broken(f"[servers.{name}]: {fault}") from None
    return ServerSpec(
        name=name,
        command=section.command,
        args=section.args,
        environment=environment,
        read=section.read,
        write=section.write,
        network=network,
        trusted=section.trusted,
        shared=section.shared,
        timeout=section.timeout,
        tools={tool: _roles(told) for tool, told in section.tools.items()},
    )


def _roles(section: ServerToolSection) -> ToolRoles:
    made = [
        Meaning(
            argument=name,
            roles=told.roles,
            cases=tuple(Case(argument=case.argument, equals=case.equals, roles=case.roles) for case in told.cases),
            default=told.default,
            within=told.within,
            follows=told.follows,
        )
        for name, told in section.arguments.items()
    ]
    # Where a path starts from must be known before the path itself.
    return ToolRoles(section.effect, tuple(sorted(made, key=lambda meaning: meaning.within is not None)))


def server_secrets(specs: Iterable[ServerSpec]) -> dict[str, str]:
    """Return the values that servers are given under names of secrets, so that they are masked wherever they turn up."""
    return {name.lower(): value for spec in specs for name, value in spec.environment.items() if value and is_secret_key(name)}


def open_servers(
    home: Home,
    specs: Iterable[ServerSpec],
    masker: "Masker",
    protection: "Protection",
    feed: Feed | None = None,
    ways: "ServerNetwork | None" = None,
    shares: "Shares | None" = None,
) -> "Servers":
    """Return the servers on this machine, which end with their sessions; none is started, and whoever asked must close them."""
    # Start-up time: whoever lists tools starts no server.
    from curtainwall.tools.servers import LaunchMachine, Reviews, Servers, SupervisorGrounds

    machine = LaunchMachine(user_homes()[0], (*protection.never, str(home.root)), ways=ways, shares=shares)
    grounds = SupervisorGrounds(machine, masker, home.root / "logs", home.root / "servers")
    return Servers(specs, Reviews(home.root / "servers"), grounds, feed)


def needed_paths(command: str, args: Iterable[str]) -> tuple[str, ...]:
    """Return the paths outside the system that a command line probably needs to read: its files, and what these belong to."""
    found: dict[str, None] = {}
    for word in (os.path.abspath(one) for one in (command, *args) if "/" in one and os.path.exists(one)):
        if word.startswith(("/usr/", "/bin/", "/lib")):
            continue
        above = Path(word).parents
        venv = next((one for one in above if (one / "pyvenv.cfg").is_file()), None)
        modules = next((one for one in reversed(above) if one.name == "node_modules"), None)
        project = next((one for one in above if (one / "package.json").is_file()), None)
        found[str(venv or modules or project or word)] = None
        if venv is not None:
            found.update(dict.fromkeys(_base_of(venv)))
    return tuple(found)


def _base_of(venv: Path) -> tuple[str, ...]:
    """Return where the interpreter of an environment really lives, if that is outside the system."""
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            base = os.path.realpath(Path(value.strip()).parent)
            return () if base == "/usr" or base.startswith("/usr/") else (base,)
    return ()
