"""The options of the program itself, before and after its command."""

import json

import pytest

from tests.support.covers import covers
from tests.support.program import Program


@pytest.mark.parametrize("form", ["before", "joined", "after"])
def test_home_wins_over_the_environment_and_holds_for_everything_that_is_started(program: Program, form: str) -> None:
    other = program.scratch / "other"
    words = {
        "before": ("--home", other, "start", "--model", "demo", "list the files"),
        "joined": (f"--home={other}", "start", "--model", "demo", "list the files"),
        "after": ("start", "--model", "demo", "--home", other, "list the files"),
    }[form]
    program(*words)
    assert (other / "curtainwall.db").exists()
    assert not program.home.exists()
    assert len(program.json("--home", other, "sessions", "list")) == 1
    assert program.sessions() == []


def test_a_relative_home_is_meant_from_here_and_the_last_one_counts(program: Program) -> None:
    told = program("--home", "first", "config", "path", "--home", "second")
    assert told.stdout == f"{program.workspace / 'second' / 'config.toml'}\n"


@covers("cli.quiet")
@pytest.mark.parametrize("word", ["-q", "--quiet"])
def test_quiet_leaves_out_hints_and_progress_but_no_result_no_warning_and_no_ask(program: Program, word: str) -> None:
    done, quiet = (program("start", "--model", "demo", "write 'a' to a.txt", *more) for more in ((), (word,)))
    assert "wrote a.txt" in done.stderr
    assert (quiet.stderr, "a.txt" in quiet.stdout) == ("", True)
    denied = program(word, "start", "--model", "demo", "read ~/.ssh/id_rsa", fails=True)
    assert "filesystem.read_file" in denied.stderr
    parked = program("start", "--model", "demo", word, "read /etc/hostname", fails=True)
    assert parked.returncode == 3
    assert "curtainwall approve " in parked.stderr
    assert program("grants", "list").stderr == "no answer stands\n"
    assert program(word, "grants", "list").stderr == ""
    failed = program(word, "sessions", "show", "none", fails=True)
    assert (failed.returncode, failed.stderr[:12]) == (1, "curtainwall:")


@covers("cli.verbose")
@pytest.mark.parametrize("word", ["-v", "--verbose"])
def test_verbose_names_version_home_and_rules_and_how_a_turn_ended(program: Program, word: str) -> None:
    plain, verbose = (program("start", "--model", "demo", "write 'a' to a.txt", *more) for more in ((), (word,)))
    assert "curtainwall.compose.setup" not in plain.stderr
    assert "curtainwall: version " in verbose.stderr
    assert f"home `{program.home}`; config.toml not there, so the defaults hold; rule files: default.cedar" in verbose.stderr
    assert "the turn ended: done" in verbose.stderr
    assert json.loads(program("sessions", "list", "--output", "json", word).stdout)


def test_verbose_and_quiet_together_are_misuse(program: Program) -> None:
    told = program("-q", "sessions", "list", "-v", fails=True)
    assert (told.returncode, told.stderr) == (2, "curtainwall: give --quiet or --verbose, not both\n")


def test_words_behind_two_dashes_are_not_ours(program: Program) -> None:
    program("servers", "add", "files", "--", "cat", "--home", program.scratch / "other")
    assert f'"--home", "{program.scratch / "other"}"' in (program.home / "config.toml").read_text()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sessions", "list", "--home"), "--home needs a directory; write `--home DIR`"),
        (("--home=", "sessions", "list"), "--home needs a directory; write `--home DIR`"),
        (("--home", "file", "sessions", "list"), "--home `file` is no directory; name one that is yours, or one that can be made"),
    ],
)
def test_a_home_that_makes_no_sense_is_one_line_and_code_two(program: Program, words: tuple[str, ...], why: str) -> None:
    (program.workspace / "file").touch()
    told = program(*words, fails=True)
    assert (told.returncode, told.stdout, told.stderr) == (2, "", f"curtainwall: {why}\n")


@pytest.mark.parametrize("where", ["before", "after"])
def test_completion_looks_into_the_home_that_is_written_there(program: Program, where: str) -> None:
    other = program.scratch / "other"
    program("--home", other, "start", "--model", "demo", "list the files")
    (session,) = program.json("--home", other, "sessions", "list")
    written = ("--home", other, "sessions", "show") if where == "before" else ("sessions", "show", "--home", other)
    assert session["id"] in program("--complete", "fish", "--", "cw", *written, "").stdout
    assert session["id"] not in program("--complete", "fish", "--", "cw", "sessions", "show", "").stdout
    assert program("--complete", "fish", "--", "cw", "--home", "").stdout == "directories\n"


@covers("cli.errors-as-json")
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ("sessions", "list", "--nonsense", "--output=json"),
            {"message": "there is no option `--nonsense`", "hint": "see `curtainwall sessions list --help`", "code": 2},
        ),
        (
            ("start", "--output", "stream-json", "--resume"),
            {"message": "option `--resume` requires an argument", "hint": "see `curtainwall start --help`", "code": 2},
        ),
        (
            ("session", "--output", "json"),
            {"message": "there is no command `session`; did you mean `sessions`?", "hint": "see `curtainwall --help`", "code": 2},
        ),
        (("sessions", "list", "--output", "json", "--home="), {"message": "--home needs a directory; write `--home DIR`", "code": 2}),
    ],
)
def test_an_error_is_an_object_where_json_is_wanted(program: Program, words: tuple[str, ...], error: dict[str, object]) -> None:
    told = program(*words, fails=True)
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (error["code"], "", 1)
    assert json.loads(told.stderr) == {"error": error}
    assert all(ord(letter) < 127 for letter in told.stderr)


@pytest.mark.parametrize("words", [("sessions", "show", "none"), ("sessions", "show", "none", "--", "--output", "json")])
def test_an_error_is_text_otherwise(program: Program, words: tuple[str, ...]) -> None:
    assert program(*words, fails=True).stderr.startswith("curtainwall: ")


@covers("cli.errors-as-json")
def test_an_object_says_the_same_as_the_text(program: Program) -> None:
    text, found = (program("sessions", "show", "none", *more, fails=True) for more in ((), ("--output", "json")))
    assert (text.returncode, found.returncode) == (1, 1)
    assert json.loads(found.stderr) == {"error": {"message": text.stderr.removeprefix("curtainwall: ").removesuffix("\n"), "code": 1}}
