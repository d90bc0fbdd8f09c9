"""A conversation on a terminal that can do nothing but print lines, as in an editor's shell window."""

import os
import pty
import re
import select
import sys
import termios
from contextlib import suppress

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.waiting import until


class DumbTerminal:
    """The program on a terminal of its own; everything that it printed is kept."""

    def __init__(self, program: Program, *words: str, size: tuple[int, int] = (24, 60)) -> None:
        self.printed = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(program.workspace)
            environ = {**program.environ, "TERM": "dumb", "COLUMNS": "500"}
            os.execve(sys.executable, [sys.executable, "-m", "curtainwall", *words], environ)
        termios.tcsetwinsize(self._fd, size)

    def until(self, words: str) -> re.Match[str]:
        return until(lambda: re.search(words, self._read()), 90)

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\r".encode())

    def code(self) -> int:
        """Wait for its end and return the exit code."""
        self.until(r"goes\s+on\s+with\s+this\s+session")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> str:
        # A terminal whose program has ended answers with an error.
        with suppress(OSError):
            while select.select([self._fd], [], [], 0.05)[0] and (data := os.read(self._fd, 65_536)):
                self.printed += data
        return self.printed.decode(errors="replace")


@covers("terminal.dumb")
def test_a_conversation_on_a_dumb_terminal_prints_lines_and_no_escapes(program: Program) -> None:
    terminal = DumbTerminal(program, "start", "--model", "demo")
    terminal.until("/help lists the slash words")
    terminal.type(f"write '{'word ' * 30}' to notes.txt")
    terminal.until("files: wrote notes.txt")
    terminal.type("read /etc/hostname")
    ask = terminal.until(r"/approve (\w+) or /deny \1 answers this")[1]
    terminal.type("/approve")
    terminal.until("say which")
    assert program.open_approval() == ask, "nobody knows which ask a line without an id was about"
    terminal.type(f"/approve {ask}")
    terminal.until("I read /etc/hostname")
    terminal.type("/quit")
    assert terminal.code() == 0
    assert b"\x1b" not in terminal.printed
    written = [row for row in terminal.printed.decode().splitlines() if row.startswith("┊")]
    assert max(map(len, written)) < 60 or all("/" in row for row in written if len(row) >= 60), "COLUMNS does not count here"


def test_an_end_of_input_leaves_a_dumb_terminal(program: Program) -> None:
    terminal = DumbTerminal(program, "start", "--model", "demo")
    terminal.until("/help lists the slash words")
    terminal.type("\x04")
    assert terminal.code() == 0


@covers("terminal.dumb")
def test_a_terminal_that_does_not_know_its_width_has_eighty_columns(program: Program) -> None:
    terminal = DumbTerminal(program, "start", "--model", "demo", size=(0, 0))
    rows = terminal.until("/help lists the slash words").string.splitlines()
    terminal.type("/quit")
    assert terminal.code() == 0
    assert not any(row.startswith("↪") for row in rows)
    assert max(map(len, terminal._read().splitlines())) < 80  # pyright: ignore[reportPrivateUsage] - a helper of this module
