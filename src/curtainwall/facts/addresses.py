"""Which part of the network an address or a host name belongs to, from tables of our own. No name is resolved here."""

from collections.abc import Mapping
from ipaddress import ip_network
from socket import AF_INET, AF_INET6, AddressFamily, inet_ntop, inet_pton

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model.subjects import Scope

_NO_PORTS: frozenset[int] = frozenset()

# IANA's special-purpose registries, read our way: what a cloud or a router answers on, or nobody should be at, is forbidden; what is
# this machine or its own network is private. The most specific entry counts; what no entry names is public (IPv4) or forbidden (IPv6).
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
    Scope.PUBLIC: ("2000::/3",),  # global unicast; whatever else is not named here is multicast, link-local or not assigned
}

# Networks whose addresses are IPv4 addresses in other words, and how many bits stand to the right of those.
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
    """Return a table as first, last, scope, the most specific first."""
    networks = [(ip_network(text), scope) for scope, texts in table.items() for text in texts]
    networks.sort(key=lambda entry: -entry[0].prefixlen)
    return tuple((int(network[0]), int(network[-1]), scope) for network, scope in networks)


_IPV4_RANGES = _ranges(_IPV4)
_IPV6_RANGES = _ranges(_IPV6)
_CARRIERS = tuple((int(network[0]), int(network[-1]), shift) for network, shift in _IPV4_IN_IPV6.items())
_LOOPBACK = range(0x7F000000, 0x80000000)


def one_address(text: str) -> str:
    """Return the address that a spelling is: IPv4 where an IPv6 address only carries one. Zones (`%eth0`) are refused."""
    value, family = _read(text)
    return inet_ntop(family, value.to_bytes(4 if family is AF_INET else 16, "big"))


def scope_of_address(text: str, port: int = 0, own_ports: frozenset[int] = _NO_PORTS) -> Scope:
    """Return the part of the network an address is in; our own ports on this machine are forbidden."""
    value, family = _read(text)
    if port in own_ports and (value in _LOOPBACK if family is AF_INET else value == 1):
        return Scope.FORBIDDEN
    ranges, otherwise = (_IPV4_RANGES, Scope.PUBLIC) if family is AF_INET else (_IPV6_RANGES, Scope.FORBIDDEN)
    return next((scope for first, last, scope in ranges if first <= value <= last), otherwise)


def scope_of_name(name: str, port: int = 0, own_ports: frozenset[int] = _NO_PORTS) -> Scope:
    """Return the part of the network a canonical host name claims to be in; what it resolves to is checked when it is resolved."""
    private = "." not in name or f".{name}".endswith(_PRIVATE_ENDINGS)
    if name in _METADATA or (private and name.partition(".")[0] in _METADATA_LABELS):
        return Scope.FORBIDDEN
    if port in own_ports and (name == "localhost" or name.endswith(".localhost")):
        return Scope.FORBIDDEN
    return Scope.PRIVATE if private else Scope.PUBLIC


def _read(text: str) -> tuple[int, AddressFamily]:
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
