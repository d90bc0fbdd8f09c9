"""The canonical spelling of each kind of entity; a rule or list that spells one differently would never match."""

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

from curtainwall.model import FORGES

LISTS = ("hosts", "remotes", "push-remotes", "teams")

_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SERVER = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TOOL = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_MAX_HOST_LENGTH = 253

# An IPv6 address in one of these carries an IPv4 address, and facts use that one.
_CARRIERS = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "2002::/16"))
_NOT_CARRIERS = (IPv6Address("::"), IPv6Address("::1"))
_UNROUTED = (
    *(IPv4Network(text) for text in ("0.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "224.0.0.0/3")),
    *(IPv6Network(text) for text in ("fe80::/10", "ff00::/8", "fd00:ec2::/32")),
)


def is_sound(text: str) -> bool:
    """Tell whether a text is valid Unicode, without lone surrogates and NUL."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def is_path(text: str) -> bool:
    """Tell whether a text is a canonical absolute path."""
    if text == "/":
        return True
    parts = text.split("/")
    return parts[0] == "" and len(parts) > 1 and is_sound(text) and not any(part in ("", ".", "..") for part in parts[1:])


def is_address(host: str) -> bool:
    """Tell whether a canonical host is an address; a name never ends in a number."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def is_host(text: str) -> bool:
    """Tell whether a text is a canonical host name or address."""
    if ":" in text:
        return _is_ipv6(text)
    if is_address(text):
        return _is_ipv4(text)
    return len(text) <= _MAX_HOST_LENGTH and all(_LABEL.fullmatch(label) for label in text.split("."))


def host_parents(host: str) -> tuple[str, ...]:
    """Return every parent domain of a canonical host, the nearest first; an address has none."""
    if is_address(host):
        return ()
    labels = host.split(".")
    return tuple(".".join(labels[start:]) for start in range(1, len(labels)))


def guessed_scope(host: str) -> str:
    """Return the scope of a host without facts: addresses and local names never count as public."""
    if is_address(host):
        address = IPv6Address(host) if ":" in host else IPv4Address(host)
        return "forbidden" if any(address in network for network in _UNROUTED if network.version == address.version) else "private"
    if host.partition(".")[0] in ("metadata", "instance-data"):
        return "forbidden"
    private = "." not in host or host.endswith(
        (".local", ".localhost", ".internal", ".lan", ".home.arpa", ".intranet", ".corp", ".private")
    )
    return "private" if private else "public"


def split_remote(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return host and path parts of a canonical remote such as `host/owner/repo`, or None; the host may carry a port."""
    authority, *parts = text.split("/")
    host = remote_host(authority)
    if not host or not parts or not is_sound(text) or any(part in ("", ".", "..") or part != part.strip() for part in parts):
        return None
    return host, tuple(parts)


def remote_host(place: str) -> str | None:
    """Return the host of `host`, `host:port`, `[ipv6]` or `[ipv6]:port`, or None if that is not canonical."""
    match = re.fullmatch(r"(?:\[([0-9a-f:]+)\]|([^:\[\]]+))(?::([1-9][0-9]{0,4}))?", place)
    if match is None:
        return None
    host = match[1] or match[2]
    return host if is_host(host) else None


def _is_ipv4(text: str) -> bool:
    try:
        return str(IPv4Address(text)) == text
    except AddressValueError:
        return False


def _is_ipv6(text: str) -> bool:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return False
    carried = address not in _NOT_CARRIERS and any(address in network for network in _CARRIERS)
    return str(address) == text and not carried and "%" not in text


def _path_fault(text: str) -> str | None:
    return None if is_path(text) else "write the whole path from `/` on, without `~`, `.`, `..` and without a slash at the end"


def _host_fault(text: str) -> str | None:
    if is_host(text):
        return None
    if "*" in text:
        domain = text.removeprefix("*.")
        return (
            f'a host covers its subdomains: write `resource in Host::"{domain}"`'
            if is_host(domain)
            else "a rule has no wildcards; use `in`"
        )
    plain = text.lower().rstrip(".")
    if plain != text and is_host(plain):
        return f"write `{plain}`"
    return "write a lower-case ASCII name or an address in its usual form, without scheme, port, brackets or a dot at the end"


def _remote_fault(text: str) -> str | None:
    split = split_remote(text)
    if split is not None and not text.endswith(".git"):
        return f"write `{text.lower()}`" if split[0] in FORGES and text != text.lower() else None
    if is_host(text):
        return f'write `resource in Host::"{text}"` for every remote of a host'
    return "write `host/owner/repo` or `host/owner`, without scheme, user and `.git`"


def _list_fault(text: str) -> str | None:
    return None if text in LISTS else f"the lists are {', '.join(f'`{name}`' for name in LISTS)}"


def _server_fault(text: str) -> str | None:
    return None if _SERVER.fullmatch(text) else "a server's name has letters, digits, `_` and `-` alone"


def _tool_fault(text: str) -> str | None:
    server, dot, tool = text.partition(".")
    return None if dot and _SERVER.fullmatch(server) and _TOOL.fullmatch(tool) else "write `server.tool`"


def _name_fault(text: str) -> str | None:
    return None if text and text == text.strip() and is_sound(text) else "a name is not empty and has no space around it"


_FAULTS: dict[str, Callable[[str], str | None]] = {
    "Path": _path_fault,
    "Host": _host_fault,
    "Remote": _remote_fault,
    "List": _list_fault,
    "Server": _server_fault,
    "Tool": _tool_fault,
}


def fault_of(kind: str, text: str) -> str | None:
    """Return what to write instead of this entity id, or None if it is canonical."""
    return _FAULTS.get(kind, _name_fault)(text)
