"""The examples run as they stand: the files without a terminal and without a home, and the programs that the pages print."""

import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.repository import ROOT
from tests.support.waiting import until


def test_the_tour_of_the_gate_shows_what_it_promises(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "gate_tour.py")],
        capture_output=True,
        text=True,
        env=program.environ,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("allow (known-tool, workspace-free)", "deny (protected-path)", "granted once", "the human's answer covers read-outside",
                  "salaries.txt", "deny (denied-by-human)", "ok: 20 entries", "ApprovalAnswered → CallDropped"):  # fmt: skip
        assert words in done.stdout, words
    assert "nobody should read this" not in done.stdout
    assert "\x1b" not in done.stdout
    assert not program.home.exists()


def test_the_example_of_the_library_holds_its_conversation(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "library" / "conversation.py")],
        capture_output=True,
        text=True,
        env=program.environ,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("1. done: ", "buy milk", "2. I will list", "todo.txt", "turn: 'read todo.txt', done, calls: 1"):
        assert words in done.stdout, words
    assert not program.home.exists()


def printed_in(page: str, program: Program) -> Path:
    """Write the program that a page prints first to a file of its own."""
    code, *_ = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    copy = program.scratch / "printed.py"
    copy.write_text(code)
    return copy


def run_printed(page: str, program: Program) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", str(printed_in(page, program))]
    return subprocess.run(words, capture_output=True, text=True, env=program.environ, timeout=100, check=False)


def test_the_program_on_the_page_of_the_library_runs_in_a_project_in_the_users_home(program: Program) -> None:
    project = program.scratch / "user" / "project"
    missing = run_printed("library.md", program)
    assert missing.returncode == 1
    assert missing.stderr.endswith("OpeningFailed: the session could not be opened: the workspace `~/project` does not exist\n")
    assert program.sessions() == [], "nothing was opened"
    project.mkdir()
    (project / "notes.txt").write_text("buy milk")
    done = run_printed("library.md", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert "buy milk" in done.stdout
    (session,) = program.sessions()
    assert program.json("sessions", "show", session["id"])["workspace"] == str(project)


def test_the_program_on_the_page_of_teams_runs(program: Program) -> None:
    program.configure(
        f'[model]\nname = "demo"\n[teams.frontend]\nproject = "{program.workspace}"\n[teams.backend]\nproject = "{program.workspace}"\n'
    )
    done = run_printed("teams.md", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("done ")


def test_the_program_on_the_page_of_channels_holds_a_conversation(program: Program) -> None:
    copy = printed_in("channels.md", program)
    port = free_port()
    assert "7070" in copy.read_text()
    copy.write_text(copy.read_text().replace("7070", str(port)))
    program.configure('[model]\nname = "demo"\n')
    program.started.append(subprocess.Popen([sys.executable, str(copy)], stderr=subprocess.DEVNULL, text=True, env=program.environ))
    with until(lambda: connected(port)) as line, line.makefile("rw", encoding="utf-8") as talk:
        talk.write("/mode bypass\nlist the files here\n")
        talk.flush()
        assert talk.readline().startswith("! "), "somebody who is no operator sets no mode"
        assert talk.readline() == "I will list the current directory.\n"


def connected(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=60)
    except ConnectionRefusedError:
        return None
