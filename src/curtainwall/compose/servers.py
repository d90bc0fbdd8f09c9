"""Tool servers made from the configuration: what the file says about them, and where they run on this machine."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.config.schema import Config
from curtainwall.config.servers import ServerSection, ServerToolSection
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.host.home import Home, user_homes
from curtainwall.model import Broken, Case, Meaning
from curtainwall.policy import host_entry
from curtainwall.tools.servers import ServerSpec, ToolRoles, allowed_environment

if TYPE_CHECKING:
    from curtainwall.facts import Masker
    from curtainwall.host import Shares
    from curtainwall.model import Feed
    from curtainwall.policy import Protection
    from curtainwall.tools.servers import ServerNetwork, Servers


def server_specs(config: Config, secret: Iterable[str], environ: Mapping[str, str] = os.environ) -> tuple[ServerSpec, ...]:
    """Return the configured servers; no server may have the variables in `secret`. Raise `Broken`."""
    return tuple(_spec(name, section, frozenset(secret), environ) for name, section in config.servers.items())


def check_server(name: str, env: Iterable[str], network: Iterable[str], secret: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that a server may ask for, normalised; raise `Broken` for hosts and variables that it may not have."""
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
        tools={tool: _roles(tool_section) for tool, tool_section in section.tools.items()},
    )


def _roles(section: ServerToolSection) -> ToolRoles:
    meanings = [
        Meaning(
            argument=name,
            roles=entry.roles,
            cases=tuple(Case(argument=case.argument, equals=case.equals, roles=case.roles) for case in entry.cases),
            default=entry.default,
            within=entry.within,
            follows=entry.follows,
        )
        for name, entry in section.arguments.items()
    ]
    # The directory that a path is relative to must come before the path.
    return ToolRoles(section.effect, tuple(sorted(meanings, key=lambda meaning: meaning.within is not None)))


def server_secrets(specs: Iterable[ServerSpec]) -> dict[str, str]:
    """Return the values of variables that are named like secrets, so that they are masked everywhere."""
    return {name.lower(): value for spec in specs for name, value in spec.environment.items() if value and is_secret_key(name)}


def open_servers(
    home: Home,
    specs: Iterable[ServerSpec],
    masker: "Masker",
    protection: "Protection",
    feed: "Feed | None" = None,
    network: "ServerNetwork | None" = None,
    shares: "Shares | None" = None,
) -> "Servers":
    """Return the servers on this machine, which end with their sessions. Starts none; the caller must close them."""
    # Start-up time: listing tools starts no server.
    from curtainwall.tools.servers import LaunchMachine, Reviews, Servers, SupervisorGrounds

    machine = LaunchMachine(user_homes()[0], (*protection.never, str(home.root)), network=network, shares=shares)
    grounds = SupervisorGrounds(machine, masker, home.root / "logs", home.root / "servers")
    return Servers(specs, Reviews(home.root / "servers"), grounds, feed)


def needed_paths(command: str, args: Iterable[str]) -> tuple[str, ...]:
    """Return the paths outside the system that a command line probably reads: its files, and the projects that they belong to."""
    paths: dict[str, None] = {}
    for word in (os.path.abspath(each) for each in (command, *args) if "/" in each and os.path.exists(each)):
        if word.startswith(("/usr/", "/bin/", "/lib")):
            continue
        above = Path(word).parents
        venv = next((each for each in above if (each / "pyvenv.cfg").is_file()), None)
        modules = next((each for each in reversed(above) if each.name == "node_modules"), None)
        project = next((each for each in above if (each / "package.json").is_file()), None)
        paths[str(venv or modules or project or word)] = None
        if venv is not None:
            paths.update(dict.fromkeys(_base_of(venv)))
    return tuple(paths)


def _base_of(venv: Path) -> tuple[str, ...]:
    """Return where an environment's interpreter is installed, if that is outside the system."""
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            base = os.path.realpath(Path(value.strip()).parent)
            return () if base == "/usr" or base.startswith("/usr/") else (base,)
    return ()
