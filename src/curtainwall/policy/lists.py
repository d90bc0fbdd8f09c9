"""The config's lists: which hosts, remotes and teams the user named, by exact name or by wildcard."""

from collections.abc import Iterable
from dataclasses import field
from ipaddress import AddressValueError, IPv6Address

from curtainwall.model import FORGES, Broken, record
from curtainwall.policy.canonical import host_parents, is_address, is_host, is_sound, remote_host, split_remote

_HIGHEST_PORT = 65_535


@record
class Lists:
    """The config's `lists` in canonical form. A wildcard covers only public names; addresses and private hosts must be listed exactly.

    Hosts: `docs.python.org`, `localhost:8080` (only that port), `*.github.com` (every subdomain), `*`. Remotes: `host/owner/repo`,
    `host/owner/*`, `host/*`, `*`. Teams: a name, or `*`.
    """

    hosts: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()
    push_remotes: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    _sets: dict[str, frozenset[str]] = field(init=False, repr=False, compare=False, hash=False, default_factory=dict[str, frozenset[str]])

    def __post_init__(self) -> None:
        for name, canonical in (("hosts", host_entry), ("remotes", _remote_entry), ("push_remotes", _remote_entry), ("teams", _team_entry)):
            raw_entries: Iterable[str] = getattr(self, name)
            entries = tuple(dict.fromkeys(canonical(f"lists.{name.replace('_', '-')}", entry) for entry in raw_entries))
            object.__setattr__(self, name, entries)
            self._sets[name.replace("_", "-")] = frozenset(entries)

    def of_host(self, host: str, port: int, scope: str) -> tuple[str, ...]:
        """Return the lists that a host is on."""
        return ("hosts",) if covers_host(self._sets["hosts"], host, port, scope) else ()

    def of_remote(self, remote: str, scope: str) -> tuple[str, ...]:
        """Return the lists that a remote is on."""
        return tuple(name for name in ("remotes", "push-remotes") if _covers_remote(self._sets[name], remote, scope))

    def of_team(self, team: str) -> tuple[str, ...]:
        """Return the lists that a team is on."""
        entries = self._sets["teams"]
        return ("teams",) if team in entries or "*" in entries else ()


def covers_host(entries: frozenset[str], host: str, port: int, scope: str) -> bool:
    """Tell whether entries, in the form that `host_entry` returns, cover a host."""
    if host in entries or _with_port(host, port) in entries:
        return True
    if scope != "public" or is_address(host):
        return False
    return "*" in entries or any(f"*.{parent}" in entries for parent in host_parents(host))


def _covers_remote(entries: frozenset[str], remote: str, scope: str) -> bool:
    if remote in entries:
        return True
    if scope != "public":
        return False
    parts = remote.split("/")
    return "*" in entries or any(f"{'/'.join(parts[:end])}/*" in entries for end in range(1, len(parts)))


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_entry(name: str, entry: str) -> str:
    """Return an entry of a list of hosts in canonical form; raise `Broken`, which names the list."""
    if entry == "*":
        return entry
    plain = entry.lower().removesuffix(".")
    if plain.startswith("*."):
        rest = plain.removeprefix("*.")
        if is_host(rest) and not is_address(rest):
            return plain
        raise Broken(f"`{name}`: `{entry}` is no wildcard that we know; write `*.example.com` or `*`")
    bare = _address(plain)
    if is_host(bare):
        return bare
    host, _, port = plain.rpartition(":")
    if remote_host(plain) and port.isdigit() and int(port) <= _HIGHEST_PORT:
        return f"{host}:{port}"
    raise Broken(
        f"`{name}`: `{entry}` is no host; write a lower-case ASCII name or an address, alone or with a port, without scheme and path"
    )


def _address(text: str) -> str:
    """Return an IPv6 address in canonical form, without brackets; anything else unchanged."""
    try:
        return str(IPv6Address(text.removeprefix("[").removesuffix("]")))
    except AddressValueError:
        return text


def _remote_entry(name: str, entry: str) -> str:
    if entry == "*":
        return entry
    host, _, rest = entry.partition("/")
    canonical = f"{host.lower()}/{rest.removesuffix('/').removesuffix('.git')}"
    canonical = canonical.lower() if remote_host(host.lower()) in FORGES else canonical
    body = canonical.removesuffix("/*")
    if "*" not in body and (split_remote(body) or (body != canonical and remote_host(body))):
        return canonical
    raise Broken(f"`{name}`: `{entry}` is no remote; write `host/owner/repo`, `host/owner/*`, `host/*` or `*`, without scheme and user")


def _team_entry(name: str, entry: str) -> str:
    if entry == "*" or (entry and entry == entry.strip() and is_sound(entry) and "*" not in entry):
        return entry
    raise Broken(f"`{name}`: `{entry}` is no team; write its name, or `*`")
