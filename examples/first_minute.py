"""The first minute: a conversation in a scratch project, offline. `make run` starts it.

    make run                     a conversation, or a short guided tour where there is no terminal
    make run TASK="read notes.txt and tell me what is in /etc/hostname"

Everything lies in `.scratch`: a project to work in, and a home of its own for the log. `make clean` takes it away.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

SCRATCH = Path(__file__).resolve().parent.parent / ".scratch"
HOME, PROJECT = SCRATCH / "home", SCRATCH / "project"
PROGRAM = Path(sys.executable).parent / "curtainwall"
PARKED, INTERRUPTED, PIPE_CLOSED = 3, 130, 141

FILES = {
    "notes.txt": "Shopping: milk, eggs, bread.\nTODO: call the plumber about the kitchen tap.\n",
    "plan.md": "# Plan\n\n1. Paint the fence.\n2. TODO: ask Kim for the ladder.\n",
    "src/hello.py": 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n\n\nprint(greet("world"))\n',
}


def lay_out() -> None:
    """Make the scratch project; what is there already stays as it is."""
    for name, text in FILES.items():
        file = PROJECT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_text(text)


def curtainwall(*words: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the program as a person would, in the scratch home."""
    environ = {**os.environ, "CURTAINWALL_HOME": str(HOME)}
    done = subprocess.run([str(PROGRAM), *words], env=environ, check=False, text=True, stdout=subprocess.PIPE if quiet else None)
    if done.returncode in (INTERRUPTED, PIPE_CLOSED):
        # Ctrl-C, or a reader that has gone, as in `make run | head`: nobody wants the rest.
        sys.exit(done.returncode)
    return done


def start(*words: str) -> int:
    return curtainwall("start", "--workspace", str(PROJECT), *words).returncode


def one_task(task: str) -> int:
    """Do one task; where it parks, say how to go on.

    The exit code is 0 then: whoever calls `make run` would otherwise read that make failed. `curtainwall start` itself ends with 3.
    """
    code = start("--", task)
    if code == PARKED:
        print(f"\nTo answer, write these before the commands above:\n{way_in()}", file=sys.stderr)
        return 0
    return code


def way_in() -> str:
    """Return what to type in a shell so that `curtainwall` is this program, in this home."""
    return f"  export PATH={shlex.quote(str(PROGRAM.parent))}:$PATH CURTAINWALL_HOME={shlex.quote(str(HOME))}"


def tell_whose_home() -> None:
    """Say it where the user has chosen another home, which stays untouched here."""
    chosen = os.environ.get("CURTAINWALL_HOME")
    if chosen and Path(chosen).absolute() != HOME:
        print(f"CURTAINWALL_HOME ({chosen}) is not used here: this project has a home of its own, {HOME}", file=sys.stderr)


def tour() -> int:
    """Show what is allowed, asked and denied, with a second process that answers."""
    print("There is no terminal here, so this is a short tour. The model is `demo`: offline, and no language model.")
    print(f"To type along:\n{way_in()}")
    for title, task in (
        ("1. A file of the project is free to read.", "read notes.txt and search for TODO"),
        ("2. A file elsewhere is asked about. Nobody sits here, so the session parks, and its process ends.", "what is in /etc/hostname?"),
    ):
        step(title, task)
    waiting = json.loads(curtainwall("approvals", "list", "--output", "json", quiet=True).stdout)[0]
    print(f"\n3. Another process answers, and a third one goes on at that very line.\n$ curtainwall approve {waiting['id']}")
    curtainwall("approve", waiting["id"])
    print(f"$ curtainwall start --resume {waiting['session']}", flush=True)
    curtainwall("start", "--resume", waiting["session"])
    step("4. Keys are closed, whatever anyone says.", "read ~/.ssh/id_rsa")
    step("5. What it cannot follow, it says so.", "compose a symphony")
    print("\n6. All of it stands in one log, which nobody can edit unseen.\n$ curtainwall audit verify", flush=True)
    return curtainwall("audit", "verify").returncode


def step(title: str, task: str) -> None:
    words = ("--model", "demo", task)
    print(f"\n{title}\n$ {shlex.join(('curtainwall', 'start', '--workspace', str(PROJECT), *words))}", flush=True)
    start(*words)


def go_on_waiting(_signal: int, _frame: object) -> None:
    """Leave Ctrl-C to the program, which hears it as well and says itself what became of the work."""


def main() -> int:
    signal.signal(signal.SIGINT, go_on_waiting)
    lay_out()
    tell_whose_home()
    task = " ".join(sys.argv[1:])
    if task:
        return one_task(task)
    if sys.stdin.isatty() and sys.stdout.isatty():
        print(f"Later, in other windows:\n{way_in()}")
        print(f"A conversation in {PROJECT}. Try: read notes.txt · what is in /etc/hostname? · read ~/.ssh/id_rsa · /help")
        return start()
    return tour()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
