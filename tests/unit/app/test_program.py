"""The program's manners: exit codes, one line per error, one document per command, quick answers to small questions."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from curtainwall import __version__
from curtainwall.app.main import COMMANDS
from tests.unit.app.conftest import Places, Said

Run = Callable[..., Said]


def test_version_and_help(run: Run) -> None:
    assert run("--version") == Said(0, f"curtainwall {__version__}\n", "")
    told = run("--help")
    assert told.code == 0
    assert all(f"  {name} " in told.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    told = run(name, "--help")
    assert told.code == 0
    assert told.out.startswith(f"Usage: curtainwall {name}")


@pytest.mark.parametrize(
    "words",
    [("nonsense",), ("config", "nonsense"), ("config", "show", "--nonsense"), ("approve",), ("sessions", "list", "--status", "sleepy"),
     ("sessions", "list", "--since", "later"), ("policy", "check", "--workspace", "a", "--project", "b"),
     ("policy", "check", "--mode", "free"),
     ("sessions", "list", "--limit", "0"), ("config", "show", "--output", "xml")],
)  # fmt: skip
def test_a_misused_command_is_one_line_and_code_two(run: Run, words: tuple[str, ...]) -> None:
    said = run(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("curtainwall: ")
    assert len(said.err.splitlines()) == 1


def test_without_a_command_the_overview_is_shown_as_an_error(run: Run) -> None:
    said = run()
    assert (said.code, said.out) == (2, "")
    assert "sessions" in said.err


def test_what_an_agent_wrote_cannot_move_the_cursor(run: Run) -> None:
    said = run("approve", "\x1b[2Jx")
    assert said.code == 1
    assert "\x1b" not in said.err
    assert "\\x1b[2Jx" in said.err


@pytest.mark.parametrize(
    "words",
    [("sessions", "list"), ("approvals", "list"), ("grants", "list"), ("tools", "list"), ("tools", "show", "fetch.get"),
     ("policy", "rules"), ("policy", "rules", "read-outside"), ("config", "show"), ("config", "path"),
     ("policy", "explain", "fetch.get", '{"url": "https://a.org"}')],
)  # fmt: skip
def test_json_is_exactly_one_document_and_nothing_is_written(run: Run, places: Places, words: tuple[str, ...]) -> None:
    said = run(*words, "--output", "json")
    assert said.code == 0
    assert said.json is not None
    assert not places.home.exists()


def test_a_fault_of_ours_is_one_line_and_shows_itself_on_demand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "broken", COMMANDS["doctor"]._replace(module="nowhere"))
    said = run("broken")
    assert said.code == 1
    assert "a fault of ours" in said.err
    assert "CURTAINWALL_DEBUG=1" in said.err
    monkeypatch.setenv("CURTAINWALL_DEBUG", "1")
    with pytest.raises(ModuleNotFoundError):
        run("broken")


def test_small_questions_import_little() -> None:
    code = (
        "import sys; sys.argv = ['curtainwall', {!r}]; from curtainwall.app.main import main; main(); print(*sys.modules, file=sys.stderr)"
    )
    for word, banned in (("--version", ("typer", "pydantic")), ("--help", ("pydantic", "rich", "cedarpy", "curtainwall.model"))):
        done = subprocess.run([sys.executable, "-c", code.format(word)], capture_output=True, text=True, check=True)
        assert not set(done.stderr.split()) & set(banned), word


def test_doctor_says_what_holds(run: Run, places: Places) -> None:
    told = run("doctor", "--output", "json").json
    assert {"kernel", "landlock", "bubblewrap", "docker", "sqlite", "file system", "disk sync", "home", "policy"} <= {
        it["name"] for it in told["findings"]
    }
    assert all(it["todo"] for it in told["findings"] if it["standing"] != "ok")
    assert not places.home.exists()


def test_doctor_finds_an_open_home_and_rules_that_do_not_load(run: Run, places: Places) -> None:
    (places.home / "policy").mkdir(parents=True, mode=0o755)
    places.home.chmod(0o755)
    (places.home / "policy" / "x.cedar").write_text("nonsense")
    said = run("doctor", "--output", "json")
    assert said.code == 1
    assert {it["name"] for it in said.json["findings"] if it["standing"] == "fail"} == {"home", "policy"}
