"""The program's manners: exit codes, one line per error, one document per command, quick answers to small questions."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall import __version__
from curtainwall.channels.terminal import wants_colour
from curtainwall.cli.completion import TABLE, CommandSpec
from curtainwall.cli.main import COMMANDS
from curtainwall.cli.screen import paint
from curtainwall.serve.service import SERVICES
from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, Said, session_in
from tests.support.repository import ROOT

Run = Callable[..., Said]


def test_version_and_help(run: Run) -> None:
    assert run("--version") == Said(0, f"curtainwall {__version__}\n", "")
    told = run("--help")
    assert told.code == 0
    assert [line.split()[0] for line in told.out.partition("Commands:\n")[2].splitlines()] == list(COMMANDS)
    assert all(command.about in told.out for command in COMMANDS.values()), "an overview with cut lines is none"


def test_the_agents_are_listed_with_what_each_lacks(run: Run) -> None:
    told = run("agents", "list")
    assert told.code == 0
    rows = {line.split()[0]: line for line in told.out.splitlines() if line}
    assert rows["builtin"].endswith("yes")
    assert {"claude-local", "claude-code", "codex", "opencode", "gemini"} <= set(rows)
    assert "goose" not in rows, "only agents with a recipe ship"
    listed = run("agents", "list", "--output", "json").json
    assert [it["name"] for it in listed] == [line.split()[0] for line in told.out.splitlines()[1 : len(listed) + 1]]
    assert listed[0]["runnable"] is True


def test_everything_that_an_agent_lacks_is_named_and_a_key_file_that_cannot_be_read_is_no_key(
    run: Run, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    unreadable = tmp_path / "a-directory"
    unreadable.mkdir()
    lists = "".join(f'[agents.{name}.keys.anthropic]\nfile = "{unreadable}"\n' for name in ("claude-code", "claude-local"))
    (places.home / "config.toml").write_text(f'[processes]\nprogram = "{tmp_path}/no-claude"\n{lists}')
    listed = {it["name"]: it for it in run("agents", "list", "--output", "json").json}
    for words in ("does not answer", "there is no key for anthropic"):
        assert words in listed["claude-code"]["why"]
    for words in (f"{tmp_path}/no-claude", f"`claude-local` cannot get the key for its models: `{unreadable}` is not a file"):
        assert words in listed["claude-local"]["why"]
    told = run("agents", "list").out
    assert sum("does not answer" in line for line in told.splitlines()) == 1, "what several lack is told once"


def test_the_doctor_names_the_model_of_new_sessions(run: Run, places: Places) -> None:
    assert "set ANTHROPIC_API_KEY" in run("doctor").out
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text('[model]\nname = "demo"\n')
    said = run("doctor").out
    assert "demo, a stand-in" in said
    assert ("`model.name` in the configuration chooses it" in said, "set ANTHROPIC_API_KEY" in said) == (True, False)


@pytest.mark.parametrize(
    ("environ", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], coloured: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    if "NO_COLOR" not in environ:
        monkeypatch.delenv("NO_COLOR", raising=False)
    assert ("\x1b[" in paint("word", "ok"), wants_colour(sys.stdout)) == (coloured, coloured)


def test_a_skill_that_cannot_be_used_is_shown_with_the_reason(run: Run, places: Places) -> None:
    folder = places.home / "skills" / "broken"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("no head\n")
    assert f"`{folder}` is not usable: its SKILL.md does not begin with" in run("skills", "show", "broken").err
    assert "there is no skill `other`" in run("skills", "show", "other").err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    told = run(name, "--help")
    assert told.code == 0
    assert told.out.startswith(f"Usage: curtainwall {name}")


def _described() -> dict[str, CommandSpec]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("words", [words for words, it in _described().items() if not it["commands"]])
def test_the_help_shows_what_a_user_writes_and_no_types(run: Run, words: str) -> None:
    told = run(*words.split(), "--help").out
    assert re.findall(r"<(?:\w+\[|\w+>|\w+ range|[\w-]+\|)|x[<>]=|=x", told) == []


@pytest.mark.parametrize("words", [words for words, it in _described().items() if not it["commands"]])
def test_the_help_says_what_each_argument_is(words: str) -> None:
    assert [it for it in _described()[words]["arguments"] if not it["about"]] == []


def test_the_help_of_a_command_says_more_than_the_overview(run: Run) -> None:
    started = " ".join(run("start", "--help").out.split())
    assert "Exit codes: 0 done, 1 failed, 2 usage, 3 parked on an approval or a budget" in started
    assert "a second signal ends the process at once" in " ".join(run("serve", "--help").out.split())
    assert "or where CURTAINWALL_HOME says" in run("--help").out


def test_the_help_names_files_directories_and_what_may_be_written_again(run: Run) -> None:
    told = run("start", "--help").out
    assert told.startswith("Usage: curtainwall start [OPTIONS] [TASK]…\n")
    for written in ("\n  TASK…  one task", "--policy FILE ", "--workspace DIR ", "--name NAME ", "--on-ask wait|park|deny "):
        assert written in told
    assert run("sessions", "why", "--help").out.startswith("Usage: curtainwall sessions why [OPTIONS] SESSION [CALL]\n")
    assert run("sessions", "delete", "--help").out.startswith("Usage: curtainwall sessions delete [OPTIONS] SESSION…\n")
    assert "[default: 50; 1 to 1000]" in run("teams", "history", "--help").out
    assert "[default: 20; at least 1]" in run("sessions", "history", "--help").out


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("session", "list"), "there is no command `session`; did you mean `sessions`? see `curtainwall --help`"),
        (("plans",), "there is no command `plans`; see `curtainwall --help`"),
        (("start", "--wrkspace", "."), "there is no option `--wrkspace`; did you mean `--workspace`? see `curtainwall start --help`"),
        (
            ("sessions", "list", "--json"),
            "there is no option `--json`; did you mean `--output json`? see `curtainwall sessions list --help`",
        ),
        (("approve",), "missing argument `ID`; see `curtainwall approve --help`"),
        (("completion",), "missing argument `shell`; choose from bash, zsh, fish; see `curtainwall completion --help`"),
        (("deny", "a", "b c"), "there is no place for `b c`; put what belongs together into quotes; see `curtainwall deny --help`"),
        (("start", "--resume"), "option `--resume` requires an argument; see `curtainwall start --help`"),
        (("sessions", "list", "--limit", "0"), "invalid value for `--limit`: write 1 or more; see `curtainwall sessions list --help`"),
        (("sessions", "list", "--limit", "x"), "invalid value for `--limit`: write a whole number; see `curtainwall sessions list --help`"),
        (("start", " "), "the task is empty; say what to do, or leave it out for a conversation"),
        (
            ("approve", "x", "--for", "ever"),
            "invalid value for `--for`: `ever` is not one of `once`, `session`, `project`; see `curtainwall approve --help`",
        ),
    ],
)
def test_a_misuse_is_told_in_the_words_of_the_house(run: Run, words: tuple[str, ...], said: str) -> None:
    assert run(*words) == Said(2, "", f"curtainwall: {said}\n")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.is_group])
def test_no_line_of_an_overview_is_cut(run: Run, name: str) -> None:
    assert "..." not in run(name, "--help").out.partition("Commands:\n")[2]


def test_a_reader_that_has_gone_is_told_apart_from_a_failure(places: Places) -> None:
    command = f"{sys.executable} -m curtainwall policy rules | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=places.workspace)
    assert (ended.returncode, ended.stderr) == (141, "")


@covers("start.a-reader-that-has-gone")
@pytest.mark.parametrize(("shape", "ends"), [("stream-json", {"interrupted"}), ("text", {"interrupted", "done"})])
def test_a_task_whose_reader_has_gone_is_interrupted_and_its_session_says_so(run: Run, places: Places, shape: str, ends: set[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "curtainwall", "start", "--model", "demo", "--output", shape, "list the files"]
    with os.fdopen(writer, "wb") as gone:
        ended = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False, cwd=places.workspace)
    (told,) = run("sessions", "list", "--output", "json").json
    assert (ended.returncode, told["status"], "Traceback" in ended.stderr) == (141, "ready", False), ended.stderr
    assert told["last_turn"] in ends, "text is written when it is whole, and the turn may be over by then"


EARLY = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "curtainwall.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["curtainwall", "sessions", "list"]
from curtainwall.cli.entry import program
program()
"""


def test_a_name_that_no_list_could_show_is_refused_with_how_long_it_may_be(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    long = "x" * 201
    for words in (("start", "--name", long, "hi"), ("sessions", "rename", session, long), ("sessions", "fork", session, "--name", long)):
        said = run(*words)
        assert (said.code, "a name has 200 letters at most, and this one has 201; choose a shorter one" in said.err) == (1, True), words
    assert len(run("sessions", "list", "--output", "json").json) == 1, "nothing was opened"


@covers("cli.an-early-interrupt-is-quiet")
def test_ctrl_c_while_the_program_is_still_loading_ends_it_without_a_word(places: Places) -> None:
    ended = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False, cwd=places.workspace)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
    ignored = f"trap '' INT; exec {sys.executable} -c {shlex.quote(EARLY)}"
    ended = subprocess.run(["bash", "-c", ignored], capture_output=True, text=True, check=False, cwd=places.workspace)
    assert (ended.returncode, "there are no sessions yet" in ended.stderr) == (0, True), "whoever started it wanted it to go on"


def test_ctrl_c_once_the_program_has_loaded_is_for_whatever_runs(places: Places) -> None:
    """Whoever is in the middle of something hears of it, and can leave in order."""
    late = EARLY.replace('"curtainwall.cli.main"', '"curtainwall.cli.commands.sessions"')
    told = late.replace("program()\n", "import atexit\natexit.register(lambda: print('in order'))\nprogram()\n")
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False, cwd=places.workspace)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "in order\n", "")


def test_every_way_in_begins_with_the_lines_that_make_ctrl_c_quiet() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts.values()) == {"curtainwall.cli.entry:program"}
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import curtainwall.cli.entry"], capture_output=True, text=True, check=True
    )
    assert not re.search(r"\| +(typing|typer|asyncio|pydantic)$", loaded.stderr, re.MULTILINE), "what is slow comes after them"


def test_streams_that_were_closed_lead_nowhere(places: Places) -> None:
    for closed in (">&-", "<&-", "2>&-", ">&- 2>&- <&-"):
        command = ("sh", "-c", f"{sys.executable} -m curtainwall sessions list --output json {closed}")
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=places.workspace)
        assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "" if closed.startswith(">") else "[]\n"), closed


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


def test_small_questions_import_little(places: Places) -> None:
    code = (
        "import sys; sys.argv = ['curtainwall', *{!r}]; from curtainwall.cli.main import main; main(); print(*sys.modules, file=sys.stderr)"
    )
    for words, banned in (
        (["--version"], ("typer", "pydantic")),
        (["--help"], ("pydantic", "rich", "cedarpy", "curtainwall.model")),
        (["sessions", "list"], ("jinja2", "markdown_it", "starlette", "prompt_toolkit", "pydantic_ai", "mcp", "nio", "aiodocker")),
    ):
        done = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True, text=True, check=True)
        assert not set(done.stderr.split()) & set(banned), words


def test_what_is_served_loads_matrix_only_where_it_is_configured() -> None:
    code = f"import sys; [__import__(name) for name in {list(SERVICES.values())}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"starlette", "curtainwall.serve.matrix"} <= set(done.stdout.split())
    assert not {"nio", "curtainwall.channels.matrix"} & set(done.stdout.split())


def test_a_command_looks_for_garbage_but_not_in_what_it_imported(places: Places) -> None:
    told = "import atexit, gc, sys; atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000, file=sys.stderr))"
    code = f"{told}; sys.argv = ['curtainwall', 'sessions', 'list']; from curtainwall.cli.entry import program; program()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split()[-2:] == ["True", "True"]


def test_doctor_says_what_holds(run: Run, places: Places) -> None:
    told = run("doctor", "--output", "json").json
    assert {"kernel", "landlock", "bubblewrap", "docker", "sqlite", "file system", "disk sync", "home", "policy"} <= {
        it["name"] for it in told["findings"]
    }
    assert all(it["todo"] for it in told["findings"] if it["standing"] != "ok")
    assert not places.home.exists()


@pytest.mark.usefixtures("bubblewrap")
def test_whoever_started_us_may_be_deaf_to_the_ends_of_children_and_we_are_not(tmp_path: Path) -> None:
    deaf = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    words = [sys.executable, "-c", deaf, "-m", "curtainwall", "doctor"]
    environ = {**os.environ, "CURTAINWALL_HOME": str(tmp_path / "home")}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=100)
    assert "does not run" not in done.stdout
    assert "commands run without network" in done.stdout


def test_doctor_says_that_the_sessions_of_a_copied_home_work_in_the_first_one(
    run: Run, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def standing() -> tuple[str, str]:
        (found,) = (it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "workspaces")
        return found["standing"], found["what"]

    assert run("start", "--model", "demo", "hello").code == 0
    assert standing()[0] == "ok"
    copy = places.home.with_name("copy")
    shutil.copytree(places.home, copy)
    monkeypatch.setenv("CURTAINWALL_HOME", str(copy))
    word, what = standing()
    assert word == "warn"
    assert str(places.home) in what


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no file system in memory is mounted here")
def test_doctor_warns_of_a_home_that_is_gone_with_the_next_start_of_the_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        monkeypatch.setenv("CURTAINWALL_HOME", place)
        (found,) = (it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "file system")
    assert (found["standing"], found["what"]) == ("warn", "tmpfs: everything is gone when the machine restarts")
    assert "put CURTAINWALL_HOME on a disk" in found.values()


def test_doctor_looks_for_local_agents_where_the_configuration_says(
    run: Run, places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def standing() -> tuple[str, str]:
        (found,) = (it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "local agents")
        return found["standing"], found["what"]

    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("socat", "own-claude"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    places.home.mkdir(mode=0o700)
    config = places.home / "config.toml"
    assert standing() == ("ok", "no `claude` on the path; `start --agent claude-local` would need it")
    config.write_text(f'[peers]\nwarm = 2\n[teams.backend]\nproject = "{places.workspace}"\n')
    assert standing()[1].endswith("would need it; `peers.warm` starts nothing, as no team is served by `claude-local`")
    team = f'[teams.backend]\nproject = "{places.workspace}"\nagent = "claude-local"\n'
    config.write_text(team)
    assert standing() == ("warn", "no `claude` on the path; without it these teams cannot work: backend")
    config.write_text(f'{team}[processes]\nprogram = "{tools / "own-claude"}"\n')
    assert standing() == ("ok", f"`start --agent claude-local` finds `{tools / 'own-claude'}` and `socat`")
    config.write_text(f'{team}[processes]\nprogram = "{tools / "gone"}"\n')
    assert standing() == ("warn", f"no `{tools / 'gone'}`; without it these teams cannot work: backend")


def test_doctor_finds_an_open_home_and_rules_that_do_not_load(run: Run, places: Places) -> None:
    (places.home / "policy").mkdir(parents=True, mode=0o755)
    places.home.chmod(0o755)
    (places.home / "policy" / "x.cedar").write_text("nonsense")
    said = run("doctor", "--output", "json")
    assert said.code == 1
    assert {it["name"] for it in said.json["findings"] if it["standing"] == "fail"} == {"home", "policy"}


@pytest.mark.parametrize("words", [("sessions", "list"), ("approvals", "list"), ("doctor",), ("config", "show"), ("audit", "verify")])
@pytest.mark.parametrize("below", ["", "x"])
def test_a_file_in_the_place_of_the_home_is_told_by_every_command(
    run: Run, places: Places, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], below: str
) -> None:
    places.home.write_text("")
    monkeypatch.setenv("CURTAINWALL_HOME", str(places.home / below))
    said = run(*words)
    assert (said.code, said.out) == (1, "")
    assert f"`{places.home}` is no directory; set CURTAINWALL_HOME to one that is yours" in said.err


@pytest.mark.usefixtures("bubblewrap")
def test_doctor_examines_a_home_that_cannot_be_written(places: Places) -> None:
    places.home.mkdir(mode=0o700)
    home = str(places.home)
    command = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home, "--", sys.executable, "-m", "curtainwall", "doctor")
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (1, "")
    assert "cannot write beside the log" in told.stdout
    assert "cannot be tried: Read-only file system" in told.stdout


def test_a_list_that_cannot_be_used_is_told_by_config_show_and_doctor(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    for text, why in (
        ('lists.hosts = ["not a host!!"]', f"`{places.home / 'config.toml'}`: line 1: `lists.hosts`: `not a host!!` is no host"),
        ('[lists]\nteams = ["a"]\nremotes = [\n"x y"]', f"`{places.home / 'config.toml'}`: line 3: `lists.remotes`: `x y` is no remote"),
        ('lists.push-remotes = ["https://x/y"]', "`lists.push-remotes`"),
        ('[servers.shell]\ncommand = "x"', "[servers.shell]: this name is reserved"),
    ):
        (places.home / "config.toml").write_text(text)
        shown = run("config", "show", "--output", "json")
        assert shown.code == 1
        assert shown.json
        assert why in shown.err
        assert why in run("config", "show").err
        said = run("doctor", "--output", "json")
        findings = {it["name"]: it for it in said.json["findings"]}
        assert (said.code, findings["config"]["standing"]) == (1, "fail")
        assert why in findings["config"]["what"]


def test_rules_that_do_not_load_are_no_fault_of_the_configuration(run: Run, places: Places) -> None:
    (places.home / "policy").mkdir(parents=True, mode=0o700)
    (places.home / "policy" / "x.cedar").write_text("nonsense")
    assert run("config", "show").code == 0


def test_rules_and_configuration_as_an_editor_writes_them_are_fine(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "policy").mkdir(mode=0o700)
    rules, config = places.home / "policy" / "x.cedar", places.home / "config.toml"
    rules.write_text("")
    config.write_text("")

    def home() -> str:
        return next(it["standing"] for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "home")

    rules.chmod(0o644)
    config.chmod(0o644)
    assert home() == "ok"
    for path in (rules, config):
        path.chmod(0o664)
        assert home() == "fail", "others could write it"
        path.chmod(0o644)


def test_a_home_without_a_log_has_nothing_to_verify(run: Run, places: Places, tmp_path: Path) -> None:
    said = run("audit", "verify")
    assert said.code == 0
    assert "nothing to verify" in said.out
    assert run("audit", "verify", "--output", "json").json == {"ok": True, "entries": 0, "sessions": 0, "fault": None}
    heads = run("audit", "head", "--output", "json")
    assert (heads.code, heads.json) == (0, [])
    assert run("audit", "rescue").out == f"there is no log in `{places.home}` yet; nothing was changed\n"
    assert not places.home.exists()


def test_a_log_that_is_gone_is_not_taken_for_a_new_one(run: Run, places: Places, tmp_path: Path) -> None:
    session_in(places.workspace, read("a"))
    kept = tmp_path / "heads"
    kept.write_text(run("audit", "head").out)
    for file in places.home.glob("curtainwall.db*"):
        file.unlink()
    for words in (("--against", kept), ()):
        said = run("audit", "verify", *words, "--output", "json")
        assert (said.code, said.json["ok"]) == (1, False)
        assert "the log is gone" in said.json["fault"]
