"""The words of commands without a shell: what they say, which of them are started, and a line with others in their place."""

import random
import subprocess

import pytest

from curtainwall.tools.hooks import CommandHook
from curtainwall.tools.hooks.command_line import parse_words, replace_words, started_words

W = "/w"


def starts(line: str, *arguments: str) -> list[str | None]:
    words = started_words(CommandHook(line, arguments or None), W)
    assert words is not None
    return [word.value for word in words]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("./a", ["./a"]), ("a", []), ("  'a'/b  c/d", ["a/b"]), ('"$CLAUDE_PROJECT_DIR"/a x', ["/w/a"]),
        ("$CLAUDE_PROJECT_DIR/a", ["/w/a"]),
        ("$CLAUDE_PROJECT_DIRX/a", [None]), ("./a && ./b || ./c; ./d | ./e & ./f", ["./a", "./b", "./c", "./d", "./e", "./f"]),
        ("./a\n./b", ["./a", "./b"]), ("(./a); { ./b; }; ! ./c", ["./a", "./b", "./c"]),
        ("if ./a; then ./b; else ./c; fi", ["./a", "./b", "./c"]),
        ("while ./a; do ./b; done", ["./a", "./b"]), ("[ -f ./a ] && ./b", ["./b"]), ("[[ -f ./a ]] && ./b", ["./b"]),
        ("A=1 B=./x ./a", ["./a"]),
        ("A=$HOME/x B=* ./a", ["./a"]), ("exec ./a", ["./a"]), ("env A=1 ./a", ["./a"]), ("timeout 5s ./a", ["./a"]), ("env -i ./a", []),
        ("./a >./out 2>&1 <./in ./x", ["./a"]), ("2>/dev/null ./a", ["./a"]), (">./out ./a", ["./a"]), ("echo 2 >./x", []),
        ("python3 a.py b.py", ["a.py"]), ("python3 -u a.py", ["a.py"]), ("python3 -W ignore a.py", ["ignore", "a.py"]),
        ("python3 -c 'import a' b.py", []), ("python3 -m a b.py", []), ("python3.11 -Bm a b.py", []), ("bash -e a", ["a"]),
        ("sh -c ./a", []),
        ("bash -euo pipefail a", ["pipefail", "a"]), ("node -e 1 a.js", []), ("node a.js", ["a.js"]), (". ./a", ["./a"]),
        ("source a", ["a"]),
        ("uv run a.py", ["a.py"]), ("uv run lint", []), ("deno run -A ./a.ts", ["./a.ts"]), ("./bin/python a.py", ["./bin/python", "a.py"]),
        ("npx tool ./a", []), ("cd sub && ./a", [None]), ("cd sub && /w/a", ["/w/a"]), ('cd "$CLAUDE_PROJECT_DIR" && ./a', ["./a"]),
        ("$HOME/a", [None]), ("~/a", [None]), ("./*.sh", [None]), ("./{a,b}", [None]), ("'~/a'", ["~/a"]), (r"./a\ b", ["./a b"]),
        ("./a'*'", ["./a*"]),
        ('"./a$x"', [None]), ("sh $x", [None]), ("echo $x", []), ("", []),
    ],
)  # fmt: skip
def test_what_a_line_starts(line: str, expected: list[str | None]) -> None:
    assert starts(line) == expected


@pytest.mark.parametrize(
    "line", ["'./a", '"./a', "./a\\", "$(./a)", "`./a`", '"$(./a)"', "${x:-./a}", "cat <<E\n./a\nE", "./a # it's", "$'./a'", "./a\\\nb"]
)
def test_a_line_that_only_a_shell_can_read_is_not_read(line: str) -> None:
    assert parse_words(CommandHook(line), W) is None


def test_without_quotes_a_workspace_with_blanks_is_several_words() -> None:
    for line, expected in (("$CLAUDE_PROJECT_DIR/a", None), ('"$CLAUDE_PROJECT_DIR/a"', "/my work/a")):
        words = parse_words(CommandHook(line), "/my work")
        assert words is not None
        assert [word.value for word in words] == [expected]


def test_without_a_shell_words_are_what_they_are() -> None:
    assert starts("./a b", "$x") == ["./a b"]
    assert starts("python3", "-u", "${CLAUDE_PROJECT_DIR}/$x") == ["/w/$x"]
    assert starts("cd", "./a") == []
    program = CommandHook("python3", ("a b", "c"))
    assert replace_words(program, {1: "/x y"}) == CommandHook("python3", ("/x y", "c"))


def test_a_word_is_replaced_and_everything_else_stays() -> None:
    line = """A='x y'  "$CLAUDE_PROJECT_DIR"/a  'b'|sh './c d' >"e f";"""
    words = started_words(CommandHook(line, None, "bash"), W)
    assert words is not None
    instead = {word.start: f"/copies/it's {at}" for at, word in enumerate(words)}
    quoted = ["""'/copies/it'"'"'s 0'""", """'/copies/it'"'"'s 1'"""]
    expected = f"""A='x y'  {quoted[0]}  'b'|sh {quoted[1]} >"e f";"""
    assert replace_words(CommandHook(line, None, "bash"), instead) == CommandHook(expected, None, "bash")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_reads_the_same_words(shell: str) -> None:
    chance, read = random.Random(7), 0
    for _ in range(600):
        line = "".join(
            chance.choice(["a", "b/", "./", "'", '"', "\\", "$CLAUDE_PROJECT_DIR", " ", " ", "=", "*", "#", "-"]) for _ in range(9)
        )
        words = parse_words(CommandHook(line), W)
        if not words or any(word.value is None for word in words):
            continue
        read += 1
        # Without names to fit there is nothing to expand; what is left is quoting.
        ran = subprocess.run(
            [shell, "-c", f"printf '<%s>' {line}"], env={"CLAUDE_PROJECT_DIR": W}, cwd="/proc/self/ns", capture_output=True, check=True
        )
        assert ran.stdout.decode() == "".join(f"<{word.value}>" for word in words), line
    assert read > 50
