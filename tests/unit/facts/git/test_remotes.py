"""Which repository a remote means: spellings, names, rewrites, refusals."""

from pathlib import Path

import pytest

from curtainwall.facts.git.config import GitConfigEntry, read_entries
from curtainwall.facts.git.remotes import canonical_remotes
from curtainwall.facts.refusal import Unclear
from curtainwall.model.subjects import Scope
from tests.support.remotes import one_remote


def value_of(text: object) -> str:
    return one_remote(text).value


def made(place: Path, config: str) -> Path:
    """Make the bones of a repository."""
    for part in ("objects", "refs"):
        (place / part).mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "config").write_text(config)
    return place


def repository(place: Path, config: str) -> str:
    made(place.resolve() / ".git", config)
    return str(place.resolve())


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:me/r.git", "https://github.com/me/r", "ssh://git@github.com/me/r/", "git://github.com/me/r",
        "http://github.com/me/r.git/",
        "github.com:me/r", "https://GitHub.com/Me/R", "https://github.com./me/r", "https://github.com:443/me/r", "ssh://github.com:22/me/r",
        "https://github.com/you/../me/r", "https://github.com/me/./r", "https://github.com/m%65/r", "https://me@github.com/me/r",
        "git@github.com:/me/r",
        "https://github.com/x/%2e%2E/me/r", "https://github.com/ME/R.GIT",
    ],
)  # fmt: skip
def test_all_spellings_of_one_repository_are_one(text: str) -> None:
    assert value_of(text) == "github.com/me/r"


@pytest.mark.parametrize(
    ("text", "value", "url"),
    [
        ("https://github.com/me/../evil/r", "github.com/evil/r", "https://github.com/evil/r"),
        ("git@github.com:me/r.git", "github.com/me/r", "ssh://git@github.com/me/r.git"),
        ("git://github.com/me/r", "github.com/me/r", "https://github.com/me/r"),
        ("http://h.test.org:8080/a/b/c.git", "h.test.org:8080/a/b/c", "http://h.test.org:8080/a/b/c.git"),
        ("ssh://git@ssh.github.com:443/me/r", "ssh.github.com:443/me/r", "ssh://git@ssh.github.com:443/me/r"),
        ("https://host.org/Me/R", "host.org/Me/R", "https://host.org/Me/R"),
        ("git@host.org:Me/R", "host.org/Me/R", "git@host.org:Me/R"),
        ("host.org:r", "host.org/r", "host.org:r"),
        ("ann@host.org:r", "host.org/~ann/r", "ann@host.org:r"),
        ("ann@host.org:/srv/r", "host.org/srv/r", "ssh://ann@host.org/srv/r"),
        ("https://faß.de/a/b", "xn--fa-hia.de/a/b", "https://xn--fa-hia.de/a/b"),
        ("https://127.1/a/b", "127.0.0.1/a/b", "https://127.0.0.1/a/b"),
        ("ssh://[::1]:2222/a/b", "[::1]:2222/a/b", "ssh://[::1]:2222/a/b"),
    ],
)
def test_the_identity_and_the_url_that_the_network_step_gets(text: str, value: str, url: str) -> None:
    remote = one_remote(text, push=True)
    assert (remote.value, remote.url) == (value, url)


def test_the_host_is_told_with_its_scope_port_and_secrecy() -> None:
    private = one_remote("git://10.0.0.1/a").host
    assert (private.host, private.port, private.secure, private.scope) == ("10.0.0.1", 9418, False, Scope.PRIVATE)
    upgraded = one_remote("http://github.com/a/b").host
    assert (upgraded.port, upgraded.secure) == (443, True)


def test_hosts_whose_ways_are_unknown_keep_their_letters_apart() -> None:
    assert value_of("https://host.org/me/r") != value_of("https://host.org/Me/r")


@pytest.mark.parametrize(
    "text",
    [
        None, 7, ["origin"], "", "origin", "-x", "--upload-pack=x", "ssh://-oProxyCommand=x/a/b", "git@-oProxyCommand=x:a/b",
        "git@github.com:-x/r", "-x@h.org:a/b",
        "/x", "./x", "../x", "C:\\x", "C:/x", "foo/bar", "file:///x", "file://host/x", "ext::sh -c x", "ext::sh", "fd::3", "::x",
        "http::https://h.org/a",
        "https://u:p@github.com/a/b", "https://:p@github.com/a/b", "https://@github.com/a/b", "ssh://u%40x@github.com/a/b",
        "https://a@b@github.com/a/b",
        "https://github.com/me%2fr/x", "https://github.com/me%00/r", "git@github.com:me/%2e%2e/x", "https://git%68ub.com/a/b",
        "https://github.com/a/b?x", "https://github.com/a/b#x",
        "https://github.com/../r", "git@github.com:../r", "https://github.com/", "https://github.com", "https://github.com/me",
        "https://github.com/a//b", "https://github.com/a/.git",
        "https://github.com/a b/c", "https://github.com/a\tb/c", "https://github.com\\@evil.com/a/b", "https://github.com/a\n/b",
        "\ud800", "https://h.org/\ud800", "https://h.org/é/r",
        "HTTPS://github.com/a/b", "ftp://h.org/a", "git+ssh://h.org/a", "https://h.org:0/a", "https://h.org:70000/a",
        "https://h.org:x/a", "ssh://git@github.com:me/r",
        "[::1]:a/b", "h:r", "10:a/b", "https://h..org/a/b", "https://-h.org/a", "https://\uff0dh.org/a", "x" * 5000, "https:///a/b",
        "https://xn--a/b/c", "..:x/y",
    ],
)  # fmt: skip
def test_what_is_no_repository_on_the_network_is_refused(text: object) -> None:
    with pytest.raises(Unclear):
        value_of(text)


def test_a_password_in_a_url_is_refused_with_a_hint_and_not_repeated() -> None:
    with pytest.raises(Unclear) as refused:
        value_of("https://me:hunter2@github.com/a/b")
    assert "use a credential" in refused.value.message
    assert "hunter2" not in refused.value.message


ORIGIN = '[remote "origin"]\n\turl = https://github.com/me/r\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'


def test_a_name_is_looked_up_in_the_repository(tmp_path: Path) -> None:
    place = repository(tmp_path, "[core]\n\tbare = false\n" + ORIGIN)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for start in (place, f"{place}/deep/er"):
        assert one_remote("origin", repository=start, push=True).value == "github.com/me/r"
    for name in ("upstream", "foo/bar"):
        with pytest.raises(Unclear, match="no remote named"):
            one_remote(name, repository=place)


def test_a_push_follows_every_push_url(tmp_path: Path) -> None:
    place = repository(
        tmp_path, ORIGIN + "pushurl = git@github.com:me/one\npushurl = https://gitlab.com/me/two\npushurl = git@github.com:me/one.git\n"
    )
    assert one_remote("origin", repository=place).value == "github.com/me/r"
    assert [remote.value for remote in canonical_remotes("origin", repository=place, push=True)] == [
        "github.com/me/one",
        "gitlab.com/me/two",
        "github.com/me/one",
    ]


def test_reading_takes_the_first_url_and_pushing_all(tmp_path: Path) -> None:
    place = repository(tmp_path, ORIGIN + "url = https://github.com/me/two\n")
    assert [remote.value for remote in canonical_remotes("origin", repository=place, push=False)] == ["github.com/me/r"]
    assert [remote.value for remote in canonical_remotes("origin", repository=place, push=True)] == ["github.com/me/r", "github.com/me/two"]


@pytest.mark.parametrize(
    ("rewrite", "text", "read", "pushed"),
    [
        ('[url "https://evil.org/"]\ninsteadOf = https://github.com/\n', "origin", "evil.org/me/r", "evil.org/me/r"),
        ('[url "https://evil.org/"]\npushInsteadOf = https://github.com/\n', "origin", "github.com/me/r", "evil.org/me/r"),
        ('[url "https://evil.org/"]\ninsteadOf = gh:\n', "gh:me/r", "evil.org/me/r", "evil.org/me/r"),
        ('[url "https://a.org/"]\ninsteadOf = gh:\n[url "https://b.org/"]\ninsteadOf = gh:me/\n', "gh:me/r", "b.org/r", "b.org/r"),
        (
            '[url "https://a.org/"]\ninsteadOf = x:\n[url "https://b.org/"]\ninsteadOf = gh:\n[url "https://a.org/"]\ninsteadOf = gh:\n',
            "gh:r",
            "a.org/r",
            "a.org/r",
        ),
        ('[remote "https://github.com/me/r"]\nurl = https://evil.org/x\n', "https://github.com/me/r", "evil.org/x", "evil.org/x"),
        ('[remote "https://github.com/me/r"]\npushurl = https://evil.org/x\n', "https://github.com/me/r", "github.com/me/r", "evil.org/x"),
    ],
)
def test_rewrites_are_applied_as_git_would(tmp_path: Path, rewrite: str, text: str, read: str, pushed: str) -> None:
    place = repository(tmp_path, ORIGIN + rewrite)
    assert one_remote(text, repository=place).value == read
    assert one_remote(text, repository=place, push=True).value == pushed


@pytest.mark.parametrize(
    "config",
    [
        '[include]\npath = x\n', '[includeIf "gitdir:/"]\npath = x\n', "[extensions]\nworktreeConfig = true\n",
        '[remote "origin"]\nvcs = hg\n',
        '[remote "origin"]\nurl\n', '[remote "origin"]\nurl =\n', '[url "x"]\ninsteadOf\n',
        '[remote "origin"]\nurl = "https://github.com/a b"\n',
        '[remote "origin"]\nurl = -x\n', '[remote "origin"]\nurl = ../other\n', '[remote "origin"]\nurl = "ext::sh -c x"\n', "[remote",
        "[]", "x = 1\n", "[a]\n1 = 2\n",
        '[a]\nb = "open\n', "[a]\nb = \\x\n", "[a]\nb\0 = 1\n", "[a]\nb c\n",
        '[url "https://github.com/me/"]\ninsteadOf = https://github.com/\n',
        ('[url "https://github.com/"]\ninsteadOf = gh:\n[url "https://e.org/"]\ninsteadOf = https://github.com/\n'
         '[remote "origin"]\nurl = gh:a/b\n'),
    ],
)  # fmt: skip
def test_a_config_that_could_lead_elsewhere_is_refused(tmp_path: Path, config: str) -> None:
    place = repository(tmp_path, config + ("" if "origin" in config or "[a]" in config else ORIGIN))
    with pytest.raises(Unclear):
        one_remote("origin", repository=place)


def test_the_old_files_for_remotes_are_refused(tmp_path: Path) -> None:
    place = repository(tmp_path, "")
    (tmp_path / ".git" / "remotes").mkdir()
    (tmp_path / ".git" / "remotes" / "origin").write_text("URL: https://evil.org/x\n")
    with pytest.raises(Unclear, match="old ways"):
        one_remote("origin", repository=place)


def test_worktrees_and_submodules_lead_to_their_config(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    repository(home / "main", ORIGIN)
    own = home / "main" / ".git" / "worktrees" / "tree"
    own.mkdir(parents=True)
    (own / "HEAD").touch()
    (own / "commondir").write_text("../..\n")
    (home / "tree").mkdir()
    (home / "tree" / ".git").write_text(f"gitdir: {own}\n")
    assert one_remote("origin", repository=str(home / "tree")).value == "github.com/me/r"
    made(home / "main" / ".git" / "modules" / "sub", ORIGIN.replace("/r", "/sub"))
    (home / "main" / "sub").mkdir()
    (home / "main" / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")
    assert one_remote("origin", repository=str(home / "main" / "sub")).value == "github.com/me/sub"
    made(home / "bare", ORIGIN)
    assert one_remote("origin", repository=str(home / "bare")).value == "github.com/me/r"


def test_pointers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    stray = made(home / "stray", ORIGIN)
    (stray / "commondir").write_text("../elsewhere\n")
    for number, text in enumerate(["", "gitdir: ", "gitdir: a\nb", "nonsense", "gitdir: missing", f"gitdir: {stray}", "x" * 5000]):
        place = home / str(number)
        place.mkdir()
        (place / ".git").write_text(text)
        with pytest.raises(Unclear):
            one_remote("origin", repository=str(place))


def test_links_broken_directories_and_odd_files_are_refused(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    repository(home / "real", ORIGIN)
    for name in ("linked", "empty", "config-link", "config-directory", "latin", "huge"):
        (home / name).mkdir()
    (home / "linked" / ".git").symlink_to(home / "real" / ".git")
    (home / "empty" / ".git").mkdir()
    made(home / "config-link" / ".git", "")
    (home / "config-link" / ".git" / "config").unlink()
    (home / "config-link" / ".git" / "config").symlink_to(home / "real" / ".git" / "config")
    made(home / "config-directory" / ".git", "")
    (home / "config-directory" / ".git" / "config").unlink()
    (home / "config-directory" / ".git" / "config").mkdir()
    made(home / "latin" / ".git", "")
    (home / "latin" / ".git" / "config").write_bytes(b"\xff")
    made(home / "huge" / ".git", "#" * (1 << 20) + "\n")
    for name in ("linked", "empty", "config-link", "config-directory", "latin", "huge"):
        with pytest.raises(Unclear):
            one_remote("https://github.com/me/r", repository=str(home / name))


def test_without_a_repository_only_urls_mean_something(tmp_path: Path) -> None:
    place = str(tmp_path.resolve())
    assert one_remote("https://github.com/me/r", repository=place).value == "github.com/me/r"
    with pytest.raises(Unclear):
        one_remote("origin", repository=place)
    for wrong in ("relative", "/a\0b"):
        with pytest.raises(Unclear):
            one_remote("origin", repository=wrong)


def test_a_repository_without_a_config_has_no_remotes(tmp_path: Path) -> None:
    place = repository(tmp_path, "")
    (tmp_path / ".git" / "config").unlink()
    assert one_remote("https://github.com/me/r", repository=place, push=True).value == "github.com/me/r"


def test_a_config_is_read_with_all_its_ways_of_writing() -> None:
    text = (
        '\ufeff[Remote "Or\\"i\\\\gin"] URL = "a b" c # note\n; note\n[core.Sub]\r\n\tflag\n\tx = a\\\n  b \\t\\"\n[s.t "U"]\ny = "" z \\\n'
    )
    assert read_entries(text) == (
        GitConfigEntry("remote", 'Or"i\\gin', "url", "a b c"),
        GitConfigEntry("core", "sub", "flag", None),
        GitConfigEntry("core", "sub", "x", 'a  b \t"'),
        GitConfigEntry("s", "t.U", "y", "z "),
    )
