"""A Docker engine of the tests' own, one for all workers of a run, without a network; and an image made of this machine's files."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.real_parts import CLAUDE, OPENCODE
from tests.support.waiting import is_gone, until

IMAGE = "curtainwall-test:1"
_PROGRAMS = (
    "sh bash env ls cat cp mv rm mkdir chmod ln sleep id uname pwd touch head tail wc sort cut tr tee date find grep sed readlink "
    "dirname basename mktemp stat printf true false ps kill setsid timeout socat git rg node"
).split()


@dataclass(frozen=True)
class DockerEngine:
    """Where it listens."""

    socket: Path

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def docker(self, *arguments: str, stdin: bytes | None = None, bound: float = 100) -> str:
        """Return what the client says."""
        done = self._run(*arguments, stdin=stdin, bound=bound)
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {(done.stdout[-2000:] + done.stderr).decode(errors='replace')}"
        return done.stdout.decode(errors="replace").strip()

    def remove(self, container: str) -> None:
        """Remove a container, unless a program beside us does so: each one that starts removes what dead ones left on the engine."""
        done = self._run("rm", "-f", container)
        assert done.returncode == 0 or b"already in progress" in done.stderr or b"No such container" in done.stderr, done.stderr

    def _run(self, *arguments: str, stdin: bytes | None = None, bound: float = 100) -> subprocess.CompletedProcess[bytes]:
        command = ("docker", "--host", self.address, *arguments)
        return subprocess.run(command, input=stdin, capture_output=True, timeout=bound, check=False)


@contextmanager
def shared_engine(directory: Path) -> Iterator[DockerEngine]:
    """Lend the engine of this run: the first worker starts it, the last one to leave ends it, by its process id."""
    directory.mkdir(parents=True, exist_ok=True)
    engine = DockerEngine(directory / "docker.sock")
    with _locked(directory) as users:
        if not users.read():
            users.pid = _start(directory, engine)
            _import(engine, directory)
        users.write(users.read() + 1)
    try:
        yield engine
    finally:
        with _locked(directory) as users:
            users.write(users.read() - 1)
            if not users.read():
                _end(users.pid, directory)


class _Users:
    """How many workers use the engine, and which process it is; kept in a file that is locked meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = json.loads(path.read_text() or "{}")

    def read(self) -> int:
        return self._kept.get("users", 0)

    def write(self, count: int) -> None:
        self._kept["users"] = count
        self._path.write_text(json.dumps(self._kept))

    @property
    def pid(self) -> int:
        return self._kept["pid"]

    @pid.setter
    def pid(self, pid: int) -> None:
        self._kept["pid"] = pid


@contextmanager
def _locked(directory: Path) -> Iterator[_Users]:
    path = directory / "users.json"
    with path.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield _Users(path)


def _start(directory: Path, engine: DockerEngine) -> int:
    # The engine's own sockets lie below this, and a socket's path has 107 bytes.
    places = ("--data-root", str(directory / "data"), "--exec-root", str(directory / "x"), "--pidfile", str(directory / "pid"))
    command = ("dockerd", "--iptables=false", "--bridge=none", "--host", engine.address, *places)
    # A child of nobody here, so that any worker may end it; and where all of them are killed, it ends by itself.
    command = ("sh", "-c", 'timeout 3600 "$@" >"$0" 2>&1 </dev/null & echo $!', str(directory / "log"), *command)
    pid = int(subprocess.run(command, capture_output=True, start_new_session=True, check=True).stdout)
    deadline = time.monotonic() + 60
    while subprocess.run(("docker", "--host", engine.address, "version"), capture_output=True, check=False).returncode != 0:
        assert not is_gone(pid), f"the engine ended: {(directory / 'log').read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"the engine did not start: {(directory / 'log').read_text()[-2000:]}"
    return pid


def _end(pid: int, directory: Path) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    until(lambda: is_gone(pid))
    # Where a container had the host's network, the engine leaves its mount of it behind.
    subprocess.run(("umount", str(directory / "x" / "netns" / "default")), capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _import(engine: DockerEngine, scratch: Path) -> None:
    """Make the image: programs of this machine with the libraries they need, and nothing else."""
    root = scratch / "root"
    for name in ("usr/bin", "usr/lib", "usr/lib64", "etc/ssl/certs", "etc/curtainwall", "run/curtainwall", "home/agent", "workspace"):
        (root / name).mkdir(parents=True)
    for name in ("tmp", "proc", "sys", "dev", "var/tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for program in _PROGRAMS:
        copy_program(root, program)
    for borrowed in (CLAUDE, OPENCODE):
        if borrowed.is_file():
            copy_libraries(root, borrowed)
    gemini = root / "usr/bin/gemini"
    gemini.write_text('#!/bin/sh\nexec node /usr/local/lib/gemini/bundle/gemini.js "$@"\n')
    gemini.chmod(0o755)
    (root / "usr/bin/codex").symlink_to("/usr/local/lib/codex/bin/codex")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nagent:x:1000:\n")
    packed = subprocess.run(("tar", "-C", str(root), "--numeric-owner", "-c", "."), capture_output=True, check=True).stdout
    engine.docker("import", "-c", "ENV PATH=/usr/local/bin:/usr/bin", "-", IMAGE, stdin=packed)
    shutil.rmtree(root)


def copy_program(root: Path, program: str) -> None:
    """Copy a program of this machine, with the libraries that it needs, into a root file system."""
    path = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    assert path is not None, f"this machine has no `{program}`, which the test image needs"
    shutil.copy(path, root / "usr/bin" / program)
    copy_libraries(root, Path(path))


def copy_libraries(root: Path, *programs: Path) -> None:
    """Copy the libraries that programs of this machine need into a root file system."""
    told = subprocess.run(("ldd", *map(str, programs)), capture_output=True, text=True, check=False).stdout
    for word in told.split():
        if word.startswith("/") and not word.endswith(":"):
            inside = root / (f"usr{word}" if word.startswith(("/lib/", "/lib64/")) else word[1:])
            if not inside.exists():
                inside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, inside)
