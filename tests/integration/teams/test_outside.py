"""Teams that a local agent serves, from outside: the command line, an MCP client, and the files that somebody broke meanwhile."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.support import fake_claude
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.ports import free_port
from tests.support.program import Program, finished, make_program
from tests.support.prompted import prompted_beside
from tests.support.real_parts import CLAUDE
from tests.support.upstream import KEY
from tests.support.waiting import until

FAULTS = [
    (fake_claude.HANGS, "AgentSilent", "no sign of life for 4 seconds"),
    (fake_claude.GARBAGE, "AgentGarbled", "Segmentation fault 0"),
    (fake_claude.LEAVES, "NoAnswer", "ended without an answer"),
    (fake_claude.CRASHES, "AgentCrashed", "exit code 139"),
    (fake_claude.ERRS, "AgentErred", "it was too much"),
]
ASK = ("teams", "ask", "backend", "--timeout", "1m")


@pytest.fixture
def program(bubblewrap: str) -> Iterator[Program]:
    """Return `curtainwall` with a team that a stand-in for Claude Code serves, in a place whose sockets have short names."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        made = make_program(Path(name).resolve())
        shutil.copy(fake_claude.__file__, made.scratch / "claude")
        (made.scratch / "claude").chmod(0o755)
        configure(made, made.scratch / "claude")
        try:
            yield made
        finally:
            finished(made)


def configure(program: Program, claude: Path, more: str = "", silence: int = 4) -> None:
    project = program.scratch / "backend"
    project.mkdir(exist_ok=True)
    program.configure(
        f'{more}[web]\nport = {free_port()}\n[processes]\nprogram = "{claude}"\nsilence = {silence}\n[lists]\nteams = ["*"]\n'
        f'[teams.backend]\nproject = "{project}"\nagent = "claude-local"\n'
    )


def ask(program: Program, text: str) -> dict[str, Any]:
    """Ask the team from a process of its own, and return the one document."""
    return program.json(*ASK, text, fails=True, ANTHROPIC_API_KEY=KEY)


def transcript(program: Program) -> Path:
    """Return the file of the newest conversation."""
    found = program.home.glob("sessions/*/state/projects/*/*.jsonl")
    return max((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


@covers("teams.local-agents-fail-by-name")
def test_on_the_command_line_every_fault_has_its_name_and_the_pair_works_again(program: Program) -> None:
    for words, fault, told in FAULTS:
        began = time.monotonic()
        failed = program(*ASK, words, "--output", "json", fails=True, ANTHROPIC_API_KEY=KEY)
        assert time.monotonic() - began < 60
        assert failed.returncode == 1
        reply = json.loads(failed.stdout)
        assert (reply["status"], reply["fault"], told in reply["text"]) == ("failed", fault, True)
    shown = program(*ASK, fake_claude.ERRS, fails=True, ANTHROPIC_API_KEY=KEY)
    assert (shown.stdout, "failed: claude: it was too much" in shown.stderr) == ("", True)
    (program.scratch / "claude").rename(program.scratch / "gone")
    missing = ask(program, "hello")
    assert (missing["fault"], "install it (`npm install" in missing["text"]) == ("ProgramMissing", True)
    (program.scratch / "gone").rename(program.scratch / "claude")
    keyless = program.json(*ASK, "hello", fails=True)
    assert (keyless["fault"], "set `ANTHROPIC_API_KEY`" in keyless["text"]) == ("LoginNeeded", True)
    thought = program(*ASK, fake_claude.THINKS, ANTHROPIC_API_KEY=KEY)
    assert thought.stdout.startswith("message 7: ")
    assert thought.stdout.rstrip().endswith(fake_claude.THINKS)
    told = program.json("teams", "history", "backend")
    assert [it.get("fault") for it in told[:5]] == [fault for _, fault, _ in FAULTS]


@covers("teams.local-agents-fail-by-name")
def test_on_the_command_line_a_lost_transcript_is_said_in_the_answer_in_the_log_and_in_the_list(program: Program) -> None:
    assert ask(program, "first")["text"] == "message 1: first"
    for damage, why in (("deleted", "its file is gone"), ("truncated", "its file is damaged"), ("unreadable", "permission denied")):
        place = transcript(program)
        match damage:
            case "deleted":
                place.unlink()
            case "truncated":
                place.write_bytes(place.read_bytes()[:20])
            case _:
                place.chmod(0)
        (pair,) = program.json("teams", "list")["conversations"]
        assert pair["transcript"]["state"] == "broken"
        assert why in pair["transcript"]["why"]
        assert "the agent's conversation is lost" in program("teams", "list").stderr
        answer = ask(program, f"after it was {damage}")["text"]
        assert answer.startswith("[the agent's conversation is lost (")
        assert why in answer.partition("\n")[0]
        assert "message 1: You have lost the conversation" in answer
        assert "first" in answer, "it is told what was said before"
        log = program("sessions", "export", pair["session"]).stdout
        assert sum("the agent's conversation is lost" in line and why in line and '"AgentSpoke"' in line for line in log.splitlines()) >= 1
        assert ask(program, "next")["text"] == "message 2: next", "it is said once, and the new conversation goes on"
    assert program.json("teams", "list")["conversations"][0]["transcript"]["state"] == "kept"


@covers("teams.local-agents-fail-by-name")
def test_an_mcp_client_is_told_every_fault_by_its_name_and_the_pair_works_again(program: Program) -> None:
    environ = {**program.environ, "ANTHROPIC_API_KEY": KEY}
    server = StdioServerParameters(command=sys.executable, args=["-m", "curtainwall", "mcp"], env=environ)

    async def story() -> None:
        async with Client(server) as mcp:

            async def asked(text: str) -> tuple[bool, dict[str, Any]]:
                result = await mcp.call_tool("teams_ask", {"team": "backend", "question": text, "timeout": 60_000})
                return bool(result.is_error), json.loads(result.content[0].text)

            await asked("first")
            await mcp.call_tool("teams_sleep", {"team": "backend"})
            transcript(program).unlink()
            is_error, reply = await asked("second")
            assert (is_error, reply["answer"].startswith("[the agent's conversation is lost (its file is gone)")) == (False, True)
            for number, (words, fault, told) in enumerate(FAULTS):
                began = time.monotonic()
                is_error, reply = await asked(words)
                assert time.monotonic() - began < 60
                assert (is_error, reply["status"], reply["fault"], told in reply["reason"]) == (True, "failed", fault, True)
                is_error, reply = await asked("next")
                assert (is_error, reply["answer"]) == (False, f"message {2 * number + 3}: next")

    run(story())


@covers("teams.adopting")
def test_a_conversation_of_the_users_own_is_adopted_and_gone_on_with(program: Program, real_part: Callable[[str], str]) -> None:
    real_part("claude-code")
    with prompted_beside() as provider:
        configure(program, CLAUDE, f'[models.anthropic]\nurl = "{provider.url}"\n', silence=60)
        own = {"HOME": program.environ["HOME"], "ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": KEY, "PATH": os.environ["PATH"]}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        said = subprocess.run(
            [CLAUDE, "-p", "--model", "claude-sonnet-4-5"], input="word=alpha", env={**own, **quiet},
            cwd=program.scratch / "backend", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert said.stdout == "HEARD: alpha\n", said
        (found,) = program.json("teams", "adopt", "backend")
        assert program("teams", "adopt", "backend", "--clean", found["id"]).stdout == f"nobody → backend goes on with {found['id']}\n"
        assert ask(program, "word=beta")["text"] == "HEARD: alpha, beta"
        wrong = program("teams", "adopt", "backend", "11111111-2222-4333-8444-555555555555", fails=True)
        assert (wrong.returncode, "cannot be adopted: its file is gone" in wrong.stderr) == (1, True)
        assert "no id of a conversation" in program("teams", "adopt", "backend", "../x", fails=True).stderr
        assert ask(program, "word=gamma")["text"] == "HEARD: alpha, beta, gamma"


def damaged(program: Program, mark: bytes) -> bytes:
    """Overwrite the page of the database that a mark stands on last, and return the whole file as it is then."""
    database = program.home / "curtainwall.db"
    content = bytearray(database.read_bytes())
    page = content.rfind(mark) // 4096 * 4096
    assert page > 0
    content[page : page + 4096] = b"\xff" * 4096
    database.write_bytes(content)
    return bytes(content)


@covers("store.rescue-of-teams")
def test_a_pair_whose_log_is_damaged_goes_on_with_its_transcript_which_counts_as_sensitive(program: Program) -> None:
    for text in ("first", "second"):
        assert ask(program, text + " x" * 3_000)["status"] == "done"
    damaged(program, b'"delivered"')
    kept = transcript(program).stem
    told = program("teams", "ask", "backend", "third", fails=True, ANTHROPIC_API_KEY=KEY)
    assert (told.returncode, "is damaged" in told.stderr, "audit rescue" in told.stderr) == (1, True, True)
    content = (program.home / "curtainwall.db").read_bytes()
    serving = program.begin("serve", ANTHROPIC_API_KEY=KEY)
    serving.says("serving ")
    assert "the database was damaged" in serving.err
    assert f"its agent goes on with `{kept}`" in serving.err
    (aside,) = program.home.glob("curtainwall.db.damaged-*[0-9]")
    assert aside.read_bytes() == content, "never deleted, never changed"
    held = program.json("teams", "ask", "backend", "--timeout", "5s", "third", fails=True)
    assert held["status"] == "waiting"
    (asked,) = until(lambda: program.json("approvals", "list"))
    assert asked["tool"] == "teams.answer"
    program("approve", asked["id"])
    (third,) = until(lambda: [it for it in program.json("teams", "history", "backend") if it["status"] == "done"])
    assert third["answer"] == "message 3: third"
    serving.interrupt()
    assert serving.code() in (0, 130)
    assert program("audit", "verify").returncode == 0


@covers("store.rescue-of-teams")
def test_a_pair_is_found_again_where_the_log_of_the_house_is_lost(program: Program) -> None:
    for text in ("first", "second"):
        assert ask(program, text + " x" * 3_000)["status"] == "done"
    database = program.home / "curtainwall.db"
    database.write_bytes(database.read_bytes().replace(b"RouteSet", b"RouteWet"))
    damaged(program, b"PeerAnswerTaken")
    first = program.json("audit", "rescue")
    assert first["damaged"]
    assert first["rebuilt"] == ["`nobody → backend` leads to its conversation again, which its own log tells of"]
    assert ask(program, "third")["text"] == "message 3: third"
    assert program("audit", "rescue").stdout == "the database is whole; nothing was changed\n"


@covers("store.rescue-of-teams")
def test_a_database_cut_in_half_begins_anew_and_nobody_is_in_it_meanwhile(program: Program) -> None:
    assert ask(program, "first")["status"] == "done"
    serving = program.begin("serve", ANTHROPIC_API_KEY=KEY)
    serving.says("serving ")
    database = program.home / "curtainwall.db"
    os.truncate(database, database.stat().st_size // 2)
    refused = program("audit", "rescue", fails=True)
    assert (refused.returncode, "another process uses it: end that process" in refused.stderr) == (1, True)
    serving.kill_everything()
    started = program("start", "--model", "demo", "hello", fails=True)
    assert started.returncode == 1
    assert "audit rescue" in started.stderr
    assert program.json("audit", "rescue")["damaged"]
    assert ask(program, "again")["status"] in ("done", "waiting")
    assert program("audit", "verify", fails=True).stdout


@covers("store.rescue-of-teams", "teams.adopting")
def test_where_the_whole_database_is_lost_a_pair_can_adopt_what_its_agent_wrote_before(program: Program) -> None:
    assert ask(program, "first")["text"] == "message 1: first"
    kept = transcript(program).stem
    (program.home / "curtainwall.db").write_bytes(b"\0" * 100_000)
    assert program.json("audit", "rescue")["damaged"]
    (found,) = program.json("teams", "adopt", "backend")
    assert found["id"] == kept
    program("teams", "adopt", "backend", "--clean", kept)
    assert ask(program, "second")["text"] == "message 2: second"
    assert program.json("teams", "adopt", "backend") == [], "it is claimed, and so is its copy"


@covers("teams.nobody-is-cut-short-by-a-leaver")
def test_a_message_that_nobody_waits_for_is_left_to_whoever_works(program: Program) -> None:
    assert ask(program, "first")["text"] == "message 1: first"
    for word in ("notify", "send"):
        program("teams", word, "backend", f"by {word}", ANTHROPIC_API_KEY=KEY)
    assert [it["status"] for it in program.json("teams", "history", "backend")] == ["done", "queued", "queued"]
    assert len(list(program.home.glob("sessions/*/state/started-*"))) == 1
    assert ask(program, "fourth")["text"] == "message 4: fourth"
