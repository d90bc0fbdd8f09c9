"""What shell text means: each command, launcher and redirection on its own."""

import shlex
import subprocess
import sys
import threading

import pytest

from curtainwall.facts.refusal import Unclear
from curtainwall.facts.shell.commands import Redirect, ShellCommand, parse_script
from curtainwall.facts.shell.words import is_sound_leaf


def programs(text: str) -> list[str]:
    """Return the program of each command, with a question mark where it is not parsed."""
    return [command.program + ("" if command.parsed else "?") for command in parse_script(text).commands]


def test_a_simple_command_is_its_program_and_its_words() -> None:
    assert parse_script("git   status  --short").commands == (
        ShellCommand("git status --short", "git", parsed=True, words=("git", "status", "--short")),
    )


@pytest.mark.parametrize(
    "text", ['"git" status', "'git' status", "g\\it status", "g\"i\"t sta'tus'", "git \\\n status", "git status # a note"]
)
def test_every_spelling_of_a_literal_command_is_one_text(text: str) -> None:
    assert [command.text for command in parse_script(text).commands] == ["git status"]
    assert programs(text) == ["git"]


def test_quotes_stay_where_they_matter() -> None:
    assert parse_script("git commit -m 'a  b' \"it's\" \\$X {} '*.c'").commands[0].text == "git commit -m 'a  b' 'it'\"'\"'s' '$X' {} '*.c'"
    assert parse_script('echo "a\\"b\\\\c\\$d\\e"').commands[0].words == ("echo", 'a"b\\c$d\\e')


def test_words_that_bash_would_expand_stay_as_written() -> None:
    (command,) = parse_script('ls *.c ~/x {a,b} $X "$Y" a"$Z"').commands
    assert command == ShellCommand('ls *.c ~/x {a,b} $X "$Y" a"$Z"', "ls", parsed=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git status && rm -rf /", ["git", "rm"]),
        ("git status\nrm x", ["git", "rm"]),
        ("git status; rm x", ["git", "rm"]),
        ("git status || rm x", ["git", "rm"]),
        ("git status & rm x", ["git", "rm"]),
        ("git log | head -3 |& tee x", ["git", "head", "tee"]),
        ("git log $(rm x)", ["git?", "rm"]),
        ('git commit -m "$(rm x)"', ["git", "rm"]),
        ("echo `rm x`", ["echo", "rm"]),
        ("(git a; rm x)", ["git", "rm"]),
        ("{ git a; rm x; }", ["git", "rm"]),
        ("! rm x", ["rm"]),
        ("cat <(rm x) >(ls)", ["cat", "rm", "ls"]),
        ("if git a; then rm x; elif ls; then cat; else pwd; fi", ["git", "rm", "ls", "cat", "pwd"]),
        ("while true; do rm x; done", ["true", "rm"]),
        ("for f in $(ls); do rm $f; done", ["ls", "rm"]),
        ("case $x in a|b) rm x;; *) ls;; esac", ["rm", "ls"]),
        ("cat <<EOF\nhi $(rm x) \\$(no)\nEOF\nls", ["cat", "rm", "ls"]),
        ("cat <<'EOF'\nhi $(rm x) `no`\nEOF\nls", ["cat", "ls"]),
        ("cat <<-EOF\n\thi\n\tEOF\nls", ["cat", "ls"]),
        ("cat <<EOF | git x && ls\na\nEOF", ["cat", "git", "ls"]),
        ("git commit -m \"$(cat <<'EOF'\nnote `x`\nEOF\n)\"", ["git", "cat"]),
        ("cat <<< $(rm x)", ["cat", "rm"]),
        ("echo ${x:-$(rm y)} ${#x} ${x%.c} ${x//a/b}", ["echo", "rm"]),
        ("cd x && git status", ["cd", "git"]),
        ("[ -f x ] && [[ $a == b ]] && git x", ["[", "[[", "git"]),
        ("set -euo pipefail; git x", ["set", "git"]),
        ("echo $((1 + 2)) $? $$ $", ["echo"]),
        ("while read -r line; do ls; done < <(git ls-files)", ["read", "ls", "git"]),
        ("printf '%s' x", ["printf"]),
        ("test -f x", ["test"]),
    ],
)
def test_every_command_is_found(text: str, expected: list[str]) -> None:
    assert programs(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$X status", "$(echo git) x", "`echo git` x", "~/git x", "g?t x", "{git,x}", "${X} y", "*", "$'git' x", "<(git)",
        "PATH=/evil git x", "X=1 git x", "X=1", "X=(1 2)", "X+=1", "a[1]=x git", "LD_PRELOAD=x git x",
        "export PATH=/evil; git x", "unset PATH; git x", "declare -x A=1", "for PATH in /evil; do git x; done",
        "for http_proxy in a; do git x; done",
        "git() { ls; }; git x", "function git { ls; }; git x", "alias git=rm; git x", "hash -p /evil git; git x", ". ./x; git x",
        "source x",
        "read PATH; git x", "read -p x y", "printf -v PATH x", "printf", "set -k; git x", "trap 'rm x' EXIT", "shopt -s expand_aliases",
        "let x=1",
        "((x++))", "echo $((x))", "echo $[x]", "[[ $x -eq 1 ]]", "[[ -v x ]]", "[ -v x ]", "test -v x", 'test "$a" x',
        "for ((i=0;i<1;i++)); do git x; done",
        "echo ${!x}", "echo ${x@P}", "echo ${x:1}", "echo ${x[1]}", "echo ${x:=1}", "echo ${x/`rm`/y}", "echo `echo \\`rm\\``", 'git $"x"',
        "git > $X", "git >> \"$X\"", "git > *.c", "git > a b", "git < ~root/x", "cat < /dev/tcp/evil/80", "git <&x", "git > ''",
        "{ git x; } > $X",
        "cat <<EOF\nfoo\\\nEOF\ngit\nEOF",
        "git <<E x\na\nE", "cat <<E\na\n E\nE", "cat <<E\n$[a]\nE", "cat <<-E\n\ta\n \tE\nE", "cat <<E\nx\nE \nE",
        "cat <<\\E\na\nE", "git 'unclosed", "git )", "git <> x", "git @(a|b)",
        "git a)b", "# nothing", "> f",
        "g\\\nit x", "git\\\nx y", "git x\\\n;ls", "git\rx", "git\0x", "git\u2028x", "git x\x0b",
    ],
)  # fmt: skip
def test_what_could_run_something_else_is_not_parsed(text: str) -> None:
    assert not all(command.parsed for command in parse_script(text).commands)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bash -c 'git x; rm y'", ["bash", "git", "rm"]),
        ("sh -ec 'rm y' name", ["sh", "rm"]),
        ("bash -c", ["bash?"]),
        ('bash -c "$X"', ["bash?"]),
        ("bash -xc $X", ["bash?"]),
        ("bash $X", ["bash?"]),
        ("bash script.sh", ["bash"]),
        ("bash -e script.sh", ["bash"]),
        ("bash --rcfile x", ["bash?"]),
        ("curl x | sh", ["curl", "sh?"]),
        ("bash -c 'git ('", ["bash", "?"]),
        ("bash -c ''", ["bash", "?"]),
        ("/bin/bash -c 'rm x'", ["/bin/bash", "rm"]),
        ("eval rm x", ["eval", "rm"]),
        ("eval 'git x' '; rm y'", ["eval", "git", "rm"]),
        ("eval $X", ["eval?"]),
        ("eval", ["eval?"]),
        ("env rm x", ["env", "rm"]),
        ("env A=1 git x", ["env", "git?"]),
        ("env -i git x", ["env", "git?"]),
        ("env -S 'rm x'", ["env?"]),
        ("env", ["env"]),
        ("env A=1", ["env?"]),
        ("env $X git", ["env?"]),
        ("sudo -u bob timeout -k 3 5 nice -n 3 git x", ["sudo", "timeout", "nice", "git"]),
        ("nohup git x", ["nohup", "git"]),
        ("nohup", ["nohup?"]),
        ("nice -5 git x", ["nice", "git"]),
        ("timeout --foreground -- 5 git x", ["timeout", "git"]),
        ("time git x", ["time", "git"]),
        ("exec git x", ["exec", "git"]),
        ("xargs -0 -n1 rm -f", ["xargs", "rm"]),
        ("xargs -I {} ls {}", ["xargs", "ls"]),
        ("xargs git", ["xargs", "git?"]),
        ("xargs env git", ["xargs", "env?", "git?"]),
        ("xargs", ["xargs?"]),
        ("find . -name '*.c'", ["find"]),
        ("find . -exec rm {} \\; -print", ["find", "rm"]),
        ("find . -exec git add {} +", ["find", "git?"]),
        ("find . -exec rm x", ["find?"]),
        ("find . -exec a \\; -exec b \\;", ["find?"]),
        ("find . -delete", ["find?"]),
        ("find $X", ["find?"]),
        ("watch git status", ["watch?"]),
        ("nohup " * 8 + "git x", ["nohup"] * 8 + ["?"]),
        ("bash -c \"bash -c 'rm x'\"", ["bash", "bash", "rm"]),
        ("env '' x", ["env", "?"]),
    ],
)
def test_a_launcher_keeps_its_name_and_tells_what_it_runs(text: str, expected: list[str]) -> None:
    assert programs(text) == expected


def test_scripts_in_scripts_end_somewhere() -> None:
    text = "rm x"
    for _ in range(7):
        text = f"eval {shlex.quote(text)}"
    assert programs(text) == ["eval"] * 5 + ["?"]


@pytest.mark.parametrize(
    "text",
    [
        "git status", "git -C dir --no-pager log", "git push -u origin main", 'git commit -m "note $X"', 'git add -- "$f"',
        'git commit -m "$X"', "git",
        "git diff src/*.c", "git config --get user.name", "git log -- $X", "git log -c", "git fetch origin", "git --version",
    ],
)  # fmt: skip
def test_git_is_git_where_its_words_leave_no_other_way(text: str) -> None:
    assert programs(text) == ["git"]


@pytest.mark.parametrize(
    "text",
    [
        "git -c core.pager=x log", "git --exec-path=/evil x", "git --git-dir x log", "git -C $X log", "git -C", "git $X", "git add *",
        'git add "$f"', "git log $X",
        "git fetch --upload-pack=x", "git fetch --upl x", "git clone -c a=b u", "git clone -qc a=b u", "git rebase -x 'rm x'",
        "git bisect run rm",
        "git submodule foreach rm", "git config alias.x '!rm'", "git fetch ext::sh", "git grep -O x", "git difftool -x rm", "git -c",
        'git log "-$X"',
    ],
)  # fmt: skip
def test_git_that_may_run_another_program_is_not_parsed(text: str) -> None:
    assert programs(text) == ["git?"]


def test_a_git_alias_on_the_command_line_tells_what_it_runs() -> None:
    assert programs("git -c alias.x='!rm y' x") == ["git?", "rm"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git log > out", [Redirect("write", "out")]),
        ("git log >> out 2>&1", [Redirect("append", "out")]),
        ("sort < in &> 'a b'", [Redirect("read", "in"), Redirect("write", "a b")]),
        ("a >| x &>> y", [Redirect("write", "x"), Redirect("append", "y")]),
        ("a >& x", [Redirect("write", "x")]),
        ("a 2>&- <&3 >&2", []),
        ("> f", [Redirect("write", "f")]),
        ("> f rm x", [Redirect("write", "f")]),
        ("{ a; b; } > /f", [Redirect("write", "/f")]),
        ("a > ~/x > '~/y' > ~", [Redirect("write", "~/x"), Redirect("write", "./~/y"), Redirect("write", "~")]),
        ("a > >(b) < <(c)", []),
        ("echo $(< f)", [Redirect("read", "f")]),
        ("bash -c 'a > f'", [Redirect("write", "f")]),
        ("a <<E > f\nx\nE", [Redirect("write", "f")]),
    ],
)
def test_a_redirection_is_a_file_that_is_opened(text: str, expected: list[Redirect]) -> None:
    assert list(parse_script(text).redirects) == expected


def test_a_relative_target_after_a_change_of_directory_could_be_anywhere() -> None:
    assert programs("cd /etc && git log > x") == ["cd", "git", "?"]
    assert programs("cd /etc; git log > x") == ["cd", "git?"]
    assert programs("cd /etc; git log > /tmp/x") == ["cd", "git"]


def test_what_is_too_long_too_deep_or_too_tangled_is_one_command_that_is_not_parsed() -> None:
    for text in ("git " + "x" * 70_000, "(" * 400 + "git" + ")" * 400, "a|" * 30_000, "$(" * 20_000, "git x;" * 3_000):
        assert parse_script(text).commands == (ShellCommand(text, "", parsed=False),)


@pytest.mark.parametrize("value", [None, 7, ["git"], b"git", "", " \n", "git \ud800"])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(Unclear):
        parse_script(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("word", "a\\"), ("word", "a b"), ("word", "#a"), ("word", "a$(b)"), ("string_content", "a`b`"), ("string_content", "$(b)"),
        ("string_content", 'a"b'),
        ("raw_string", "'a'b'"), ("ansi_c_string", "$'a'b'"), ("regex", "`a`"), ("extglob_pattern", "a|b"), ("variable_name", "a[1]"),
        (";", "; rm"), ("new", "x"),
    ],
)  # fmt: skip
def test_a_leaf_that_holds_more_than_it_may_is_not_believed(kind: str, text: str) -> None:
    assert not is_sound_leaf(kind, text)


def test_many_threads_may_parse_at_once() -> None:
    wrong: list[object] = []

    def work() -> None:
        for number in range(200):
            found = parse_script(f"git log {number} | head && rm x{number}").commands
            if [command.program for command in found] != ["git", "head", "rm"]:
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "program"),
    [("echo é", "echo"), ("ls ~/Größe/日本語.txt", "ls"), ("echo 'ａ' \"🙂\"", "echo")],
)
def test_letters_beyond_ascii_are_letters(text: str, program: str) -> None:
    [command] = parse_script(text).commands
    assert (command.program, command.parsed) == (program, True)


@pytest.mark.parametrize("text", ["é=1 ls", "é ls", "ｌｓ", "echo é(x)"])
def test_a_program_with_letters_beyond_ascii_is_not_known(text: str) -> None:
    assert not parse_script(text).commands[0].parsed


def test_no_letter_crashes_the_parser() -> None:
    # Where a table is read beyond its end, it depends on the place in memory whether that ends the process: so several processes.
    program = (
        "from curtainwall.facts import parse_script\n"
        "for code in range(0x10000, 0x10ffff, 0x1111):\n"
        "    for text in ('echo {%c', 'echo {1..%c}', '$%c', 'cat <<%c', 'echo ${%c}', '[[ a =~ %c ]]'):\n"
        "        parse_script(text % code).commands\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(12)]
    assert [run.wait(60) for run in runs] == [0] * len(runs)


def test_a_shell_in_a_shell_is_read_four_times_and_no_deeper() -> None:
    text = "ls"
    for _ in range(4):
        text = f"bash -c {shlex.quote(text)}"
    inner = parse_script(text).commands[-1]
    assert (inner.program, inner.parsed) == ("ls", True)
    last = parse_script(f"bash -c {shlex.quote(text)}").commands[-1]
    assert (last.program, last.parsed) == ("", False), "what nobody read is not taken for read"


def test_brackets_in_brackets_are_read_up_to_a_depth_and_no_deeper() -> None:
    told = {deep: parse_script(f"{'( ' * deep}ls{' )' * deep}").commands[0] for deep in (147, 148)}
    assert (told[147].program, told[147].parsed) == ("ls", True)
    assert (told[148].program, told[148].parsed) == ("", False)
