"""Whatever is hidden in a shell text is found, or the text counts as not parsed; real bash is the judge."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from curtainwall.facts.shell.commands import ShellCommand, parse_script

PLANTED = "rm x"

# Ways to put a script into another so that it runs, or might.
HOLDERS = st.sampled_from(
    [
        "({})", "{{ {}; }}", "git $({})", "git `{}`", 'git "$({})"', 'git "`{}`"', "git <({})", "git > >({})", "git x\n{}", "git x; {}",
        "git x && {}", "git x || {}", "git x | {}", "git x & {}", "! {}", "if git x; then {}; fi", "if {}; then git x; fi",
        "while git x; do {}; done", "until git x; do {}; done", "for i in a b; do {}; done", "for i in $({}); do git x; done",
        "case a in a) {};; esac", "case $({}) in a) git x;; esac", "git <<EOF\n$({})\nEOF", "git <<-EOF\n\t`{}`\n\tEOF", "git <<< $({})",
        "f() {{ {}; }}; f", "function f {{ {}; }}", "git ${{x:-$({})}}", 'git "${{x:-$({})}}"', "git $(( $({}) ))", "[[ -n $({}) ]]",
        "[ -n \"$({})\" ]", "a=$({}); git x", "a=$({}) git x", "a=(1 $({}))", "export A=$({})", "git 2>&1 >/dev/null; {}", "git \\\n x\n{}",
        "git # comment\n{}", "time {}", "coproc {}", "select i in a; do {}; done", "(git x) && ({})", "git x |& {}", "git <<'E'\na\nE\n{}",
        "cat <<A && {}\nbody\nA", "git ${{x/`{}`/y}}", "git ${{x:$({})}}", "(( $({}) ))", "for ((i=$({});i<1;i++)); do git x; done",
        "[[ a -eq $({}) ]]", "{{ git x; }} > $({})", "git x 2> \"$({})\"", "if git a; then git b; else {}; fi", "git $'a' $({})",
    ]
)  # fmt: skip
LAUNCHED = st.sampled_from(
    ["eval '{}'", "bash -c '{}'", "sh -c '{}'", "env {}", "env A=1 {}", "nohup {}", "timeout 5 {}", "xargs {}", "sudo {}", "command {}",
     "exec {}", "nice -n 5 {}", "find . -exec {} \\;", "git -c alias.q='!{}' q", "watch {}", "setsid {}", "builtin {}", "stdbuf -oL {}"]
)  # fmt: skip


def only_git(commands: tuple[ShellCommand, ...]) -> bool:
    return all(command.parsed and command.program == "git" for command in commands)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    script = draw(LAUNCHED).format(PLANTED) if draw(st.booleans()) else PLANTED
    for _ in range(draw(st.integers(0, 4))):
        script = draw(HOLDERS).format(script)
    return script


@settings(deadline=None)
@given(scripts())
def test_a_planted_command_never_hides_among_git_commands(script: str) -> None:
    assert not only_git(parse_script(script).commands)


@settings(deadline=None)
@given(st.text() | st.text(alphabet="git rm x$(){}[]<>|&;`'\"\\\n\t=#!*?~-"))
def test_any_text_gives_at_least_one_command(text: str) -> None:
    if not text.strip() or any("\ud800" <= letter <= "\udfff" for letter in text):
        return
    commands = parse_script(text).commands
    assert commands
    for command in commands:
        assert not (command.parsed and not command.program)


@settings(deadline=None)
@given(
    st.lists(
        st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f\x85"), min_size=1),
        min_size=1,
        max_size=4,
    )
)
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    (command,) = parse_script(shlex.join(["echo", *words])).commands
    assert command == ShellCommand(
        shlex.join(["echo", *words]) if "{}" not in words and "[" not in words and "[[" not in words else command.text,
        "echo",
        parsed=True,
        words=("echo", *words),
    )


TOKENS = [
    "git", "git ", "rm ", "rm", " ", " ", "\n", ";", "&", "&&", "|", "||", "(", ")", "{ ", " }", "$(", "`", '"', "'", "$", "\\", "<",
    ">", "<<E\n", "\nE\n",
    "<<'E'\n", "<<<", "<(", "#", "=", "a", "x", "[", "]", "[[ ", " ]]", "((", "))", "${", "}", "!", "if ", "; then ", "; fi",
    "case a in ", "a) ", ";; ", " esac",
    "r", "m ", "rm x", "for i in a; do ", "; done", "~", "*", "?", ":-", "-", "2>", ">&", "\t", "$'", "@", "%", ",", "{a,b}", "\\\n",
    "$((", "$[", "function f ", "f()",
]  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where `git` does nothing and every other program leaves a mark."""
    place = tmp_path_factory.mktemp("stage")
    programs = place / "bin"
    programs.mkdir()
    bash = shutil.which("bash") or "/bin/bash"
    (programs / "git").write_text(f"#!{bash}\nexit 0\n")
    (programs / "rm").write_text(f"#!{bash}\n: > {place}/ran\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (place / "work").mkdir()
    return place


def runs_something_else(stage: Path, script: str) -> bool:
    """Run a text in real bash, where the only programs are our two, and say whether `rm` ran."""
    mark = stage / "ran"
    mark.unlink(missing_ok=True)
    bash = shutil.which("bash") or "/bin/bash"
    subprocess.run(
        [bash, "--norc", "--noprofile", "-c", script], cwd=stage / "work", env={"PATH": str(stage / "bin")}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    return mark.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=14).map("".join))
@example("git x # $(\nrm x")
@example("git <<E\nfoo\\\nE\nrm x\nE\n")
@example("git ${x/`rm x`/y}")
@example('git $"`rm x`"')
def test_what_looks_like_git_alone_runs_nothing_else_in_real_bash(stage: Path, text: str) -> None:
    if not text.strip():
        return
    script = parse_script(text)
    if only_git(script.commands) and "rm" in text:
        assert not runs_something_else(stage, text)
