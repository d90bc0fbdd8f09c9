"""From inside a code worker, as if the interpreter were broken: bare system calls, made inside and, where they must succeed, outside."""

import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtainwall.host import WorkerConfinement, confined_worker, find_monty
from tests.support.bare_program import ROOM, Call, Told, run_program, write_program
from tests.support.covers import covers
from tests.support.repository import ROOT
from tests.support.waiting import until
from tests.support.workers import WAYS, descendants, is_gone, status, time_used, way, worker_of

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the bare programs are made of x86_64 calls")

HERE = -100
READ, WRITE, MMAP, MPROTECT, IOCTL, GETPID, SOCKET, CONNECT, SOCKETPAIR, CLONE, EXECVE, KILL = 0, 1, 9, 10, 16, 39, 41, 42, 53, 56, 59, 62
OPEN, CHMOD, PTRACE, PRCTL, MOUNT, OPENAT, UNLINKAT, UNSHARE, PRLIMIT, PROCESS_VM_READV = 2, 90, 101, 157, 165, 257, 263, 272, 302, 310
MEMFD, BPF, EXECVEAT, USERFAULTFD, IO_URING, CLONE3, PIDFD_OPEN, GETDENTS, KEYCTL, STAT, TGKILL, SENDMSG, SETNS = (
    319, 321, 322, 323, 425, 435, 434, 217, 250, 4, 234, 46, 308,
)  # fmt: skip
NOT_PERMITTED, NO_SUCH_FILE, DENIED, NO_SUCH_CALL = -1, -2, -13, -38
FILES = set("monty ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 libgcc_s.so.1 libpthread.so.0 librt.so.1".split())
TAMPERED = 128 + signal.SIGSYS

Tried = Callable[..., tuple[Told, Told]]
Inside = Callable[..., Told]


@pytest.fixture(params=WAYS)
def how(request: pytest.FixtureRequest) -> WorkerConfinement:
    return way(request.param)


@pytest.fixture
def made_inside(how: WorkerConfinement, tmp_path: Path) -> Inside:
    """Make calls inside alone, because of what they would do outside; return what was told."""

    def make(*calls: Call) -> Told:
        program = write_program(tmp_path / "program", *calls)
        return run_program(confined_worker(program, tmp_path / "ours", how=how).launcher)

    return make


@pytest.fixture
def tried(made_inside: Inside, tmp_path: Path) -> Tried:
    """Make harmless calls outside and then inside, and return what was told there."""

    def make(*calls: Call) -> tuple[Told, Told]:
        return run_program(write_program(tmp_path / "program", *calls)), made_inside(*calls)

    return make


@contextmanager
def idle_worker(command: Path, **given: object) -> Iterator[int]:
    """Start a real worker that waits for its first program, and give its process id."""
    with subprocess.Popen([command, "subprocess"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **given) as started:  # type: ignore[call-overload] - whatever the caller gives
        try:
            yield worker_of(started.pid)
        finally:
            started.kill()


def monty() -> Path:
    found = find_monty()
    assert found is not None
    return found


@covers("workers.confined")
def test_no_file_of_the_user_is_read_written_or_removed(tried: Tried, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the user's own")
    calls: list[Call] = [(OPENAT, HERE, str(secret), os.O_RDONLY, 0), (READ, 3, ROOM, 100)]
    outside, inside = tried(*calls)
    assert outside.read == b"the user's own"
    assert inside.answers[0] in (NO_SUCH_FILE, DENIED)
    assert b"own" not in inside.read

    new = tmp_path / "new"
    outside, inside = tried(
        (OPENAT, HERE, str(new), os.O_WRONLY | os.O_CREAT, 0o600), (CHMOD, str(secret), 0o777), (UNLINKAT, HERE, str(new), 0)
    )
    assert outside.answers == [3, 0, 0]
    assert inside.answers == [NOT_PERMITTED, NO_SUCH_CALL, NO_SUCH_CALL]
    assert not new.exists()


@covers("workers.confined")
def test_no_file_of_this_machine_is_read_by_any_call(tried: Tried) -> None:
    places = [
        "/etc/passwd",
        "/etc/hostname",
        "/proc/self/environ",
        "/proc/1/cmdline",
        "/proc/self/maps",
        "/dev/null",
        sys.executable,
        "/usr",
        "/tmp",
    ]
    outside, inside = tried(*((OPENAT, HERE, place, os.O_RDONLY, 0) for place in places))
    assert all(answer > 0 for answer in outside.answers)
    assert all(answer in (NO_SUCH_FILE, DENIED) for answer in inside.answers), dict(zip(places, inside.answers, strict=True))
    # Other ways to open or to list: an older call, a path alone, a handle, another interface.
    outside, inside = tried(
        (OPEN, "/etc/passwd", 0), (OPENAT, HERE, "/etc/passwd", os.O_PATH, 0), (OPENAT, HERE, "/", os.O_RDONLY | os.O_DIRECTORY, 0),
        (GETDENTS, 5, ROOM, 200), (STAT, "/etc/passwd", ROOM), (437, HERE, "/etc/passwd", ROOM, 24),
    )  # fmt: skip
    assert outside.answers[:5] == [3, 4, 5, outside.answers[3], 0]
    assert outside.answers[3] > 0
    assert inside.answers == [NO_SUCH_CALL, NOT_PERMITTED, NOT_PERMITTED, NO_SUCH_CALL, NO_SUCH_CALL, NO_SUCH_CALL]


@covers("workers.confined")
def test_no_socket_of_any_kind(tried: Tried, made_inside: Inside) -> None:
    kinds = [
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET6, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_NETLINK, socket.SOCK_RAW),
    ]
    outside, inside = tried(*((SOCKET, family, kind, 0) for family, kind in kinds), (SOCKETPAIR, 1, 1, 0, ROOM))
    assert all(answer >= 0 for answer in outside.answers)
    assert inside.answers == [NO_SUCH_CALL] * 5
    # Nor by a descriptor that it might have been left.
    inside = made_inside((CONNECT, 0, ROOM, 16), (SENDMSG, 1, ROOM, 0), (IO_URING, 8, ROOM), (SOCKET, 40, 1, 0), (SOCKET, 38, 5, 0))
    assert inside.answers == [NO_SUCH_CALL] * 5


@covers("workers.confined")
def test_no_other_process_is_signalled_traced_or_made(tried: Tried, made_inside: Inside) -> None:
    us = os.getpid()
    outside, inside = tried((KILL, us, 0), (TGKILL, us, us, 0), (PIDFD_OPEN, us, 0), (PRLIMIT, us, 7, 0, ROOM), (UNSHARE, 0x200))
    assert outside.answers == [0, 0, 3, 0, 0]
    assert inside.answers == [NO_SUCH_CALL] * 3 + [NOT_PERMITTED, NO_SUCH_CALL]
    inside = made_inside(
        (CLONE, signal.SIGCHLD, 0, 0, 0, 0), (CLONE, 0x10000000 | 0x10000, 0, 0, 0, 0), (CLONE3, ROOM, 88), (PTRACE, 0, 0, 0, 0),
        (PROCESS_VM_READV, us, ROOM, 1, ROOM, 1, 0), (SETNS, 0, 0),
    )  # fmt: skip
    assert inside.answers == [NOT_PERMITTED, NOT_PERMITTED] + [NO_SUCH_CALL] * 4


@covers("workers.confined")
def test_no_privilege_and_no_new_code(tried: Tried, made_inside: Inside) -> None:
    page = 0x500000
    outside, inside = tried(
        (MMAP, page, 4096, 3, 0x32, -1, 0), (MPROTECT, page, 4096, 5),
        (MMAP, page, 4096, 7, 0x32, -1, 0), (MMAP, page, 4096, 5, 0x32, -1, 0),
        (MEMFD, "code", 0), (PRCTL, 3, 0, 0, 0), (PRLIMIT, 0, 7, 0, ROOM),
    )  # fmt: skip
    assert outside.answers == [page, 0, page, page, 3, 1, 0]
    assert inside.answers == [page] + [NOT_PERMITTED] * 3 + [NO_SUCH_CALL, NOT_PERMITTED, 0]
    inside = made_inside(
        (MOUNT, "none", "/nowhere", "tmpfs", 0, 0), (BPF, 0, ROOM, 72), (USERFAULTFD, 0), (KEYCTL, 0, -3, 1), (IOCTL, 0, 0x5401, ROOM),
        (PRLIMIT, 0, 7, ROOM, 0), (PRCTL, 22, 2, 0, 0),
    )  # fmt: skip
    assert inside.answers == [NO_SUCH_CALL] * 5 + [NOT_PERMITTED] * 2


@covers("workers.confined")
def test_no_other_program_is_started(tried: Tried, made_inside: Inside, how: WorkerConfinement) -> None:
    outside, inside = tried((EXECVE, "/bin/true", 0, 0), (GETPID,))
    assert (outside.answers, outside.code) == ([], 0), "it became the other program"
    assert inside.answers[0] in (NO_SUCH_FILE, NO_SUCH_CALL)
    inside = made_inside((EXECVEAT, HERE, "/bin/true", 0, 0, 0), (GETPID,))
    if how == "landlock":
        # This is the call it was started with, from another place than the one we started it from.
        assert (inside.answers, inside.code) == ([], -signal.SIGSYS)
    else:
        assert inside.answers[0] == NO_SUCH_CALL


@covers("workers.confined")
def test_calls_by_the_numbers_of_another_architecture_are_its_end(tried: Tried) -> None:
    outside, inside = tried((0x40000000 | GETPID,), (GETPID,))
    assert outside.code == 0
    assert (inside.answers, inside.code) in (([], -signal.SIGSYS), ([], TAMPERED))


@covers("workers.confined")
def test_a_waiting_worker_is_seen_to_be_shut_in(how: WorkerConfinement, tmp_path: Path) -> None:
    launcher = confined_worker(monty(), tmp_path, how=how).launcher
    read, write = os.pipe()
    try:
        # The environment and a descriptor that somebody left open get as far as the launcher.
        given = {"env": {"CURTAINWALL_SECRET": "it"}, "pass_fds": (read,), "cwd": tmp_path, "stderr": write}
        with idle_worker(monty(), **given) as free:
            assert b"CURTAINWALL_SECRET=it" in Path(f"/proc/{free}/environ").read_bytes()
            assert str(read) in os.listdir(f"/proc/{free}/fd")
            assert (status(free)["NoNewPrivs"], status(free)["Seccomp"]) == ("0", "0")
        with idle_worker(launcher, **given) as held:
            told = status(held)
            # Bubblewrap says where it is; that is all.
            assert Path(f"/proc/{held}/environ").read_bytes() in (b"", b"PWD=/\0")
            assert sorted(os.listdir(f"/proc/{held}/fd")) == ["0", "1", "2"]
            assert os.readlink(f"/proc/{held}/fd/2") == "/dev/null"
            assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
            assert {told[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {"0" * 16}
            assert os.getsid(held) != os.getsid(0)
            limits = Path(f"/proc/{held}/limits").read_text().splitlines()
            assert [line.split()[-3:-1] for line in limits if line.startswith(("Max core", "Max file size"))] == [["0", "0"]] * 2
            if how == "bubblewrap":
                for kind in ("net", "pid", "mnt", "user", "ipc", "uts"):
                    assert os.readlink(f"/proc/{held}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
                assert files_of(held) <= FILES
    finally:
        os.close(read)
        os.close(write)


def files_of(pid: int) -> set[str]:
    """Return the names of all files that are there for a process."""
    return {name for _, _, names in os.walk(f"/proc/{pid}/root/") for name in names}


@covers("workers.die-with-us")
def test_a_busy_worker_dies_with_us(how: WorkerConfinement, tmp_path: Path) -> None:
    assert is_gone_with_its_parent(confined_worker(monty(), tmp_path, how=how).launcher, 60.0)


def test_a_busy_worker_that_nobody_holds_outlives_us() -> None:
    assert not is_gone_with_its_parent(monty(), 1.0)


def is_gone_with_its_parent(binary: Path, seconds: float) -> bool:
    """Kill a process whose worker runs a program without an end, and tell whether the worker ends as well."""
    command = [sys.executable, "-m", "tests.support.monty_process", str(binary), "busy"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert "running" in parent.stdout.readline()
        workers = {worker_of(pid) for pid in descendants(parent.pid)}
        processes = [os.pidfd_open(pid) for pid in workers]
        try:
            assert processes
            # Computing, not waiting for us: otherwise the end of its input would end it.
            for pid in workers:
                before = time_used(pid)
                until(lambda pid=pid, before=before: time_used(pid) > before + 20)
            assert not any(is_gone(one, 0) for one in processes)
            parent.kill()
            return all(is_gone(one, seconds) for one in processes)
        finally:
            for one in processes:
                if not is_gone(one, 0):
                    signal.pidfd_send_signal(one, signal.SIGKILL)
                os.close(one)
