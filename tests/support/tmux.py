"""The real program in a real terminal, driven the way a person does: keys in, and what stands on the screen out."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BOUND = 90.0
_LOOK_AGAIN = 0.05


@dataclass(frozen=True)
class Tmux:
    """One terminal of a tmux server of its own; the socket is its name."""

    socket: Path

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names: `Enter`, `C-c`, `Up`, `M-Enter`."""
        self._run("send-keys", "-t", "main", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self._run("send-keys", "-t", "main", "-l", "--", text)

    def enter(self, text: str) -> None:
        """Type a line and send it."""
        self.type(text)
        self.press("Enter")

    @property
    def screen(self) -> str:
        """Everything that stands on the screen or scrolled away; wrapped lines are whole again."""
        return self._run("capture-pane", "-p", "-J", "-S", "-", "-t", "main")

    @property
    def visible(self) -> str:
        """What stands on the screen now, row by row."""
        return self._run("capture-pane", "-p", "-t", "main")

    @property
    def rows(self) -> list[str]:
        """Everything that stands on the screen or scrolled away, row by row: a line that the terminal wrapped is several."""
        return self._run("capture-pane", "-p", "-S", "-", "-t", "main").splitlines()

    @property
    def coloured(self) -> str:
        """The same as `screen`, with the escapes that colour it."""
        return self._run("capture-pane", "-p", "-e", "-J", "-S", "-", "-t", "main")

    def until(self, condition: "str | Callable[[str], bool]", bound: float = _BOUND) -> str:
        """Wait until the screen has these words, or is as the condition wants, and return it."""
        end = time.monotonic() + bound
        while True:
            seen = self.screen
            if condition in seen if isinstance(condition, str) else condition(seen):
                return seen
            assert time.monotonic() < end, f"waited {bound} s for {condition!r} on:\n{seen}"
            time.sleep(_LOOK_AGAIN)

    def exit_code(self, bound: float = _BOUND) -> int:
        """Wait until the program has ended, and return its code as a shell tells it."""
        end = time.monotonic() + bound
        while not self.code.exists():
            assert time.monotonic() < end, f"still running after {bound} s:\n{self.screen}"
            time.sleep(_LOOK_AGAIN)
        return int(self.code.read_text())

    @property
    def code(self) -> Path:
        """Where the shell around the program writes its exit code: tmux now and then misses that a child ended."""
        return self.socket.with_suffix(".code")

    def _run(self, *arguments: str) -> str:
        command = ("tmux", "-u", "-S", str(self.socket), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@contextmanager
def terminal(
    command: Sequence[str],
    directory: Path,
    environ: Mapping[str, str] | None = None,
    size: tuple[int, int] = (100, 30),
    err: Path | None = None,
) -> Iterator[Tmux]:
    """Run a program in a terminal of so many columns and rows, with its stderr in a file if one is given; the server ends with the test."""
    # The path of a socket is short, whatever the directory of the test is called.
    link = Path(f"/tmp/cw-tmux-{os.getpid()}-{time.monotonic_ns()}")
    tmux = Tmux(link)
    options = ("-f", "/dev/null", "new-session", "-d", "-s", "main", "-x", str(size[0]), "-y", str(size[1]), "-c", str(directory))
    wanted = {**os.environ, **(environ or {}), "TERM": "xterm-256color"}
    wanted.pop("TMUX", None)
    # A shell first, so that the options hold before the program starts.
    subprocess.run(["tmux", "-S", str(link), *options, "sh"], check=True, timeout=60, env=wanted)
    try:
        for option in (("remain-on-exit", "on"), ("history-limit", "50000")):
            subprocess.run(["tmux", "-S", str(link), "set-option", "-g", *option], check=True, timeout=60)
        # The shell lives through a Ctrl-C that is meant for the program, and the code appears whole.
        run = shlex.join(command) if err is None else f"{shlex.join(command)} 2>{shlex.quote(str(err))}"
        wrapped = f"trap : INT; {run}; echo $? > {tmux.code}.new; mv {tmux.code}.new {tmux.code}"
        subprocess.run(["tmux", "-S", str(link), "respawn-pane", "-k", "-t", "main", wrapped], check=True, timeout=60)
        yield tmux
    finally:
        subprocess.run(["tmux", "-S", str(link), "kill-server"], check=False, timeout=60, capture_output=True)
        for left in (link, tmux.code):
            left.unlink(missing_ok=True)
