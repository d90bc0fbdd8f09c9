"""Lists are canonical when they are made, and wildcards cover public names alone."""

import pytest

from curtainwall.model import Broken
from curtainwall.policy import Lists


def test_entries_become_canonical_and_single() -> None:
    lists = Lists(
        hosts=("GitHub.com", "github.com.", "*.Example.org", "*", "[FD00::0:1]", "localhost:8080", "[::1]:8080"),
        remotes=("GitHub.com/Me/R.git", "github.com/me/r/", "git.lan/Me/R", "gitlab.com/a/*", "gitlab.com/*", "git.lan:2222/x", "*"),
        teams=("data", "*"),
    )
    assert lists.hosts == ("github.com", "*.example.org", "*", "fd00::1", "localhost:8080", "[::1]:8080")
    assert lists.remotes == ("github.com/me/r", "git.lan/Me/R", "gitlab.com/a/*", "gitlab.com/*", "git.lan:2222/x", "*")
    assert lists.teams == ("data", "*")
    assert lists == Lists(hosts=lists.hosts, remotes=lists.remotes, teams=lists.teams)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "https://a.com",
        "a.com/x",
        "*a.com",
        "a.*",
        "**",
        "*.*",
        "*.1.2.3.4",
        "127.1",
        "bücher.de",
        "a b",
        "a:99999",
        "a:0",
        "a:x",
        "user@a.com",
        "*.",
        ".a",
    ],
)
def test_a_host_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(Broken, match=r"^`lists.hosts`: "):
        Lists(hosts=(entry,))


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "github.com",
        "https://github.com/a/b",
        "git@github.com:a/b",
        "*/a",
        "*.com/a",
        "a.com/*/b",
        "a.com/../b",
        "a.com/**",
        "/a",
        "a.com/b*",
    ],
)
def test_a_remote_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(Broken, match=r"^`lists.push-remotes`: "):
        Lists(push_remotes=(entry,))


@pytest.mark.parametrize("entry", ["", " a", "a*", "a\0"])
def test_a_team_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(Broken, match=r"^`lists.teams`: "):
        Lists(teams=(entry,))


@pytest.mark.parametrize(
    ("entry", "host", "port", "scope", "listed"),
    [
        ("a.com", "a.com", 8443, "public", True),
        ("a.com", "b.a.com", 443, "public", False),
        ("*.a.com", "b.a.com", 443, "public", True),
        ("*.a.com", "b.a.com", 443, "private", False),
        ("*.a.com", "a.com", 443, "public", False),
        ("*.a.com", "xa.com", 443, "public", False),
        ("*", "x.org", 443, "public", True),
        ("*", "8.8.8.8", 443, "public", False),
        ("*", "2606:4700::1", 443, "public", False),
        ("*", "localhost", 80, "private", False),
        ("*", "metadata", 80, "forbidden", False),
        ("localhost", "localhost", 80, "private", True),
        ("[::1]:80", "::1", 80, "private", True),
        ("[::1]:80", "::1", 81, "private", False),
        ("::1", "::1", 81, "private", True),
    ],
)
def test_who_is_on_the_list_of_hosts(entry: str, host: str, port: int, scope: str, listed: bool) -> None:
    assert Lists(hosts=(entry,)).of_host(host, port, scope) == (("hosts",) if listed else ())


def test_who_is_on_the_lists_of_remotes() -> None:
    lists = Lists(remotes=("a.com/x/*",), push_remotes=("a.com/x/y", "*"))
    assert lists.of_remote("a.com/x/y", "public") == ("remotes", "push-remotes")
    assert lists.of_remote("a.com/x/y", "private") == ("push-remotes",)
    assert lists.of_remote("b.com/x/y", "public") == ("push-remotes",)
    assert lists.of_remote("a.com/x", "private") == ()


def test_who_is_on_the_list_of_teams() -> None:
    assert Lists(teams=("a",)).of_team("a") == ("teams",)
    assert Lists(teams=("a",)).of_team("b") == ()
    assert Lists(teams=("*",)).of_team("b") == ("teams",)
