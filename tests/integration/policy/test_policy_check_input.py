"""`policy check` over a pipe: one verdict per line, whatever the line holds, and nothing written anywhere."""

import json
import random
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.program import Program

GOOD = {"tool": "filesystem.read_file", "arguments": {"path": "a"}}


def verdicts(program: Program, given: bytes) -> list[dict[str, Any]]:
    done = program("policy", "check", "--workspace", program.workspace, given=given)
    return [json.loads(line) for line in done.stdout.splitlines()]


NO_CALLS = [
    b"", b" ", b"x", b"{", b'{"tool": "filesystem.read_file", "argu', b"null", b"[]", b"7", b'"text"',
    b"\xff\xfe\x00", b"\xef\xbb\xbf{}",
    b'{"tool": "filesystem.read_file"}', b'{"arguments": {"path": "a"}}', b'{"tool": 7, "arguments": {"path": "a"}}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "a"}, "approved": true}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "a", "path": "b"}}',
    b'{"tool": "filesystem.read_file", "tool": "filesystem.read_file", "arguments": {"path": "a"}}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "a", "head": NaN}}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "a", "head": 1e999}}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "a", "head": ' + b"9" * 5000 + b"}}",
    b'{"tool": "filesystem.read_file", "arguments": "path"}',
    b'{"tool": "filesystem.read_file", "arguments": [{"path": "a"}]}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": "\\ud800"}}',
    b'{"tool": "filesystem.read_file", "arguments": {"path": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"tool": "filesystem.read_file", "arguments": {"path": "' + b"a" * 9_000_000 + b'"}}',
]  # fmt: skip


def test_a_line_that_is_no_call_is_denied_and_the_next_one_judged(program: Program) -> None:
    good = json.dumps(GOOD).encode()
    found = verdicts(program, b"".join(line + b"\n" + good + b"\n" for line in NO_CALLS))
    assert len(found) == 2 * len(NO_CALLS)
    for line, bad, fine in zip(NO_CALLS, found[::2], found[1::2], strict=True):
        assert (bad["effect"], bad["because"], bad["resources"]) == ("deny", ["invalid-arguments"], []), line[:80]
        assert fine["effect"] == "allow", line[:80]


def test_a_thousand_lines_of_garbage_get_a_thousand_denials_and_no_allow(program: Program) -> None:
    chance = random.Random(2)
    lines = [hostile(chance, number) for number in range(1000)]
    found = verdicts(program, b"\n".join(lines) + b"\n")
    assert len(found) == 1000
    assert {verdict["effect"] for verdict in found} <= {"ask", "deny"}
    assert all(set(verdict) == {"effect", "because", "reason", "resources"} and verdict["because"] for verdict in found)


def hostile(chance: random.Random, number: int) -> bytes:
    whole = json.dumps({"tool": "filesystem.write_file", "arguments": {"path": f"/etc/f{number}", "content": "x"}}).encode()
    values = ["../../etc/passwd", "\0", "", "~root/x", "/proc/self/environ", "/etc/\u202egpj.exe", "a" * 5000, None, 1, True, [], {}, ["x"]]
    match number % 5:
        case 0:
            return bytes(chance.choices([byte for byte in range(256) if byte != 10], k=chance.randrange(200)))
        case 1:
            return whole[: chance.randrange(len(whole))]
        case 2:
            return json.dumps(
                {"tool": "filesystem.read_file", "arguments": {"path": chance.choice(values[:-6]) or "", "x": chance.choice(values)}}
            ).encode()
        case 3:
            return json.dumps(
                {"tool": chance.choice(["", "x", "filesystem", "filesystem.", "filesystem.read_file\0", "shell.run "]), "arguments": {}}
            ).encode()
        case _:
            return json.dumps(
                {"tool": "shell.run", "arguments": {"command": chance.choice(["", "\0", "echo x > /etc/passwd", 7, ["ls"]]), "cwd": "/etc"}}
            ).encode()


def test_nothing_is_written_and_no_home_is_needed(program: Program) -> None:
    verdicts(program, json.dumps(GOOD).encode())
    assert not program.home.exists()
    assert list(program.workspace.iterdir()) == []


def test_an_unfinished_last_line_is_judged_too(program: Program) -> None:
    assert [verdict["effect"] for verdict in verdicts(program, json.dumps(GOOD).encode())] == ["allow"]


def test_no_lines_give_no_verdicts(program: Program) -> None:
    assert verdicts(program, b"") == []


def test_each_verdict_comes_before_the_next_line_is_sent(program: Program) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "curtainwall", "policy", "check"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=program.environ, cwd=program.workspace,
    )  # fmt: skip
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for effect, path in (("allow", "a"), ("ask", "/etc/x")):
            child.stdin.write(json.dumps({"tool": "filesystem.read_file", "arguments": {"path": path}}).encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["effect"] == effect


def test_a_reader_that_goes_away_ends_it_quietly(program: Program) -> None:
    line = json.dumps(GOOD)
    done = subprocess.run(
        ["bash", "-c", f"yes '{line}' | head -n 5000 | '{sys.executable}' -m curtainwall policy check | head -n 1"],
        capture_output=True, text=True, env=program.environ, cwd=program.workspace, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["effect"] == "allow"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("policy/mine.cedar", "permit (principal, action, resource)", "`mine.cedar`, line 1, is no Cedar"),
        ("config.toml", 'lists.hosts = ["not a host!!"]', "`not a host!!` is no host"),
        ("config.toml", "lists = 7", "`lists`"),
        ("config.toml", "lists = ", "config.toml"),
    ],
)
def test_where_rules_or_lists_do_not_load_every_line_is_denied_and_the_fault_is_told(
    program: Program, file: str, content: str, says: str
) -> None:
    (program.home / "policy").mkdir(parents=True)
    (program.home / file).write_text(content)
    done = program("policy", "check", given=f"{json.dumps(GOOD)}\nx\n\n", fails=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(verdict["effect"], verdict["because"], verdict["resources"]) for verdict in found] == [("deny", ["policy-error"], [])] * 3
    assert all(says in verdict["reason"] for verdict in found)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--workspace", "--project"])
@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_workspace_that_is_not_there_is_a_mistake(program: Program, command: str, option: str) -> None:
    for name, why in (("nowhere", "does not exist"), ("file", "is no directory")):
        (program.workspace / "file").write_text("")
        done = program("policy", command, option, program.workspace / name, given=json.dumps(GOOD), fails=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option} `{program.workspace / name}` {why}" in done.stderr


@pytest.mark.parametrize("name", ["", ".ssh", ".ssh/x", ".curtainwall"])
def test_a_workspace_around_or_in_a_protected_path_is_refused(program: Program, name: str) -> None:
    done = program("policy", "check", "--workspace", program.scratch / "user" / name, given="{}", fails=True, CURTAINWALL_HOME="")
    assert done.returncode == 2
    assert "protected path" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_where_no_workspace_is_possible_the_default_is_an_empty_one(program: Program) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "curtainwall", "policy", "check"],
        input=json.dumps({"tool": "filesystem.read_file", "arguments": {"path": "/etc/x"}}), text=True, capture_output=True,
        env=program.environ, cwd="/", timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(child.stdout)["effect"] == "ask"
    assert "judging as in an empty workspace" in child.stderr


def test_a_rule_file_in_the_workspace_can_be_tried_and_not_touched(program: Program) -> None:
    rules = program.workspace / "mine.cedar"
    rules.write_text('@id("no-shell") forbid (principal, action == Action::"run-command", resource);')
    calls = [
        ("shell.run", {"command": "ls"}),
        ("filesystem.write_file", {"path": "mine.cedar", "content": ""}),
        ("filesystem.read_file", {"path": "a"}),
    ]
    found = program.check(*({"tool": tool, "arguments": arguments} for tool, arguments in calls), options=("--policy", rules))
    assert [verdict["because"][0] for verdict in found] == ["no-shell", "protected-path", "known-tool"]


def test_an_interrupt_ends_it_with_its_own_code(program: Program) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "curtainwall", "policy", "check"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=program.environ, cwd=program.workspace,
    )  # fmt: skip
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=90) == 130
        assert child.stderr.read() == b""
