"""URLs as an agent writes them, and the one place on the network that each of them means.

One parser reads them, by WHATWG rules, after everything that another parser would read differently has been refused. The canonical text is
what is requested, so that what was judged is where the request goes.
"""

import re
from dataclasses import dataclass

import ada_url

from curtainwall.facts.addresses import one_address, scope_of_address, scope_of_name
from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model.subjects import HostFacts

_MAX_URL = 32_768
_MAX_HOST = 253

# What one parser drops, another takes for a slash, and a third for the end.
_TREACHEROUS = re.compile(r"[\x00-\x20\x7f\\]")
_START = re.compile(r"(https?)://(?:([^/?#@]*)@)?([^/?#@]+)(?=[/?#]|\Z)", re.ASCII | re.IGNORECASE)
_USER = re.compile(r"[A-Za-z0-9._~-]+")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PARTS = ("hostname", "port", "pathname", "search")


@dataclass(frozen=True, slots=True)
class Url:
    """One URL in its canonical spelling, without user name and fragment; `origin` is what grants and lists are about."""

    text: str
    origin: str
    facts: HostFacts


def canonical_url(text: object, own_ports: frozenset[int] = frozenset()) -> Url:
    """Return the one http or https URL that an agent's words mean; our `own_ports` on this machine are forbidden ground."""
    if not isinstance(text, str):
        raise Unclear(f"a URL must be a string, not {quoted(text)}")
    if len(text) > _MAX_URL:
        raise Unclear(f"the URL {quoted(text)} is longer than {_MAX_URL} characters")
    if _TREACHEROUS.search(text):
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
    host = _one_host(parts.get("hostname", ""), text)
    scope_of = scope_of_address if _is_address(host) else scope_of_name
    origin = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
    if port != default:
        origin = f"{origin}:{port}"
    facts = HostFacts(host=host, port=port, secure=scheme == "https", scope=scope_of(host, port, own_ports))
    return Url(origin + parts.get("pathname", "") + parts.get("search", ""), origin, facts)


def _is_address(host: str) -> bool:
    # A canonical name never ends in a number: the parser takes that for an address.
    return ":" in host or host.rpartition(".")[2].isdigit()


def _one_host(host: str, text: str) -> str:
    """Return a parsed host in its one spelling: no brackets, no trailing dot, IPv4 where IPv6 only carries it."""
    if host.startswith("["):
        return one_address(host[1:-1])
    name = host.removesuffix(".")
    if len(name) > _MAX_HOST or not _NAME.fullmatch(name):
        raise Unclear(f"the URL {quoted(text)} has no host that could have an address")
    if "xn--" in name and not all(_is_sound(label) for label in name.split(".")):
        raise Unclear(f"the host of {quoted(text)} is not a valid international name")
    return name


def _is_sound(label: str) -> bool:
    """Say whether a label that claims to be Punycode stands for a name that is spelt exactly so."""
    if not label.startswith("xn--"):
        return True
    meant = ada_url.idna_to_unicode(label)
    return not meant.isascii() and ada_url.idna_to_ascii(meant) == label.encode()
