import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from curtainwall.host import HOME, MIB, Bounds, Confinement, ConfinementFailed, Finished, Sockets, run_confined, start_confined
from curtainwall.host.sandbox.limits import holds_processes, overuse
from curtainwall.host.sandbox.process import GATE
from tests.support.nobody import as_nobody
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("bubblewrap")

NAP = f"1{os.getpid():07}"
"""So many seconds nobody else on this machine sleeps, so that what we started can be told apart."""


def run(command: str, confinement: Confinement | None = None, *, stdin: bytes = b"", **bounds: float) -> Finished:
    base = confinement or Confinement(cwd="/tmp")
    limits = Bounds(**{"seconds": 30, **bounds})  # type: ignore[arg-type] - figures of two kinds
    wanted = Confinement(base.cwd, base.writable, base.readable, base.fixed, base.hidden, base.environment, base.network, limits)
    return asyncio.run(run_confined(["/bin/bash", "-c", command], wanted, stdin=stdin))


def out(command: str, confinement: Confinement | None = None) -> str:
    done = run(command, confinement)
    assert done.code == 0, done
    return done.out.decode()


def alive(marker: str) -> list[int]:
    """Return the processes with this word on their command lines, anywhere on this machine."""
    found: list[int] = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with suppress(OSError):
                if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def is_alive(marker: str) -> bool:
    """Tell whether there is any such process."""
    return bool(alive(marker))


def waits_for_nobody(pid: int) -> bool:
    """Tell whether this is the first process that bubblewrap made, and waits for the word of a bubblewrap that is gone."""
    try:
        awaited = int(Path(f"/proc/{pid}/syscall").read_text().split()[1], 16)
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        is_orphan = Path(f"/proc/{parent}/comm").read_text() != "bwrap\n"
        return is_orphan and os.readlink(f"/proc/{pid}/fd/{awaited}") == "anon_inode:[eventfd]"
    except (OSError, ValueError, IndexError):
        return False


# What it is given


def test_code_output_and_input_pass_through() -> None:
    done = run("cat; echo oops >&2; exit 7", stdin=b"hello")
    assert (done.code, done.out, done.err) == (7, b"hello", b"oops\n")
    assert (done.cut, done.timed_out, done.stopped) == (False, False, None)
    assert run("kill -9 $$").code == 137


def test_a_process_that_reads_no_input_is_no_problem() -> None:
    assert run("true", stdin=b"x" * 10_000_000).code == 0


def test_the_environment_is_clean_and_home_is_empty() -> None:
    os.environ["CURTAINWALL_TEST_KEY"] = "secret"
    try:
        told = dict(line.split("=", 1) for line in out("env", Confinement(cwd="/", environment={"EXTRA": "1"})).splitlines())
    finally:
        del os.environ["CURTAINWALL_TEST_KEY"]
    told.pop("_"), told.pop("SHLVL"), told.pop("PWD"), told.pop("OLDPWD", None)
    assert told.keys() == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "EXTRA"}
    assert told["HOME"] == HOME
    assert out("ls -A ~; touch ~/x; ls -A ~") == "x\n"


def test_paths_are_writable_readable_or_not_there(tmp_path: Path) -> None:
    real = Path(os.path.realpath(tmp_path))
    for name in ("w", "r", "x"):
        (real / name).mkdir()
        (real / name / "f").write_text(name)
    confinement = Confinement(cwd=str(real / "w"), writable=(str(real / "w"),), readable=((str(real / "r"), "/opt/r"),))
    told = out("pwd; cat f /opt/r/f; echo new > f; echo no 2>/dev/null > /opt/r/f || echo held; ls ..; ls /opt", confinement)
    assert told == f"{real}/w\nwrheld\nw\nr\n"
    assert (real / "w/f").read_text() == "new\n"
    assert (real / "r/f").read_text() == "r"


def test_fixed_spots_cannot_be_changed_moved_or_deleted_and_hidden_ones_look_empty(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "kept").mkdir()
    (root / "kept/f").write_text("kept")
    (root / "file").write_text("kept")
    (root / "secret").mkdir()
    (root / "secret/key").write_text("k")
    (root / "note").write_text("k")
    confinement = Confinement(
        cwd=str(root), writable=(str(root),), fixed=(str(root / "kept"), str(root / "file"), str(root / "gone")),
        hidden=(str(root / "secret"), str(root / "note"), str(root / "missing")),
    )  # fmt: skip
    tries = "echo x > kept/f; echo x > kept/new; rm -rf kept; mv kept other; echo x > file; rm file; mv file other"
    run(f"{{ {tries}; }} 2>/dev/null", confinement)
    assert ((root / "kept/f").read_text(), (root / "file").read_text()) == ("kept", "kept")
    assert sorted(entry.name for entry in root.iterdir()) == ["file", "kept", "note", "secret"]
    assert out("ls -A secret; cat note; echo x > secret/y 2>/dev/null || echo held", confinement) == "held\n"
    assert (root / "secret/key").read_text() == "k"


def test_a_socket_can_be_given(tmp_path: Path) -> None:
    path = Path(os.path.realpath(tmp_path)) / "s"
    script = f"import socket; s=socket.socket(1); s.bind({str(path)!r}); s.listen(); print('up', flush=True); s.accept()[0].send(b'hi')"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        client = "import socket; s=socket.socket(socket.AF_UNIX); s.connect('/run/door'); print(s.recv(9).decode())"
        assert out(f'/usr/bin/python3 -c "{client}"', Confinement(cwd="/", readable=((str(path), "/run/door"),))) == "hi\n"


@pytest.mark.parametrize("path", ["/", "/usr", "/etc", "/proc/1", "/dev/shm", "/home", "/root", "/tmp", "/run"])
def test_the_systems_own_places_are_never_given(path: str) -> None:
    with pytest.raises(ConfinementFailed, match="cannot be given"):
        run("true", Confinement(cwd="/", writable=(path,)))


def test_what_cannot_be_set_up_says_why_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(ConfinementFailed, match="no such file"):
        run("true", Confinement(cwd="/", writable=("/nowhere",)))
    with pytest.raises(ConfinementFailed, match="link"):
        run("true", Confinement(cwd="/", writable=(str(Path(os.path.realpath(tmp_path)) / "link"),)))
    with pytest.raises(ConfinementFailed, match="chdir"):
        run("true", Confinement(cwd="/nowhere"))
    with pytest.raises(ConfinementFailed, match="started"):
        asyncio.run(run_confined(["/bin/true", "\0"], Confinement(cwd="/")))
    missing = asyncio.run(run_confined(["/no/program"], Confinement(cwd="/")))
    assert (missing.code, b"/no/program" in missing.err) == (127, True)


def test_no_descriptor_of_ours_is_inside() -> None:
    assert out("ls /proc/self/fd") == "0\n1\n2\n3\n"  # the last one is of `ls` itself


def test_a_process_has_the_same_paths_for_an_ordinary_user() -> None:
    done = as_nobody("id -u; touch ~/x /tmp/x && ls /root /etc/shadow")
    assert done.out == "1000\n"
    assert done.code != 0


# Bounds


def test_time_ends_it_with_all_its_children() -> None:
    begun = time.monotonic()
    done = run(f"sleep {NAP}.5 & exec sleep {NAP}.5", seconds=0.5)
    assert (done.timed_out, done.code) == (True, 137)
    assert "longer than 0.5 seconds" in (done.stopped or "")
    assert time.monotonic() - begun < 40
    assert not is_alive(f"{NAP}.5")


def test_what_is_left_in_the_background_goes_with_the_command() -> None:
    done = run(f"setsid sleep {NAP}.6 >/dev/null 2>&1 & (trap '' TERM HUP; sleep {NAP}.6) & echo done")
    assert (done.code, done.out) == (0, b"done\n")
    assert not is_alive(f"{NAP}.6")


def test_output_is_cut_in_the_middle_and_says_so() -> None:
    done = run("seq 1 100000", output=1000)
    assert done.cut
    assert done.code == 0
    assert done.out.startswith(b"1\n2\n3\n")
    assert done.out.endswith(b"99999\n100000\n")
    assert b"bytes left out" in done.out
    assert len(done.out) < 1100


def test_output_up_to_the_limit_is_whole() -> None:
    done = run("head -c 1000 /dev/zero", output=1000)
    assert (done.cut, len(done.out)) == (False, 1000)


def test_a_process_that_prints_for_ever_is_ended() -> None:
    done = run("yes", output=100_000)
    assert done.cut
    assert "printed more than" in (done.stopped or "")
    assert len(done.out) < 101_000


BOMB = """
import os, time
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError:
    print("held at", made, flush=True)
    raise SystemExit(3)
print("free", flush=True)
time.sleep(20)
"""


def test_a_fork_bomb_is_bounded_for_an_ordinary_user_by_the_kernel() -> None:
    done = as_nobody(f"exec /usr/bin/python3 -c '{BOMB}'", processes=50)
    assert done.code == 3, done
    assert int(done.out.split()[-1]) < 50


def test_a_fork_bomb_is_bounded_for_whoever_we_are() -> None:
    done = run(f"exec /usr/bin/python3 -c '{BOMB}'", processes=50)
    if holds_processes():
        assert done.code == 3, done
        assert int(done.out.split()[-1]) < 50
    else:
        assert "more than 50 processes" in (done.stopped or "")


def test_threads_count_as_well() -> None:
    threads = "import threading, time\nfor n in range(500): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\nprint(n)"
    done = run(f"exec /usr/bin/python3 -c '{threads}'", processes=50)
    assert b"can't start new thread" in done.err or "more than 50 processes" in (done.stopped or "")


def test_a_family_that_is_too_big_is_seen_from_outside() -> None:
    sleepers = [subprocess.Popen(["sleep", "30"]) for _ in range(5)]
    try:
        assert overuse(os.getpid(), Bounds(processes=10_000)) is None
        assert "more than 3 processes" in (overuse(os.getpid(), Bounds(processes=3)) or "")
        assert "1 MiB of memory" in (overuse(os.getpid(), Bounds(processes=10_000, memory=MIB)) or "")
    finally:
        for one in sleepers:
            one.kill()
            one.wait()


def test_where_no_connection_can_be_looked_at_there_are_only_pairs() -> None:
    code = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1)); socket.socket(socket.AF_UNIX)"
    held = Confinement(cwd="/tmp", sockets=Sockets.NONE, bounds=Bounds(seconds=30))
    done = asyncio.run(run_confined(["/usr/bin/python3", "-c", code], held))
    assert done.out == b"b'x'\n"
    assert b"Address family not supported" in done.err


def test_no_group_stays_behind() -> None:
    run("true")
    groups = list(Path("/sys/fs/cgroup").rglob(f"curtainwall-{os.getpid()}-*")) if os.geteuid() == 0 else []
    assert groups == []


def test_memory_is_bounded_for_each_and_for_all_together() -> None:
    alone = run("/usr/bin/python3 -c 'x = bytearray(600 << 20)'", memory=300 * MIB)
    assert b"MemoryError" in alone.err
    fill = "/usr/bin/python3 -c 'x = bytearray(200 << 20); import time; time.sleep(20)'"
    together = run(f"{fill} & {fill} & {fill} & wait", memory=300 * MIB)
    assert "MiB of memory" in (together.stopped or "")


def test_shared_memory_counts_too() -> None:
    fill = "import mmap, time; m = mmap.mmap(-1, 600 << 20); [m.__setitem__(at, 1) for at in range(0, 600 << 20, 4096)]; time.sleep(20)"
    assert "MiB of memory" in (run(f"/usr/bin/python3 -c '{fill}'", memory=300 * MIB).stopped or "")


def test_files_and_scratch_are_bounded(tmp_path: Path) -> None:
    root = os.path.realpath(tmp_path)
    confinement = Confinement(cwd=root, writable=(root,))
    assert run("head -c 3000000 /dev/zero > big", confinement, file_size=1_000_000).code != 0
    assert (Path(root) / "big").stat().st_size == 1_000_000
    assert b"No space" in run("head -c 3000000 /dev/zero > /tmp/big", scratch=1_000_000).err
    assert b"No space" in run("head -c 100000000 /dev/zero > /dev/shm/big").err
    for place in ("/x", "/dev/x", "/home/x", "/run/x", "/usr/x"):
        assert b"Read-only" in run(f"echo > {place}").err


# Life


def test_cancelling_whoever_waits_ends_everything() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(run_confined(["/bin/sleep", f"{NAP}.7"], Confinement(cwd="/")))
        assert await asyncio.to_thread(until, lambda: is_alive(f"/bin/sleep\x00{NAP}.7"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not is_alive(f"{NAP}.7")

    asyncio.run(main())


def test_a_server_talks_until_it_is_closed() -> None:
    async def main() -> None:
        server = await start_confined(["/bin/cat"], Confinement(cwd="/", bounds=Bounds(seconds=None)))
        async with server:
            for word in (b"one\n", b"two\n"):
                server.stdin.write(word)
                await server.stdin.drain()
                assert await server.stdout.readline() == word
        await server.close()
        assert await server.wait() == 137
        gone = await start_confined(["/bin/sh", "-c", "echo bye >&2; exit 3"], Confinement(cwd="/"))
        async with gone:
            assert await gone.stderr.read() == b"bye\n"
            assert await gone.wait() == 3

    asyncio.run(main())


def test_one_that_prints_for_ever_and_that_nobody_reads_any_more_is_ended_all_the_same() -> None:
    async def scenario() -> None:
        async with await start_confined(["cat", "/dev/zero"], Confinement(cwd="/tmp")) as process:
            assert await process.stdout.read(1)
        assert await process.wait() == 128 + signal.SIGKILL

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_is_printed_can_go_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        done = asyncio.run(run_confined(["/bin/echo", "hi"], Confinement(cwd="/"), stdout=file.fileno()))
    assert (done.out, (tmp_path / "out").read_bytes()) == (b"", b"hi\n")


def test_cancelling_at_any_moment_of_the_start_leaves_nothing_behind() -> None:
    async def main(delay: float) -> None:
        waiting = asyncio.create_task(run_confined(["/bin/sleep", f"{NAP}.9"], Confinement(cwd="/")))
        await asyncio.sleep(delay)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    for step in range(25):
        asyncio.run(main(step * 0.002))
    assert not is_alive(f"{NAP}.9")


PARENT = f"""
import asyncio
from curtainwall.host import Bounds, Confinement, run_confined
asyncio.run(run_confined(["/bin/bash", "-c", "setsid sleep {NAP}.8 & (trap '' TERM HUP INT; sleep {NAP}.8; true)"],
    Confinement(cwd="/", bounds=Bounds(seconds=None))))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_our_process_is_killed_no_child_outlives_it(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT]) as parent:
        assert until(lambda: is_alive(f"sleep\x00{NAP}.8"), 60), "it never started"
        parent.send_signal(how)
        parent.wait()
        assert until(lambda: not is_alive(f"{NAP}.8"))


def test_killed_at_any_moment_of_the_start_we_leave_nothing_behind() -> None:
    parents = []
    for step in range(12):
        script = PARENT.replace(f"{NAP}.8", f"{NAP}.1").replace("asyncio.run(", "print(flush=True); asyncio.run(", 1)
        parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(step * 0.01)
        parent.kill()
        parent.communicate()
        parents.append(parent)
    # Bubblewrap that is killed right after it made its first process leaves that one waiting for it: it never becomes a program.
    assert until(lambda: all(waits_for_nobody(pid) for pid in alive(f"{NAP}.1"))), "something outlived its parent"
    for pid in alive(f"{NAP}.1"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("answer", "code", "printed"), [(b"1\n", 0, b"ran\n"), (b"", 125, b"")])
def test_what_is_started_runs_only_when_we_are_still_there_to_say_so(answer: bytes, code: int, printed: bytes) -> None:
    (ready, say), (hear, go), (spare, other) = os.pipe(), os.pipe(), os.pipe()
    os.write(go, answer)
    os.close(go)
    words = ["/bin/bash", "-c", GATE, "gate", str(say), str(hear), str(spare), "", "/bin/echo", "ran"]
    done = subprocess.run(words, pass_fds=(say, hear, spare), capture_output=True, check=False)
    assert os.read(ready, 9) == b"\n"
    for one in (ready, say, hear, spare, other):
        os.close(one)
    assert (done.returncode, done.stdout) == (code, printed)


def test_many_at_once_do_not_cross() -> None:
    async def main() -> list[bytes]:
        runs = [run_confined(["/bin/echo", str(number)], Confinement(cwd="/")) for number in range(12)]
        return [done.out for done in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == [f"{number}\n".encode() for number in range(12)]


def test_no_descriptor_stays_open_in_our_process() -> None:
    run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run("true")
    with pytest.raises(ConfinementFailed):
        run("true", Confinement(cwd="/nowhere"))
    assert len(os.listdir("/proc/self/fd")) <= before
