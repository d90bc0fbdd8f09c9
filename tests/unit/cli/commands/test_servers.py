"""`curtainwall servers`: adding, trying out, annotating, and what a person is told when something is wrong."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curtainwall.compose.servers import needed_paths
from curtainwall.config.loader import load_config
from tests.support.in_process import Places, Said
from tests.support.servers import TOOL_SERVER

Run = Callable[..., Said]
COMMENTED = '# mine\n[lists]  # free\nhosts = ["a.org"]\n\n# the end\n'


def test_without_servers_it_says_how_to_add_one(run: Run) -> None:
    said = run("servers", "list")
    assert (said.code, said.out) == (0, "")
    assert "servers add NAME" in said.err
    assert run("servers", "list", "--output", "json").json == []


def test_add_writes_the_configuration_and_leaves_the_rest_as_it_is(run: Run, places: Places) -> None:
    places.home.mkdir()
    (places.home / "config.toml").write_text(COMMENTED)
    said = run(
        "servers", "add", "files", "--write", "{workspace}", "--env", "LANG", "--timeout", "90s", "--", "node", str(TOOL_SERVER), "-x"
    )
    assert said.code == 0, said.err
    text = (places.home / "config.toml").read_text()
    assert text.startswith(COMMENTED.rstrip())
    assert (places.home / "config.toml").stat().st_mode & 0o777 == 0o600
    section = load_config(places.home / "config.toml").servers["files"]
    assert (section.command, section.args, section.write, section.env, section.timeout) == (
        "node", (str(TOOL_SERVER), "-x"), ("{workspace}",), ("LANG",), 90,
    )  # fmt: skip
    assert section.read == (str(TOOL_SERVER),)
    assert [it["name"] for it in run("servers", "list", "--output", "json").json] == ["files"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("git", "--", "x"), "reserved"),
        (("A", "--", "x"), "lower-case"),
        (("x", "--trusted", "--read", "/usr", "--", "y"), "for the sandbox"),
        (("x", "--timeout", "soon", "--", "y"), "no length of time"),
        (("x", "--shared", "--write", "{workspace}", "--", "y"), "belongs to no session"),
        (("x", "--env", "OPENAI_API_KEY", "--", "y"), "[servers.x]: `OPENAI_API_KEY` is a key of ours"),
        (("x", "--network", "https://a.org", "--", "y"), "[servers.x]: "),
        (("x", "--trusted", "--network", "a.org", "--", "y"), "has your whole network"),
        (("x", "--env", "1BAD", "--", "y"), "neither the name of a variable nor `NAME=value`"),
    ],
)
def test_what_would_be_refused_later_is_not_written(words: tuple[str, ...], why: str, run: Run, places: Places) -> None:
    said = run("servers", "add", *words)
    assert (said.code, said.out) == (1, "")
    assert why in said.err
    assert not (places.home / "config.toml").exists()


def test_hosts_that_a_server_may_ask_for_are_given_when_it_is_added(run: Run, places: Places) -> None:
    assert run("servers", "add", "x", "--network", "api.github.com", "--network", "*.a.org", "--", "y").code == 0
    assert load_config(places.home / "config.toml").servers["x"].network == ("api.github.com", "*.a.org")
    assert run("servers", "list").code == 0


def test_what_is_missing_for_a_server_is_said_when_it_is_added(run: Run, tmp_path: Path) -> None:
    said = run("servers", "add", "x", "--read", str(tmp_path / "gone"), "--", "no-such-program")
    assert said.code == 0
    assert "the program `no-such-program` is not on the path yet" in said.err
    assert f"`{tmp_path / 'gone'}` does not exist; the server starts once it does" in said.err


def test_a_server_that_is_not_there_is_not_asked_about(run: Run) -> None:
    said = run("servers", "remove", "nope")
    assert said.code == 1
    assert "there is no server `nope`" in said.err


def test_a_server_is_added_once(run: Run) -> None:
    assert run("servers", "add", "x", "--", "y").code == 0
    again = run("servers", "add", "x", "--", "z")
    assert again.code == 1
    assert "there is a server `x` already" in again.err


def test_a_path_that_a_server_may_read_stands_there_once(run: Run, places: Places) -> None:
    above = str(TOOL_SERVER.parent)
    twice = ("--read", above, "--read", f"{above}/", "--read", above)
    run("servers", "add", "x", *twice, "--write", "{workspace}", "--", "python3", str(TOOL_SERVER))
    section = load_config(places.home / "config.toml").servers["x"]
    assert (section.read, section.write) == ((above,), ("{workspace}",))


def test_a_server_is_removed_with_its_roles_and_the_rest_stays(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    config = places.home / "config.toml"
    rest = '# mine\n[lists]\nhosts = ["a.org"]\n\n[servers.b]\ncommand = "y"\n'
    config.write_text(f'[servers.a]\ncommand = "x"\n\n[servers.a.tools.t]\neffect = "inspect"\n\n{rest}')
    (places.home / "servers").mkdir()
    (places.home / "servers" / "a.json").write_text("{}")
    asked = run("servers", "remove", "a")
    assert asked.code == 2
    assert "--yes" in asked.err
    assert run("servers", "remove", "a", "--yes", "--output", "json").json == {"name": "a", "path": str(config)}
    loaded = load_config(config)
    assert ([*loaded.servers], loaded.lists.hosts) == (["b"], ("a.org",))
    assert config.read_text().strip() == rest.strip()
    assert not (places.home / "servers" / "a.json").exists()
    gone = run("servers", "remove", "a", "--yes")
    assert gone.code == 1
    assert "there is no server `a`" in gone.err
    assert run("servers", "remove", "b", "--yes").code == 0
    assert run("servers", "list", "--output", "json").json == []


@pytest.mark.parametrize(
    "text", ['servers.a.command = "x"\n', '[servers]\na.command = "x"\n', '[servers."a"]\ncommand = """\n[servers.b]\n"""\n']
)
def test_a_server_is_removed_however_it_is_written(run: Run, places: Places, text: str) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text(text)
    assert run("servers", "remove", "a", "--yes").code == 0
    assert load_config(places.home / "config.toml").servers == {}


def test_a_server_that_stops_every_command_can_be_removed(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text('[servers.shell]\ncommand = "x"\n')
    assert run("servers", "list").code == 1
    assert run("servers", "remove", "shell", "--yes").code == 0
    assert run("servers", "list").code == 0


def test_a_bad_server_in_the_file_stops_every_command(run: Run, places: Places) -> None:
    places.home.mkdir()
    (places.home / "config.toml").write_text('[servers.shell]\ncommand = "x"\n')
    for words in (("servers", "list"), ("policy", "rules"), ("tools", "list")):
        said = run(*words)
        assert (said.code, said.out) == (1, "")
        assert "[servers.shell]: this name is reserved" in said.err
    (places.home / "config.toml").write_text('[servers.x]\ncommand = "x"\nenv = ["OPENAI_API_KEY"]\n')
    assert "`OPENAI_API_KEY` is a key of ours" in run("servers", "list").err


@pytest.mark.usefixtures("bubblewrap")
def test_what_is_wrong_with_a_server_is_said_in_one_line(run: Run, places: Places) -> None:
    run("servers", "add", "gone", "--", "no-such-program")
    run("servers", "add", "crash", "--", "/usr/bin/python3", str(TOOL_SERVER), "--crash")
    run("servers", "add", "far", "--", "/no/such/program")
    for name, why in (
        ("gone", "the program `no-such-program` of `gone` is not on the path; install it, or correct `servers.gone.command`"),
        ("far", "the program `/no/such/program` of `far` is not there or cannot be run; install it, or correct `servers.far.command`"),
        ("crash", "I cannot start: the moon is full"),
        ("nobody", "there is no server `nobody`"),
    ):
        for command in ("test", "annotate"):
            said = run("servers", command, name)
            assert (said.code, said.out) == (1, "")
            assert why in said.err
            assert said.err.count("\n") == 1


@pytest.mark.usefixtures("bubblewrap")
def test_what_failed_and_what_to_do_is_said_before_the_servers_own_words(run: Run, places: Places) -> None:
    run("servers", "add", "crash", "--", "/usr/bin/python3", str(TOOL_SERVER), "--crash")
    run("servers", "add", "secretive", "--", "/usr/bin/python3", str(TOOL_SERVER), "--secretive")
    for name, ours, its in (
        ("crash", "the server `crash` ended before it had answered; it may lack a path (`servers.crash.read`)", "the moon is full"),
        ("secretive", "the server `secretive` was started, but does not say what it offers", "boom"),
    ):
        for command in ("test", "annotate"):
            said = run("servers", command, name)
            assert (said.code, said.out) == (1, "")
            assert said.err.startswith(f"curtainwall: {ours}")
            assert f"{places.home}/logs/server-{name}.log" in said.err
            assert said.err.index(ours) < said.err.index(its)


@pytest.mark.usefixtures("bubblewrap")
def test_a_server_that_knows_no_ping_is_fine(run: Run) -> None:
    run("servers", "add", "plain", "--", "/usr/bin/python3", str(TOOL_SERVER), "--no-ping")
    assert run("servers", "test", "plain").code == 0
    assert run("servers", "annotate", "plain").code == 0


@pytest.mark.usefixtures("bubblewrap")
def test_from_adding_to_calling(run: Run, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged() -> Any:
        call = b'{"tool": "bad.read_file", "arguments": {"path": "x"}}\n'
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(call)))
        return run("policy", "check", "--workspace", str(places.workspace)).json

    run("servers", "add", "bad", "--", "/usr/bin/python3", str(TOOL_SERVER))
    tried = run("servers", "test", "bad", "--output", "json").json
    assert tried["about"] == "toolserver 1"
    assert {tool["standing"] for tool in tried["tools"]} == {"not reviewed"}
    proposal = run("servers", "annotate", "bad")
    assert "[servers.bad.tools.read_file]" in proposal.out
    assert 'arguments = {path = ["read-path"]}' in proposal.out
    assert "nothing is written" in proposal.err
    assert "tools" not in (places.home / "config.toml").read_text()
    assert (judged()["effect"], judged()["because"]) == ("deny", ["unknown-tool"])
    assert "servers annotate bad" in judged()["reason"]
    assert run("servers", "annotate", "bad", "--write", "--yes").code == 0
    assert judged()["effect"] == "allow"
    assert {tool["standing"] for tool in run("servers", "test", "bad", "--output", "json").json["tools"]} == {"ready"}
    assert "bad.read_file" in {tool["name"] for tool in run("tools", "list", "--output", "json").json}
    assert "read-path" in run("tools", "show", "bad.read_file").out
    assert run("servers", "list", "--output", "json").json[0]["suspended"] == 0
    assert "none has changed" in run("servers", "annotate", "bad").err


@pytest.mark.usefixtures("bubblewrap")
def test_what_has_changed_is_shown_and_reviewed(run: Run, places: Places) -> None:
    run("servers", "add", "bad", "--", "/usr/bin/python3", str(TOOL_SERVER))
    run("servers", "annotate", "bad", "--write", "--yes")
    config = places.home / "config.toml"
    config.write_text(config.read_text().replace(f'args = ["{TOOL_SERVER}"]', f'args = ["{TOOL_SERVER}", "--changed"]'))
    standings = {tool["name"]: tool["standing"] for tool in run("servers", "test", "bad", "--output", "json").json["tools"]}
    assert (standings["echo"], standings["read_file"]) == ("changed", "ready")
    shown = run("servers", "annotate", "bad")
    assert "# `echo` has changed since it was reviewed" in shown.out
    assert '\n# + description: "says something else now"\n' in shown.out
    assert '\n# - description: "says what a test wants"\n' in shown.out
    assert "# - inputSchema" not in shown.out, "only what differs is marked"
    run("servers", "annotate", "bad", "--write", "--yes")
    standings = {tool["name"]: tool["standing"] for tool in run("servers", "test", "bad", "--output", "json").json["tools"]}
    assert set(standings.values()) == {"ready"}


def test_doctor_shows_who_is_trusted(run: Run) -> None:
    run("servers", "add", "free", "--trusted", "--", "node")
    findings = {it["name"]: it for it in run("doctor", "--output", "json").json["findings"]}
    assert (findings["servers"]["standing"], findings["servers"]["what"]) == ("warn", "outside any sandbox: free")


def test_what_a_command_line_needs_is_found(tmp_path: Path) -> None:
    venv, modules = tmp_path / "venv", tmp_path / "app" / "node_modules"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path}/python/bin\nversion = 3\n")
    (modules / "@x" / "server").mkdir(parents=True)
    script, program = modules / "@x" / "server" / "index.js", venv / "bin" / "server"
    script.touch()
    program.touch()
    assert needed_paths("node", [str(script), "--flag", "gone/away"]) == (str(modules),)
    assert needed_paths(str(program), []) == (str(venv), str(tmp_path / "python"))
    assert needed_paths("/usr/bin/python3", ["-m", "x"]) == ()
