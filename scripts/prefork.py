"""Runs the program many times out of one process that has imported its modules already, which saves most of the time of a short command.

Each line on stdin is one command as JSON (`words`, and the files `stdin`, `stdout` and `stderr`); each line on stdout is its exit code.
Which modules there are is found by running a first command, so none is named here.
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST = ("start", "--model", "demo", "--output", "json", "read notes.txt")


def run(words: Sequence[str], streams: Mapping[int, str], learned: Path | None = None) -> int:
    """Run one command in a child of ours and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    leave = os._exit
    code = 70
    try:
        for number, name in streams.items():
            os.dup2(os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        if learned is not None:
            os._exit = lambda code: (learned.write_text("\n".join(sys.modules)), leave(code))
            atexit.register(lambda: learned.write_text("\n".join(sys.modules)))
        sys.argv = ["curtainwall", *words]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_module("curtainwall", run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    finally:
        # What a process does at its end, which the one that we are a copy of must not do.
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        leave(code)
    return code


def warm_up() -> None:
    """Import what a first command imports, in a home that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="cw-") as scratch:
        learned, home = Path(scratch) / "modules", os.environ.get("CURTAINWALL_HOME", "")
        os.environ["CURTAINWALL_HOME"] = f"{scratch}/home"
        run(FIRST, {0: os.devnull, 1: os.devnull, 2: os.devnull}, learned)
        os.environ["CURTAINWALL_HOME"] = home
        for name in learned.read_text().split("\n") if learned.exists() else ():
            if name.partition(".")[0] not in ("__main__", "curtainwall.__main__"):
                try:
                    importlib.import_module(name)
                except ImportError:
                    continue


def main() -> None:
    warm_up()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        wanted = json.loads(line)
        streams = {0: wanted["stdin"], 1: wanted["stdout"], 2: wanted["stderr"]}
        print(run(wanted["words"], streams), file=answers, flush=True)


if __name__ == "__main__":
    sys.path[0] = os.environ["PYTHONPATH"]
    main()
