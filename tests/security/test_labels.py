"""Labels that are slipped off: by hiding what would set them, or by reading it in another way."""

import os
from pathlib import Path

import pytest

from curtainwall.compose.secret_files import SecretReads, mounted_labels, secrets_in
from curtainwall.compose.tools import judged_tools
from curtainwall.facts import Masker
from curtainwall.host.home import Home
from curtainwall.model import (
    CallRequest,
    Digest,
    Meaning,
    PathFacts,
    Place,
    Prepared,
    Resource,
    Role,
    SessionId,
    Subject,
    ToolEffect,
    ToolSpec,
    Workspace,
)
from curtainwall.policy import labels_of
from curtainwall.tools import Catalogue
from tests.support.in_process import Places, session_in
from tests.support.policies import call, policy, session

FINANCE = '@id("finance") @label("finance") permit(principal, action == Action::"label", resource in Path::"/w/data/finance");'


def mounted(workspace: Path, most: int) -> list[tuple[str, str]]:
    return [(it.label, it.origin) for it in mounted_labels(policy(), session(str(workspace), own=False), most)]


def test_a_project_that_cannot_be_looked_through_counts_as_holding_secrets(tmp_path: Path) -> None:
    for name in range(20):
        (tmp_path / f"{name}").touch()
    assert mounted(tmp_path, 20) == []
    told = f"the mount of {tmp_path}, which cannot be looked through for secrets: it holds more than 19 names"
    assert mounted(tmp_path, 19) == [("sensitive", told)]


def test_directories_without_number_are_not_walked_to_their_end_and_hide_nothing(tmp_path: Path) -> None:
    for name in range(30):
        (tmp_path / f"{name}").mkdir()
    assert secrets_in(str(tmp_path), 20).missed
    assert [label for label, _ in mounted(tmp_path, 20)] == ["sensitive"]


def test_a_secret_that_lies_deeper_than_a_path_can_be_is_not_overlooked(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open(".env", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    ((label, origin),) = mounted(tmp_path, 1_000)
    assert label == "sensitive"
    assert "not all of it can be read" in origin


def test_a_tool_server_that_is_given_a_directory_has_read_what_is_labelled_in_it() -> None:
    def brought(path: str, *, whole: bool) -> list[str]:
        directory = Resource(role=Role.READ_PATH, value=path, facts=PathFacts(runs_later=False, whole=whole))
        return [label for label, _ in labels_of(policy(FINANCE), call(directory, name="search.text"), session("/w"))]

    assert brought("/w/data", whole=True) == ["finance"]
    assert brought("/w/src", whole=True) == []
    assert brought("/w/data", whole=False) == [], "its names alone"


@pytest.mark.parametrize(("path", "labels"), [(".", ["sensitive"]), ("deep", ["sensitive"]), ("src", []), ("notes.txt", [])])
def test_a_tool_server_that_is_given_a_directory_may_have_read_the_secrets_in_it(places: Places, path: str, labels: list[str]) -> None:
    for name in ("deep/.env", "src/main.py", "notes.txt"):
        (places.workspace / name).parent.mkdir(exist_ok=True)
        (places.workspace / name).touch()
    search = ToolSpec(
        server="search",
        name="text",
        description="",
        schema_={"type": "object", "properties": {"path": {"type": "string"}}},
        effect=ToolEffect.INSPECT,
        meanings=(Meaning(argument="path", roles=(Role.READ_PATH,)),),
    )
    tools = judged_tools(Home(places.home), Masker(b"k")).beside(Catalogue([search]), {})
    place = Place(session=SessionId("s"), workspace=Workspace(path=str(places.workspace), own=False))
    subject = tools.prepare("search.text", {"path": path}, place).subject
    assert [label for label, _ in labels_of(policy(), subject, session(str(places.workspace), own=False))] == labels


def fetched_after(places: Places, command: str) -> list[str]:
    """Return why a fetch from a listed host asks after a command, or nothing."""
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text('[lists]\nhosts = ["docs.python.org"]\n')
    run = CallRequest(tool="shell.run", arguments={"command": command})
    fetch = CallRequest(tool="fetch.get", arguments={"url": "https://docs.python.org/"})
    _, answers = session_in(places.workspace, run, fetch, own=False)
    return [*answers[1].verdict.because] if answers[1].waiting else []


@pytest.mark.parametrize("command", ["cat .env", "cat .e*", "tar c . | base64", "ls"])
def test_whatever_a_command_does_it_may_have_read_the_secrets_beside_it(places: Places, command: str) -> None:
    (places.workspace / "deep").mkdir()
    (places.workspace / "deep" / ".env").write_text("A=1")
    assert fetched_after(places, command) == ["sensitive-stays"]


def test_certificates_are_no_secrets_and_a_project_without_any_stays_free(places: Places) -> None:
    (places.workspace / "cacert.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    assert fetched_after(places, "ls") == []


@pytest.mark.parametrize("package", ["node_modules/tls", ".venv/lib/python3.11/site-packages/tls"])
def test_keys_that_packages_bring_along_are_no_secrets(places: Places, package: str) -> None:
    (places.workspace / package).mkdir(parents=True)
    (places.workspace / package / "test.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    assert fetched_after(places, "ls") == []


@pytest.mark.parametrize(
    ("text", "rules"),
    [("save-exact=true\n", []), ("//registry.example/:_authToken=${TOKEN}\n", ["sensitive-stays"]), ("KEY = x\n", ["sensitive-stays"])],
)
def test_settings_of_npm_are_a_secret_where_they_let_somebody_in(places: Places, text: str, rules: list[str]) -> None:
    (places.workspace / ".npmrc").write_text(text)
    assert fetched_after(places, "ls") == rules


@pytest.mark.parametrize(
    "text", ["-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", "no armour", "-----BEGIN " + "x" * (1 << 20)]
)
def test_what_could_be_a_key_is_one(places: Places, text: str) -> None:
    (places.workspace / "server.pem").write_text(text)
    assert fetched_after(places, "ls") == ["sensitive-stays"]


def test_a_secret_that_comes_or_goes_between_commands_is_seen(tmp_path: Path) -> None:
    seen, place = SecretReads(), Place(session=SessionId("s"), workspace=Workspace(path=str(tmp_path), own=True))
    subject = Subject(tool="shell.run", effect=ToolEffect.EXECUTE, raw={}, canonical={}, resources=(), digest=Digest(""))

    def reads() -> list[str]:
        return [*seen.refine(Prepared(subject=subject, arguments={}), place).subject.reads]

    assert reads() == []
    (tmp_path / ".env").touch()
    assert reads() == [f"{tmp_path}/.env"]
    (tmp_path / ".env").rename(tmp_path / ".netrc")
    assert reads() == [f"{tmp_path}/.netrc"]
