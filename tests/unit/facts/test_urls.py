"""URLs, hosts and addresses in every spelling we know of."""

import pytest

from curtainwall.facts import Unclear, canonical_url, quoted, scope_of_address
from curtainwall.model.subjects import Scope


def refused(text: object) -> str:
    with pytest.raises(Unclear) as caught:
        canonical_url(text)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("https://docs.python.org", "https://docs.python.org/"),
        ("HTTPS://Docs.Python.ORG:443/3/#fragment", "https://docs.python.org/3/"),
        ("http://a.org:80/x?y=1#z", "http://a.org/x?y=1"),
        ("http://a.org:443/", "http://a.org:443/"),
        ("https://a.org:08443/", "https://a.org:8443/"),
        ("https://a.org:/", "https://a.org/"),
        ("https://a.org./", "https://a.org/"),
        ("https://a.org/b/../c/./d/%2e%2e/e", "https://a.org/c/e"),
        ("https://a.org/é?ü", "https://a.org/%C3%A9?%C3%BC"),
        ("https://a.org?x", "https://a.org/?x"),
        ("https://a.org/?", "https://a.org/"),
        ("https://listed.host@evil.com/", "https://evil.com/"),
        ("https://a.org?@evil.com", "https://a.org/?@evil.com"),
        ("https://a.org#@evil.com", "https://a.org/"),
        ("https://a%2eorg/", "https://a.org/"),
        ("https://ａ．ｏｒｇ/", "https://a.org/"),
        ("https://a。org/", "https://a.org/"),
        ("https://bücher.example.org/", "https://xn--bcher-kva.example.org/"),
        ("https://faß.de/", "https://xn--fa-hia.de/"),
        ("https://XN--FA-HIA.de/", "https://xn--fa-hia.de/"),
        ("https://💩.la/", "https://xn--ls8h.la/"),
        ("https://a_b.org/", "https://a_b.org/"),
        ("http://[2606:4700:0:0::1111]/", "http://[2606:4700::1111]/"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
    ],
)
def test_words_mean_one_url(text: str, meaning: str) -> None:
    url = canonical_url(text)
    assert url.text == meaning
    assert canonical_url(url.text) == url


LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "0x7f000001", "0x7F.1", "017700000001", "0177.0.0.01", "2130706433", "127.0.0.1.",
    "１２７.0.0.1", "①②⑦.1", "%31%32%37.1", "%30x7f.1", "127。0。0。1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[2002:7f00:1:2:3:4:5:6]",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
def test_every_spelling_of_an_address_is_that_address(host: str) -> None:
    url = canonical_url(f"http://{host}:8080/x")
    assert url.text == "http://127.0.0.1:8080/x"
    assert (url.facts.host, url.facts.port, url.facts.secure, url.facts.scope) == ("127.0.0.1", 8080, False, Scope.PRIVATE)


def test_facts_say_where_a_url_leads() -> None:
    url = canonical_url("https://user@API.example.com:8443/v1?key=1")
    assert url.origin == "https://api.example.com:8443"
    assert (url.facts.host, url.facts.port, url.facts.secure, url.facts.scope) == ("api.example.com", 8443, True, Scope.PUBLIC)
    assert canonical_url("http://[::2:0:0:1]/").origin.startswith("http://[")
    assert canonical_url("http://a.org/x").origin == "http://a.org"


@pytest.mark.parametrize(
    "text",
    [
        None, 7, b"https://a.org", ["https://a.org"], "", "a.org", "//a.org", "/path", "https:a.org", "https:/a.org", "https:///a.org",
        "https:////a.org", "https://", "https:///", "https://?x", "https://#x", "https://@", "https://@a.org", "https://u@",
        "https://:@a.org",
        "https://u:p@a.org", "https://u%40x@a.org", "https://a.org:80@evil.com", "https://a@b@c", "https://listed.host\\@evil.com",
        "https:\\\\a.org", "https://a.org\\x", "https://a.org/\t", "ht\ntps://a.org", " https://a.org", "https://a.org ",
        "https://a.org/\r\nX: y",
        "https://a.org/\0", "https://a.org/a b", "https://a.org/\x7f", "file:///etc/passwd", "data:text/html,x", "javascript:alert(1)",
        "ftp://a.org", "ws://a.org", "gopher://a.org", "view-source:https://a.org", "httpſ://a.org", "https://a.org:0/",
        "https://a.org:65536/",
        "https://a.org:-1/", "https://a.org:x/", "https://a..org/", "https://.a.org/", "https://a.org../", "https://./", "https://..",
        "https://*.a.org/", "https://a!b.org/", "https://a%00b/", "https://a%2fb/", "https://a%5cb/", "https://%40/", "https://a%25b/",
        "https://a\u200db.org/", "https://a\u3000b.org/", "https://⒈com/", "https://a.1/", "https://256.1.1.1/", "https://1.2.3.4.5/",
        "https://09.1/",
        "https://[::1/", "https://::1/", "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[v1.x]/", "https://[1.2.3.4]/",
        "https://xn--a/", "https://xn--/", "https://xn--google-.com/", "https://xn--0.pt/", "https://a.org/\ud800", "https://\udcff/",
        f"https://{'a' * 64}.org/", f"https://{'a.' * 127}org/", f"https://a.org/{'x' * 32_768}", "https://a.org／@evil.com",
    ],
)  # fmt: skip
def test_what_two_programs_would_read_differently_is_refused(text: object) -> None:
    message = refused(text)
    assert message[0].islower() or message[0] == "`"
    assert not message.endswith(".")
    assert message.isprintable()


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("example.com", "public"), ("8.8.8.8", "public"), ("[2606:4700::1111]", "public"), ("[64:ff9b::8.8.8.8]", "public"),
        ("metadata.example.com", "public"), ("local.example.com", "public"), ("100.128.0.1", "public"), ("172.32.0.1", "public"),
        ("localhost", "private"), ("LOCALHOST.", "private"), ("a.localhost", "private"), ("intranet", "private"), ("printer.local",
        "private"),
        ("host.docker.internal", "private"), ("nas.lan", "private"), ("x.localdomain", "private"), ("x.home.arpa", "private"),
        ("home.arpa", "private"), ("svc.cluster.local", "private"), ("x.test", "private"), ("10.0.0.1", "private"), ("172.16.0.1",
        "private"),
        ("192.168.1.1", "private"), ("100.64.0.1", "private"), ("198.18.0.1", "private"), ("127.255.255.255", "private"), ("[::1]",
        "private"),
        ("[fd12::1]", "private"), ("[fec0::1]", "private"), ("[64:ff9b::10.0.0.1]", "private"), ("[2002:c0a8:101::1]", "private"),
        ("169.254.169.254", "forbidden"), ("[::ffff:169.254.169.254]", "forbidden"), ("0xa9fea9fe", "forbidden"), ("2852039166",
        "forbidden"),
        ("[fe80::1]", "forbidden"), ("[fd00:ec2::254]", "forbidden"), ("[fd20:ce::254]", "forbidden"), ("[fd00:c1::a9fe:a9fe]",
        "forbidden"),
        ("[fd00:42::42]", "forbidden"), ("100.100.100.200", "forbidden"), ("168.63.129.16", "forbidden"), ("192.0.0.192", "forbidden"),
        ("0.0.0.0", "forbidden"), ("0", "forbidden"), ("[::]", "forbidden"), ("[::2]", "forbidden"), ("224.0.0.1", "forbidden"),
        ("255.255.255.255", "forbidden"), ("240.0.0.1", "forbidden"), ("192.0.2.1", "forbidden"), ("198.51.100.1", "forbidden"),
        ("203.0.113.1", "forbidden"), ("192.88.99.1", "forbidden"), ("[ff02::1]", "forbidden"), ("[2001:db8::1]", "forbidden"),
        ("[3fff::1]", "forbidden"),
        ("[2001::1]", "forbidden"), ("[64:ff9b:1::8.8.8.8]", "forbidden"), ("[100::1]", "forbidden"), ("[4000::1]", "forbidden"),
        ("[5f00::1]", "forbidden"),
        ("metadata", "forbidden"), ("metadata.google.internal", "forbidden"), ("Metadata.Google.Internal.", "forbidden"),
        ("metadata.azure.internal", "forbidden"), ("metadata.goog", "forbidden"), ("instance-data", "forbidden"),
        ("instance-data.ec2.internal", "forbidden"), ("metadata.tencentyun.com", "forbidden"),
    ],
)  # fmt: skip
def test_a_host_is_in_one_part_of_the_network(host: str, scope: str) -> None:
    assert canonical_url(f"http://{host}/").facts.scope == scope


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"])
def test_our_own_ports_are_forbidden(host: str) -> None:
    own = frozenset({8080})
    assert canonical_url(f"http://{host}:8080/", own).facts.scope is Scope.FORBIDDEN
    assert canonical_url(f"http://{host}:8081/", own).facts.scope is Scope.PRIVATE
    assert canonical_url("http://10.0.0.1:8080/", own).facts.scope is Scope.PRIVATE
    assert canonical_url("http://example.com:8080/", own).facts.scope is Scope.PUBLIC


def test_resolved_addresses_are_judged_like_written_ones() -> None:
    assert scope_of_address("93.184.216.34") is Scope.PUBLIC
    assert scope_of_address("127.0.1.1", 8080, frozenset({8080})) is Scope.FORBIDDEN
    assert scope_of_address("::1", 8080, frozenset({8080})) is Scope.FORBIDDEN
    assert scope_of_address("2606:4700::1111", 8080, frozenset({8080})) is Scope.PUBLIC


@pytest.mark.parametrize("text", ["", "a.org", "127.1", "1.2.3.4\0", "fe80::1%eth0", "[::1]", "::1::", "１.2.3.4", "\udcff"])
def test_a_resolved_address_has_one_strict_spelling(text: str) -> None:
    with pytest.raises(Unclear, match="is not an address"):
        scope_of_address(text)


def test_what_an_agent_wrote_is_inert_in_a_message() -> None:
    assert quoted("a`b\n\x1b[31m\u202e\udcff\\") == "`a\\x60b\\n\\x1b[31m\\u202e\\udcff\\\\`"
    assert quoted("x" * 200) == f"`{'x' * 120}…`"
    assert quoted(7) == "`int`"
    assert str(Unclear("a path must not be empty")) == "a path must not be empty"
