"""Asks git which paths the user's ignore rules leave out: those of the project as it is, not as an agent changed them in a view."""

import os
import select
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from curtainwall.host.files.beneath import owner_of
from curtainwall.host.sandbox.bubblewrap import Bubblewrap, find_bubblewrap, plan_of
from curtainwall.host.sandbox.confinement import Confinement, ConfinementFailed, Sockets
from curtainwall.host.sandbox.limits import owner_words

_ANSWER_SECONDS: Final = 10.0
_LIST_SECONDS: Final = 30.0
_MOST_STARTS: Final = 32
"""How often git is started again. It gives up on a path behind a link of the project, or in a submodule, and an agent chooses the paths."""
_CHUNK: Final = 65_536
_LONGEST: Final = 1024 * 1024
_GIT: Final = (
    "/usr/bin/env", "git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.directory=*",
)  # fmt: skip
_CHECK: Final = (*_GIT, "check-ignore", "--stdin", "-z", "--verbose", "--non-matching")
_LIST: Final = (*_GIT, "ls-files", "-z")
_ENVIRONMENT: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}


class IgnoreRules:
    """The ignore rules of one project, for as long as the block lasts. Where git cannot tell, nothing is ignored."""

    def __init__(self, project: str) -> None:
        """Prepare to ask about a project, by its real path; git is started with the first question."""
        self._project = project
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0 if os.path.lexists(f"{project}/.git") else _MOST_STARTS
        self._rest = b""
        self._tracked: frozenset[bytes] | None = None

    def __enter__(self) -> Self:
        """Return the rules."""
        return self

    def __exit__(self, *_: object) -> None:
        """End git."""
        self._end()

    def has(self, path: str, *, is_directory: bool) -> bool:
        """Tell whether the rules leave out a path, relative to the project; what git tracks is never left out."""
        if self._process is None and not self._start():
            return False
        # Without the first two characters, a colon would begin a pathspec with a meaning.
        question = os.fsencode(f"./{path}{'/' if is_directory else ''}")
        answer = self._ask(question + b"\0")
        if answer is None:
            self._end()
            return False
        _, _, pattern, _ = answer
        if not pattern or pattern.startswith(b"!"):
            return False
        # The rules of an ignored directory do not count for what git tracks in it.
        return not is_directory or not self._holds_tracked(os.fsencode(path))

    def _holds_tracked(self, directory: bytes) -> bool:
        if self._tracked is None:
            self._tracked = self._tracked_directories()
        return self._tracked == frozenset() or directory in self._tracked

    def _tracked_directories(self) -> frozenset[bytes]:
        """Return the directories with files that git tracks; empty if that is unknown."""
        listing = self._run(_LIST, stdin=subprocess.DEVNULL)
        if listing is None:
            return frozenset()
        try:
            out, _ = listing.communicate(timeout=_LIST_SECONDS)
        except subprocess.TimeoutExpired:
            listing.kill()
            listing.communicate()
            return frozenset()
        if listing.returncode != 0:
            return frozenset()
        directories = {b""}
        for name in out.split(b"\0"):
            above = name.rpartition(b"/")[0]
            while above not in directories:
                directories.add(above)
                above = above.rpartition(b"/")[0]
        return frozenset(directories)

    def _start(self) -> bool:
        if self._starts >= _MOST_STARTS:
            return False
        self._starts += 1
        self._rest = b""
        self._process = self._run(_CHECK, stdin=subprocess.PIPE)
        if self._process is None:
            self._starts = _MOST_STARTS
        return self._process is not None

    def _run(self, words: tuple[str, ...], stdin: int) -> "subprocess.Popen[bytes] | None":
        """Start git confined, with nothing but the project to read."""
        bubblewrap = find_bubblewrap()
        if not isinstance(bubblewrap, Bubblewrap):
            return None
        confinement = Confinement(
            cwd=self._project,
            readable=tuple((path, path) for path in dict.fromkeys((self._project, *_elsewhere(self._project)))),
            environment=_ENVIRONMENT,
            sockets=Sockets.NONE,
            as_owner=True,
        )
        with ExitStack() as stack:
            try:
                opened = os.open(self._project, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, opened)
                plan = plan_of(confinement)
                stack.callback(plan.close)
                return subprocess.Popen(
                    [*owner_words(owner_of(opened), confinement), bubblewrap.path, *plan.words, "--", *words],
                    stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/", bufsize=0, pass_fds=plan.descriptors,
                )  # fmt: skip
            except (OSError, ConfinementFailed):
                return None

    def _ask(self, question: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Return git's answer, or None if it gives none."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question)
        except OSError:
            return None
        while self._rest.count(b"\0") < 4:
            if not select.select([process.stdout], [], [], _ANSWER_SECONDS)[0] or len(self._rest) > _LONGEST:
                self._starts = _MOST_STARTS
                return None
            piece = os.read(process.stdout.fileno(), _CHUNK)
            if not piece:
                return None
            self._rest += piece
        source, line, pattern, named, self._rest = self._rest.split(b"\0", 4)
        return source, line, pattern, named

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            process.kill()


def _elsewhere(project: str) -> tuple[str, ...]:
    """Return the git directories of a worktree, which lie outside of it: its own, and that of the whole repository."""
    with suppress(OSError, UnicodeDecodeError, ValueError):
        pointer = Path(project, ".git")
        if not pointer.is_file() or pointer.is_symlink():
            return ()
        own = (Path(project) / pointer.read_text(encoding="utf-8").removeprefix("gitdir:").strip()).resolve(strict=True)
        common = (own / (own / "commondir").read_text(encoding="utf-8").strip()).resolve(strict=True)
        if (common / "HEAD").is_file() and own.is_relative_to(common):
            return (str(common),)
    return ()
