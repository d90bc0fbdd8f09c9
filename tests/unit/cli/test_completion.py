"""What could be written next: every command, choice and id, at once, without a trace and without a word when something is wrong."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.cli.completion import TABLE, database
from curtainwall.cli.completion_table import render
from curtainwall.cli.main import COMMANDS
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.config.agents import LOCAL, SHIPPED
from curtainwall.host.home import find_home
from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, Said, opened, session_in

Run = Callable[..., Said]
OUTSIDE = read("/etc/hostname")


@pytest.fixture
def ask(run: Run) -> Callable[..., list[str]]:
    """Return what a shell hears of the words so far: what is wanted first, then candidates without their meanings."""

    def asked(*words: str, shell: str = "fish") -> list[str]:
        said = run("--complete", shell, "--", "cw", *words)
        assert (said.code, said.err) == (0, "")
        return [line.partition("\t")[0] for line in said.out.splitlines()]

    return asked


Asked = Callable[..., list[str]]


@covers("cli.completion")
def test_the_table_is_what_the_commands_say() -> None:
    assert TABLE.read_text(encoding="utf-8") == render(), "run `python -m curtainwall.cli.completion_table`"


@covers("cli.completion")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((""), ["words", *COMMANDS]),
        (("se",), ["words", "serve", "sessions", "servers"]),
        (("--v",), ["words", "--verbose", "--version"]),
        (("grants", ""), ["words", "list", "revoke"]),
        (("sessions", "re"), ["words", "rename", "replay", "redo", "restore"]),
        (("start", "--on-ask", ""), ["words", "wait", "park", "deny"]),
        (("start", "--on-ask=d"), ["words", "--on-ask=deny"]),
        (("start", "--mode", "a"), ["words", "accept-edits"]),
        (("start", "--output", ""), ["words", "text", "json", "stream-json"]),
        (("start", "--model", ""), ["words", "demo", "script:", "anthropic:", "openai:"]),
        (("start", "--model", "script:x"), ["files"]),
        (("start", "--workspace", ""), ["directories"]),
        (("start", "--policy", ""), ["files"]),
        (("start", "some", "task", ""), ["words"]),
        (("start", "--yes=", ""), ["words"]),
        (("start", "--", "--mo"), ["words"]),
        (("approve", "--for", ""), ["words", "once", "session", "project"]),
        (("approve", "abc", "--fo"), ["words", "--for"]),
        (("approve", "abc", "--for", "once", "--fo"), ["words"]),
        (("sessions", "list", "--status", "w"), ["words", "working", "waiting"]),
        (("sessions", "budget", "abc", ""), ["words", "tokens", "steps", "seconds", "dollars"]),
        (("tools", "show", "fetch"), ["words", "fetch.get"]),
        (("policy", "test", ""), ["files"]),
        (("completion", ""), ["words", "bash", "zsh", "fish"]),
        (("nonsense", ""), ["words"]),
        (("sessions", "replay", "some"), ["files"]),
    ],
)
def test_a_word_goes_on_as_its_command_takes_it(ask: Asked, words: tuple[str, ...], expected: list[str]) -> None:
    assert ask(*(words or ("",))) == expected


@covers("cli.completion")
def test_ids_of_sessions_approvals_and_grants_are_known(ask: Asked, run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE)
    for command in ("show", "rename", "fork", "export", "replay", "delete", "budget", "history"):
        assert ask("sessions", command, session[:2]) == ["words", session], command
    assert ask("sessions", "delete", session, "") == ["words", session], "more than one may go"
    assert ask("start", "--resume", "") == ask("start", "--fork", "") == ["words", session]
    assert ask("start", f"--resume={session[:3]}") == ["words", f"--resume={session}"]
    (row,) = run("approvals", "list", "--output", "json").json
    assert ask("approve", "") == ask("deny", "") == ["words", row["id"]]
    grant = run("approve", row["id"], "--for", "session", "--output", "json").json["grant"]
    assert ask("approve", "") == ["words"], "it is answered"
    assert ask("grants", "revoke", "") == ["words", grant]
    run("grants", "revoke", grant)
    assert ask("grants", "revoke", "") == ["words"]


@covers("cli.completion")
def test_names_in_the_configuration_are_known(ask: Asked, places: Places) -> None:
    shipped = ["builtin", LOCAL, *SHIPPED]
    assert ask("start", "--agent", "") == ["words", *shipped], "`AGENTS` in `cli/completion.py` repeats the names: it imports nothing"
    assert ask("teams", "ask", "") == ["words"]
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text(
        "[agents.codex]\n[agents.mine]\n[teams.back]\ndescription = 'the server'\n[teams.front]\n"
        '[teams."$(touch x)"]\n[cron.tidy]\n[servers.clock]\n'
    )
    assert ask("start", "--agent", "") == ["words", *shipped, "mine"]
    for words in (("teams", "ask"), ("teams", "ask", "--from"), ("teams", "history"), ("mcp", "--team")):
        assert ask(*words, "") == ["words", "back", "front"], words
    assert ask("cron", "run", "") == ask("cron", "history", "t") == ["words", "tidy"]
    assert ask("servers", "remove", "") == ask("servers", "test", "c") == ask("tools", "list", "--server", "") == ["words", "clock"]
    assert ask("servers", "add", "") == ["words"], "a new one has a new name"
    for broken in ("[teams", "teams = 3", "[teams]\nback = 3"):
        (places.home / "config.toml").write_text(broken)
        assert ask("teams", "ask", "") == ["words"]


@covers("cli.completion")
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("start", "--mode", "=", "pl"), ["words", "plan"]),
        (("start", "--mode", "="), ["words", "plan", "review", "default", "accept-edits", "bypass"]),
        (("start", "--model", "=", "anthropic", ":"), ["words", ""]),
        (("start", "--model", "anthropic", ":"), ["words", ""]),
        (("start", "--model", "script", ":", "x"), ["files"]),
        (("start", "--model", "anth"), ["words", "anthropic:"]),
    ],
)
def test_bash_gets_the_last_piece_of_a_word_that_it_has_split(ask: Asked, pieces: tuple[str, ...], expected: list[str]) -> None:
    assert ask(*pieces, shell="bash") == expected


@covers("cli.completion-is-quiet")
def test_a_name_is_shown_as_one_plain_line_and_is_never_a_candidate(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    run("sessions", "rename", session, "a\tb\n$(touch x) \x1b[2J " + "long " * 30)
    (kind, line) = run("--complete", "zsh", "--", "cw", "sessions", "show", "").out.splitlines()
    value, _, meaning = line.partition("\t")
    assert (kind, value) == ("words", session)
    assert meaning.startswith("ready a b $(touch x) [2J long")
    assert (meaning.isprintable(), len(meaning)) == (True, 60)


@covers("cli.completion-is-quiet")
def test_what_a_shell_would_read_otherwise_is_no_candidate(ask: Asked, places: Places) -> None:
    session, _ = session_in(places.workspace)
    with closing(sqlite3.connect(places.home / "curtainwall.db")) as db, db:
        db.execute("UPDATE session SET session = '$(touch x)' WHERE session = ?", (session,))
    db.close()
    assert ask("sessions", "show", "") == ["words"]


@covers("cli.completion-is-quiet")
@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_log_that_cannot_be_read_is_passed_over_in_silence(run: Run, places: Places, content: bytes) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "curtainwall.db").write_bytes(content)
    for shell in ("bash", "zsh", "fish"):
        assert run("--complete", shell, "--", "cw", "start", "--resume", "") == Said(0, "", "")


@covers("cli.completion-is-quiet")
@pytest.mark.parametrize("words", [(), ("bash",), ("bash", "--"), ("fish", "--", "cw"), ("none", "x", "y", "z")])
def test_a_question_that_makes_no_sense_is_answered_with_nothing_that_hurts(run: Run, words: tuple[str, ...]) -> None:
    said = run("--complete", *words)
    assert (said.code, said.err) == (0, "")


def _everything(home: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in home.rglob("*")}


@covers("cli.completion-is-quiet")
def test_completing_writes_nothing(ask: Asked, places: Places) -> None:
    ask("sessions", "show", "")
    assert not places.home.exists()
    session, _ = session_in(places.workspace)
    before = _everything(places.home)
    assert ask("sessions", "show", "") == ["words", session]
    assert _everything(places.home) == before


@covers("cli.completion-is-quiet")
def test_what_a_running_process_has_just_written_is_known(ask: Asked, places: Places) -> None:
    async def look() -> tuple[str, list[str]]:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)
            before = set(_everything(places.home))
            told = ask("sessions", "show", "")
            assert set(_everything(places.home)) == before
            return session, told

    session, told = asyncio.run(asyncio.wait_for(look(), 60))
    assert told == ["words", session]


@pytest.mark.parametrize(
    "environ", [{"CURTAINWALL_HOME": "/a/../b"}, {"CURTAINWALL_HOME": "~/x"}, {"CURTAINWALL_HOME": "here"}, {"CURTAINWALL_HOME": ""}, {}]
)
def test_the_log_is_looked_for_where_every_command_finds_it(places: Places, environ: dict[str, str]) -> None:
    assert database(environ) == find_home(environ).database


@covers("cli.completion-is-quick")
def test_completing_imports_little() -> None:
    code = (
        "import sys; sys.argv = ['cw', *'--complete bash -- cw start --resume'.split(), '']; from curtainwall.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules, file=sys.stderr)"], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"typer", "pydantic", "asyncio", "rich", "curtainwall.model.events", "curtainwall.store"}
    assert "curtainwall.cli.completion" in loaded


@covers("cli.completion")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_runs_the_program_that_printed_it_and_evaluates_nothing(run: Run, shell: str) -> None:
    said = run("completion", shell)
    assert (said.code, said.err) == (0, "")
    assert f"{sys.executable} -P -m curtainwall --complete {shell} -- " in said.out
    assert "eval " not in said.out
    assert "@PROGRAM@" not in said.out
    assert "cw" in said.out
    assert run("completion", "tcsh").code == 2
