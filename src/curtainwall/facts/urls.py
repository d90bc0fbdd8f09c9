"""Resolves a URL that an agent wrote to the one place on the network that it means.

We refuse everything that another parser would read differently, and then parse by WHATWG rules. Requests use the canonical text, so that a
request goes where it was judged to go.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_network
from socket import AF_INET, AF_INET6, AddressFamily, inet_ntop, inet_pton

import ada_url

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import record
from curtainwall.model.subjects import HostFacts, Scope

_NO_PORTS: frozenset[int] = frozenset()

# IANA's special-purpose registries in our terms: addresses of cloud and router services, and unused ones, are forbidden; this machine and
# its own network are private. The most specific entry counts; an address without an entry is public (IPv4) or forbidden (IPv6).
_IPV4 = {
    Scope.FORBIDDEN: (
        "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
        "100.100.100.200/32",  # Alibaba's metadata
        "168.63.129.16/32",  # Azure's wire server
        "169.254.0.0/16",  # link-local, and most clouds' metadata
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    ),
    Scope.PRIVATE: (
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarking; some local proxies answer here
    ),
}
_IPV6 = {
    Scope.FORBIDDEN: (
        "64:ff9b:1::/48",  # local NAT64: which IPv4 address is meant depends on the network
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "fd00:42::42/128",  # Scaleway's metadata
        "fd00:c1::a9fe:a9fe/128",  # Oracle's metadata
        "fd00:ec2::/32",  # Amazon's metadata and its neighbours
        "fd20:ce::254/128",  # Google's metadata
    ),
    Scope.PRIVATE: (
        "::1/128",
        "fc00::/7",  # unique local
        "fec0::/10",  # site-local
    ),
    Scope.PUBLIC: ("2000::/3",),  # global unicast; everything not listed here is multicast, link-local or unassigned
}

# Networks whose addresses contain an IPv4 address, and how many bits follow it.
_IPV4_IN_IPV6 = {
    ip_network("::/96"): 0,  # compatible
    ip_network("::ffff:0:0/96"): 0,  # mapped
    ip_network("::ffff:0:0:0/96"): 0,  # translated
    ip_network("64:ff9b::/96"): 0,  # NAT64
    ip_network("2002::/16"): 80,  # 6to4
}

_METADATA = frozenset(("instance-data", "metadata", "metadata.goog", "metadata.packet.net", "metadata.tencentyun.com", "rancher-metadata"))
_METADATA_LABELS = frozenset(("instance-data", "metadata"))
_PRIVATE_ENDINGS = tuple(
    f".{ending}"
    for ending in (
        *"corp home home.arpa internal intranet lan local localdomain localhost mail private svc".split(),
        *"alt example invalid onion test".split(),  # public DNS never has these
    )
)


def _ranges(table: Mapping[Scope, tuple[str, ...]]) -> tuple[tuple[int, int, Scope], ...]:
    """Return a table as tuples of first address, last address and scope, the most specific first."""
    networks = [(ip_network(text), scope) for scope, texts in table.items() for text in texts]
    networks.sort(key=lambda entry: -entry[0].prefixlen)
    return tuple((int(network[0]), int(network[-1]), scope) for network, scope in networks)


_IPV4_RANGES = _ranges(_IPV4)
_IPV6_RANGES = _ranges(_IPV6)
_CARRIERS = tuple((int(network[0]), int(network[-1]), shift) for network, shift in _IPV4_IN_IPV6.items())
_LOOPBACK = range(0x7F000000, 0x80000000)


def one_address(text: str) -> str:
    """Return an address in canonical form: IPv4 if an IPv6 address only carries one. Zones (`%eth0`) are refused."""
    value, family = _parse_address(text)
    return inet_ntop(family, value.to_bytes(4 if family is AF_INET else 16, "big"))


def scope_of_address(text: str, port: int = 0, own_ports: frozenset[int] = _NO_PORTS) -> Scope:
    """Return the part of the network an address is in; our own ports on this machine are forbidden."""
    value, family = _parse_address(text)
    if port in own_ports and (value in _LOOPBACK if family is AF_INET else value == 1):
        return Scope.FORBIDDEN
    ranges, default = (_IPV4_RANGES, Scope.PUBLIC) if family is AF_INET else (_IPV6_RANGES, Scope.FORBIDDEN)
    return next((scope for first, last, scope in ranges if first <= value <= last), default)


def scope_of_name(name: str, port: int = 0, own_ports: frozenset[int] = _NO_PORTS) -> Scope:
    """Return the part of the network a canonical host name claims to be in; its addresses are checked when it is resolved."""
    private = "." not in name or f".{name}".endswith(_PRIVATE_ENDINGS)
    if name in _METADATA or (private and name.partition(".")[0] in _METADATA_LABELS):
        return Scope.FORBIDDEN
    if port in own_ports and (name == "localhost" or name.endswith(".localhost")):
        return Scope.FORBIDDEN
    return Scope.PRIVATE if private else Scope.PUBLIC


def _parse_address(text: str) -> tuple[int, AddressFamily]:
    family = AF_INET6 if ":" in text else AF_INET
    try:
        value = int.from_bytes(inet_pton(family, text), "big")
    except (OSError, ValueError):
        raise Unclear(f"{quoted(text)} is not an address") from None
    if family is AF_INET6 and value > 1:  # `::` and `::1` are themselves
        for first, last, shift in _CARRIERS:
            if first <= value <= last:
                return value >> shift & 0xFFFFFFFF, AF_INET
    return value, family


_MAX_URL = 32_768
_MAX_HOST = 253

# One parser drops these, another reads them as a slash, and a third as the end.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
_START = re.compile(r"(https?)://(?:([^/?#@]*)@)?([^/?#@]+)(?=[/?#]|\Z)", re.ASCII | re.IGNORECASE)
_USER = re.compile(r"[A-Za-z0-9._~-]+")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PARTS = ("hostname", "port", "pathname", "search")


@record
class Url:
    """A canonical URL without user name and fragment; grants and lists refer to its `origin`."""

    text: str
    origin: str
    facts: HostFacts


def canonical_url(text: object, own_ports: frozenset[int] = frozenset()) -> Url:
    """Return the one http or https URL that an agent's text means; our `own_ports` on this machine are forbidden."""
    if not isinstance(text, str):
        raise Unclear(f"a URL must be a string, not {quoted(text)}")
    if len(text) > _MAX_URL:
        raise Unclear(f"the URL {quoted(text)} is longer than {_MAX_URL} characters")
    if _AMBIGUOUS.search(text):
        raise Unclear(f"the URL {quoted(text)} holds a backslash, a space or a control character, which programs read differently")
    start = _START.match(text)
    if start is None:
        raise Unclear(f"the URL {quoted(text)} does not start with `https://` or `http://` and one host")
    user = start[2]
    if user is not None and not _USER.fullmatch(user):
        raise Unclear(f"the URL {quoted(text)} holds a password, or a user name that programs read differently")
    try:
        parts = ada_url.parse_url(text, _PARTS)
    except ValueError:
        raise Unclear(f"the URL {quoted(text)} is not valid") from None
    scheme = start[1].lower()
    default = _DEFAULT_PORTS[scheme]
    port = int(parts.get("port") or default)
    if port == 0:
        raise Unclear(f"the URL {quoted(text)} names port 0, where nobody can be")
    host = _canonical_host(parts.get("hostname", ""), text)
    scope_of = scope_of_address if _is_address(host) else scope_of_name
    origin = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
    if port != default:
        origin = f"{origin}:{port}"
    facts = HostFacts(host=host, port=port, secure=scheme == "https", scope=scope_of(host, port, own_ports))
    return Url(origin + parts.get("pathname", "") + parts.get("search", ""), origin, facts)


def _is_address(host: str) -> bool:
    # A canonical name never ends in a number: the parser reads that as an address.
    return ":" in host or host.rpartition(".")[2].isdigit()


def _canonical_host(host: str, text: str) -> str:
    """Return a parsed host in canonical form: without brackets or trailing dot, and IPv4 if IPv6 only carries it."""
    if host.startswith("["):
        return one_address(host[1:-1])
    name = host.removesuffix(".")
    if len(name) > _MAX_HOST or not _NAME.fullmatch(name):
        raise Unclear(f"the URL {quoted(text)} has no host that could have an address")
    if "xn--" in name and not all(_is_valid_label(label) for label in name.split(".")):
        raise Unclear(f"the host of {quoted(text)} is not a valid international name")
    return name


def _is_valid_label(label: str) -> bool:
    """Tell whether a Punycode label decodes to a name that encodes to the same label."""
    if not label.startswith("xn--"):
        return True
    decoded = ada_url.idna_to_unicode(label)
    return not decoded.isascii() and ada_url.idna_to_ascii(decoded) == label.encode()
