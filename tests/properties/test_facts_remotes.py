"""Git remotes and git's config, with the real git as the judge."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtainwall.facts.git.config import find_repository, read_entries
from curtainwall.facts.git.remotes import canonical_remotes
from curtainwall.facts.refusal import Unclear
from tests.support.remotes import one_remote


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("repository").resolve()
    git(place, "init", "-q")
    return place


def git(place: Path, *words: str) -> str | None:
    """Run the real git without any config but the repository's own; None if it refuses."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(["git", *words], cwd=place, env=env, capture_output=True, check=False, timeout=30)
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None


WRITTEN = st.lists(
    st.sampled_from(
        [
            "[remote \"origin\"]", "[Remote \"Origin\"]", "[remote.Old]", "[url \"https://a.example/\"]", "[core]", "[a.B \"c\"]", "[x",
            "]", "[ core]", "[core ]",
            "[s \"q\\\"w\\\\e\"]", "[s \"\"]", "\n", "\n", "\n", " ", "\t", "url", "Url", "push-url", "=", " = ", "value",
            "\"quo ted\"", "\"", "\\\n", "\\n", "\\t", "\\b",
            "\\\\", "\\\"", "\\q", "#", ";", "# note\n", "; note\n", "\r\n", "\r", "é", "\ufeff", "a b", "0", "-x", "_", "true",
        ]
    ),
    max_size=16,
).map("".join)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(WRITTEN)
def test_a_config_is_read_as_git_reads_it(tmp_path_factory: pytest.TempPathFactory, repository: Path, text: str) -> None:
    file = repository / "some-config"
    file.write_bytes(text.encode())
    listed = git(repository, "config", "-f", str(file), "--list", "-z")
    try:
        entries = read_entries(text)
    except Unclear:
        # We refuse more than git does: a key in no section, a section without a name.
        assert listed is None or any("." not in line.partition("\n")[0].strip(".") for line in listed.split("\0")[:-1]) or "[ " in text
        return
    ours = "".join(
        ".".join(part for part in (entry.section, entry.subsection, entry.key) if part is not None)
        + ("\0" if entry.value is None else f"\n{entry.value}\0")
        for entry in entries
    )
    assert listed is not None
    assert ours.replace("\t", " ") == listed.replace("\t", " ")


URLS = st.sampled_from(
    [
        "https://a.example/me/r",
        "https://a.example/me/r.git",
        "ssh://git@b.example/me/r",
        "https://c.example/x/y/z",
        "git@d.example:o/r",
        "https://a.example/",
    ]
)
PREFIXES = st.sampled_from(
    ["https://a.example/", "https://a.example/me/", "https://", "ssh://git@b.example/", "git@d.example:", "me:", "https://c.example/x/y/z"]
)
NAMES = st.sampled_from(["origin", "up/stream", "https://a.example/me/r", "me:r"])
LINES = st.one_of(
    st.tuples(NAMES, st.sampled_from(["url", "pushurl", "pushUrl", "fetch"]), URLS).map(
        lambda line: f'[remote "{line[0]}"]\n\t{line[1]} = {line[2]}\n'
    ),
    st.tuples(URLS | PREFIXES, st.sampled_from(["insteadOf", "pushInsteadOf"]), PREFIXES).map(
        lambda line: f'[url "{line[0]}"]\n\t{line[1]} = {line[2]}\n'
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(lines=st.lists(LINES, max_size=6), name=NAMES | URLS, push=st.booleans())
def test_a_remote_leads_where_git_would_go(repository: Path, lines: list[str], name: str, push: bool) -> None:
    config = repository / ".git" / "config"
    config.write_text("[core]\n\trepositoryformatversion = 0\n" + "".join(lines))
    try:
        remotes = canonical_remotes(name, repository=str(repository), push=push)
    except Unclear:
        return
    words = ["remote", "get-url", *(["--push", "--all"] if push else []), name]
    told = git(repository, *words)
    if told is None and not push:
        told = git(repository, "ls-remote", "--get-url", name)
    if told is None:
        return
    meant = {one_remote(url).value for url in told.split()}
    assert {remote.value for remote in remotes} == meant
    for remote in remotes:
        # What is given to git is left alone by the same config.
        assert git(repository, "ls-remote", "--get-url", remote.url) == f"{remote.url}\n" or push


@settings(deadline=None)
@given(st.text() | st.text(alphabet="gith.com:/@-%2eE~\\ \n[]ur"), st.booleans())
def test_any_text_is_one_repository_or_refused(text: str, push: bool) -> None:
    try:
        remote = one_remote(text, push=push)
    except Unclear:
        return
    again = one_remote(remote.url, push=push)
    assert (again.value, again.url) == (remote.value, remote.url)


SPELLINGS = st.sampled_from(
    ["https://{}/{}", "http://{}/{}", "ssh://git@{}/{}", "git://{}/{}", "git@{}:{}", "{}:{}", "ssh://{}/{}", "https://me@{}/{}"]
)
DRESSES = st.sampled_from(["{}", "{}.git", "{}/", "{}.git/", "x/../{}", "./{}", "x/%2E%2e/{}"])


@settings(deadline=None)
@given(SPELLINGS, SPELLINGS, DRESSES, DRESSES, st.sampled_from(["github.com", "GITHUB.com", "github.com."]))
def test_all_spellings_of_one_repository_are_one(first: str, second: str, dress: str, other: str, host: str) -> None:
    dressed = dress.format("me/repo")
    if "%" in dressed and "://" not in first:
        dressed = "me/repo"
    one = one_remote(first.format(host, dressed))
    two = one_remote(second.format("github.com", (other if "://" in second else "{}").format("Me/Repo")), push=True)
    assert one.value == two.value == "github.com/me/repo"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_as_config_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    place = tmp_path_factory.mktemp("any").resolve()
    for part in ("objects", "refs"):
        (place / ".git" / part).mkdir(parents=True)
    (place / ".git" / "HEAD").touch()
    (place / ".git" / "config").write_bytes(data)
    with suppress(Unclear):
        assert find_repository(str(place)) is not None
