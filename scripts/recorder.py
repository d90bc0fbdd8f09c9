"""Runs the program in this process and writes down every call of its own functions: `recorder.py OUTPUT SOURCE WORD…`.

Where the first word is the name of a Python file, that file is run instead, as a program that uses the library.

A call is a moment, the thread and task it is made in, the file and name of the function, and the same of the function of ours that called
it, with its line. Coroutines that go on, and whatever runs while a module is imported, are no calls. A comprehension is a part of its
function. Commits to the database are written down as well, each with the names of the events in it, so that a reader can cut out the part
between two of them.
"""

import asyncio
import atexit
import dis
import json
import os
import re
import runpy
import sqlite3
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # generators, coroutines, asynchronous generators
_PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_EVENT = re.compile(r"^INSERT INTO entry VALUES \(\d+, '([A-Za-z]+)'")


class Recorder:
    """The calls and commits of one process."""

    def __init__(self, output: str, source: str) -> None:
        self._output = output
        self._package = os.path.join(os.path.realpath(source), "curtainwall") + os.sep
        self._calls: list[tuple[int, str, str, str, str, str, int]] = []
        self._commits: list[tuple[int, list[str]]] = []
        self._written: dict[int, list[str]] = {}
        self._importing: dict[int, int] = {}
        self._names: dict[CodeType, tuple[str, int] | None] = {}

    def install(self) -> None:
        """Begin, in every thread."""
        leave, connect = os._exit, sqlite3.connect

        def write_and_leave(code: int) -> None:
            self._write()
            leave(code)

        def connect_and_watch(*words: Any, **named: Any) -> sqlite3.Connection:
            database = connect(*words, **named)
            database.set_trace_callback(self._note_statement)
            return database

        os._exit = write_and_leave
        sqlite3.connect = connect_and_watch
        atexit.register(self._write)
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, kind: str, _: object) -> None:
        if kind not in ("call", "return"):
            return
        code, thread = frame.f_code, threading.get_ident()
        if code.co_name == "<module>":
            # The program's own first lines are a module, too, and everything else runs inside of them.
            if frame.f_globals.get("__name__") != "__main__":
                self._importing[thread] = self._importing.get(thread, 0) + (1 if kind == "call" else -1)
        elif kind == "call":
            known = self._names.get(code, ())
            if known == ():
                known = self._names[code] = self._look_at(code)
            if known and known[1] in (-1, frame.f_lasti) and not self._importing.get(thread):
                self._calls.append((time.monotonic_ns(), f"{thread}{_task()}", known[0], code.co_qualname, *self._caller(frame)))

    def _caller(self, frame: FrameType) -> tuple[str, str, int]:
        """Return the file, name and line of the nearest function of ours that a call was made from; nothing if a loop made it."""
        above = frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith(self._package):
                return above.f_code.co_filename.removeprefix(self._package), above.f_code.co_qualname, above.f_lineno
            above = above.f_back
        return "", "", 0

    def _look_at(self, code: CodeType) -> tuple[str, int] | None:
        """Return the file of a function of ours, and where it is when it is called rather than goes on."""
        if not code.co_filename.startswith(self._package) or code.co_name in _PARTS:
            return None
        name = code.co_filename.removeprefix(self._package)
        if not code.co_flags & _GENERATOR_FLAGS:
            return name, -1
        return name, next((each.offset for each in dis.get_instructions(code) if each.opname == "RESUME" and each.arg == 0), -1)

    def _note_statement(self, statement: str) -> None:
        thread = threading.get_ident()
        if found := _EVENT.match(statement):
            self._written.setdefault(thread, []).append(found[1])
        elif statement.startswith("COMMIT"):
            self._commits.append((time.monotonic_ns(), self._written.pop(thread, [])))

    def _write(self) -> None:
        sys.setprofile(None)
        ours = sorted(name for name in sys.modules if name.partition(".")[0] == "curtainwall")
        with open(self._output, "w", encoding="utf-8") as file:
            json.dump({"calls": self._calls, "commits": self._commits, "modules": ours}, file)


def _task() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return "" if task is None else f" {id(task)}"


if __name__ == "__main__":
    output, source, *words = sys.argv[1:]
    sys.path[0] = source
    sys.argv = ["curtainwall", *words]
    recorder = Recorder(output, source)
    recorder.install()
    if words and words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module("curtainwall", run_name="__main__")
