"""Whatever words: one URL that stays itself, or none."""

import ipaddress
from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from curtainwall.facts import Unclear, Url, canonical_url, scope_of_address
from curtainwall.facts.urls import one_address
from curtainwall.model.subjects import Scope
from curtainwall.policy.canonical import host_parents


def meaning(text: object) -> Url | None:
    try:
        return canonical_url(text)
    except Unclear:
        return None


pieces = st.sampled_from(
    ["https://", "http://", "HTTP:", "//", "/", "\\", "@", ":", "?", "#", "[", "]", "%", "%2e", "%2f", "%40", "..", ".", "a",
     "evil.com", "xn--",
     "xn--fa-hia", "ß", "é", "．", "。", "①", "127", "0x7f", "1", "017", "::1", "::ffff:", "80", "0", "user", "\t", "\n", " ", "\0",
     "\udcff", "\u200d", "\u00ad"]
)  # fmt: skip
assembled = st.lists(pieces, max_size=10).map("".join)
loose = st.one_of(st.text(), assembled, assembled.map(lambda text: f"https://{text}"), st.text().map(lambda text: f"http://{text}"))
anything = st.one_of(loose, st.binary(), st.none(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.text()))


@given(anything)
def test_any_object_is_a_canonical_url_or_unclear(text: object) -> None:
    url = meaning(text)
    if url is None:
        return
    assert canonical_url(url.text) == url
    assert url.text.isascii()
    assert url.text.startswith(f"{url.origin}/")
    assert "#" not in url.text


@given(anything)
def test_another_parser_reads_our_spelling_as_we_do(text: object) -> None:
    url = meaning(text)
    if url is None:
        return
    other = urlsplit(url.text)
    assert other.hostname == url.facts.host
    assert (other.port or {"http": 80, "https": 443}[other.scheme]) == url.facts.port
    assert (other.username, other.password) == (None, None)
    assert (other.scheme == "https") is url.facts.secure


@given(anything)
def test_the_parents_of_a_host_are_spelt_as_hosts_are(text: object) -> None:
    url = meaning(text)
    for parent in host_parents(url.facts.host) if url is not None else ():
        assert canonical_url(f"https://{parent}").facts.host == parent


def spellings(value: int) -> st.SearchStrategy[str]:
    """Every way to write an IPv4 address that some program understands."""
    whole = st.sampled_from([str(value), hex(value), f"0{value:o}"])
    octets = value.to_bytes(4, "big")
    octet = [st.sampled_from([str(number), hex(number), f"0{number:o}", f"0x{number:04X}"]) for number in octets]
    dotted = st.tuples(*octet).map(".".join)
    short = st.tuples(octet[0], st.just(str(value & 0xFFFFFF))).map(".".join)
    plain = ipaddress.IPv4Address(value)
    carried = st.sampled_from([f"[::ffff:{plain}]", f"[64:ff9b::{plain}]", f"[2002:{value >> 16:x}:{value & 0xFFFF:x}::1]"])
    full_width = st.just("".join(chr(ord(letter) + 0xFEE0) if letter.isdigit() else letter for letter in str(plain)))
    encoded = st.just("".join(f"%{ord(letter):02x}" for letter in str(plain)))
    return st.one_of(whole, dotted, short, carried, full_width, encoded)


@given(st.integers(0, 2**32 - 1).flatmap(lambda value: st.tuples(st.just(value), spellings(value))))
def test_every_spelling_of_an_address_is_that_address(drawn: tuple[int, str]) -> None:
    value, spelling = drawn
    url = canonical_url(f"http://{spelling}/")
    assert url.facts.host == str(ipaddress.IPv4Address(value))
    assert url.facts.scope is scope_of_address(url.facts.host)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_no_address_that_is_not_global_is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if not address.is_global and scope_of_address(str(address)) is Scope.PUBLIC:
        carried = one_address(str(address))
        assert carried != str(address)
        assert ipaddress.ip_address(carried).is_global


@given(st.one_of(st.text(), st.text(alphabet="0123456789abcdef:.%"), st.ip_addresses().map(str)))
def test_any_text_is_an_address_or_unclear(text: str) -> None:
    try:
        scope = scope_of_address(text)
    except Unclear:
        return
    assert scope in Scope
