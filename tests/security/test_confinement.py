"""From inside `shell.run`: nothing of this machine but the workspace. Each attack is tried outside too, where it must succeed."""

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtainwall.model import Mode
from tests.support.machines import SECRET, Machine
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("bubblewrap")
PYTHON = "/usr/bin/python3"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.at(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Machine:
    made = Machine.at(tmp_path, own=False, mode=Mode.ACCEPT_EDITS)
    for name in (".git/hooks", ".git/objects", ".vscode", "src/deep"):
        (made.workspace / name).mkdir(parents=True)
    for name in (".git/config", ".git/HEAD", ".vscode/tasks.json", "src/main.py", "src/deep/.envrc"):
        (made.workspace / name).write_text("the user's\n")
    return made


@contextmanager
def listening(family: int, address: object) -> Generator[list[bytes]]:
    """Listen somewhere and give the list of what arrives."""
    heard: list[bytes] = []
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)  # type: ignore[arg-type] - an address of its family
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    heard.append(client.recv(100))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield [server.getsockname(), heard]  # type: ignore[misc] - the address, and the list
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def outside(code: str) -> subprocess.CompletedProcess[str]:
    """Run the same program as it would run without a sandbox."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False)


def inside(machine: Machine, code: str) -> str:
    """Run a program in the sandbox and return everything it said."""
    (machine.workspace / "try.py").write_text(code)
    told = machine.sh(f"{PYTHON} try.py 2>&1")
    return str(told["stdout"])


# The network


def test_no_tcp_to_this_machine_or_the_world(machine: Machine) -> None:
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as (address, heard):
        code = f"import socket; s = socket.create_connection({address!r}, 3); s.send(b'out'); print('sent')"
        assert outside(code).stdout == "sent\n"
        assert "refused" in inside(machine, code)
        assert heard == [b"out"]
    assert "unreachable" in inside(machine, "import socket; socket.create_connection(('192.0.2.1', 80), 3)")
    assert machine.out(f"{PYTHON} -c 'import socket; print(socket.if_nameindex())'") == "[(1, 'lo')]\n"


def test_no_names_are_asked_for(machine: Machine) -> None:
    assert "gaierror" in inside(machine, "import socket; socket.getaddrinfo('example.org', 80)")


def test_no_abstract_socket_of_another_process(machine: Machine) -> None:
    name = f"\0curtainwall-{os.getpid()}"
    with listening(socket.AF_UNIX, name) as (_, heard):
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({name!r}); s.send(b'out'); print('sent')"
        assert outside(code).stdout == "sent\n"
        assert "refused" in inside(machine, code)
        assert heard == [b"out"]


def test_no_socket_of_ours_on_the_disk(machine: Machine) -> None:
    path = str(machine.root / "house/door")
    with listening(socket.AF_UNIX, path) as (_, heard):
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.send(b'out'); print('sent')"
        assert outside(code).stdout == "sent\n"
        assert "No such file" in inside(machine, code)
        assert heard == [b"out"]


def test_no_socket_that_no_namespace_holds(machine: Machine) -> None:
    for family in (40, 38, 17, 31):  # vsock, alg, packet, bluetooth
        assert "not supported" in inside(machine, f"import socket; socket.socket({family}, socket.SOCK_STREAM)")


# Files and secrets


def test_no_home_no_keys_and_nothing_of_ours(machine: Machine) -> None:
    places = [machine.root / "home/.ssh/id_ed25519", machine.root / "house/curtainwall.db"]
    look = "; ".join(f"cat {place}" for place in places)
    assert subprocess.run(["sh", "-c", look], capture_output=True, text=True, check=True).stdout == SECRET * 2
    told = machine.sh(f"{look}; ls -A ~ {machine.root}/home /root /home /var /run /srv /opt /mnt /boot /sys")
    assert SECRET not in str(told)
    listed = str(told["stdout"])
    assert ".ssh" not in listed
    # Everything that can be read at all, but for the system itself.
    assert machine.sh("grep -rlsF sk-ant-qqqq / --exclude-dir=proc --exclude-dir=usr --exclude-dir=dev")["stdout"] == ""


def test_no_accounts_or_host_keys_of_this_machine(machine: Machine) -> None:
    assert os.path.exists("/etc/passwd")
    assert machine.out("cut -d: -f1 /etc/passwd") == "root\nagent\nnobody\n"
    assert machine.out("ls -A /etc/shadow /etc/ssh /etc/gshadow /etc/sudoers /etc/ssl/private 2>/dev/null || true") == ""


def test_no_environment_of_ours_in_any_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    assert SECRET in subprocess.run(["cat", "/proc/self/environ"], capture_output=True, text=True, check=True).stdout
    told = machine.out("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; env")
    assert "PATH=" in told
    assert "ANTHROPIC" not in told
    assert str(machine.root / "house") not in told


def test_nothing_is_written_outside(machine: Machine) -> None:
    target = machine.root / "home/target"
    target.write_text("before")
    (machine.workspace / "link").symlink_to(target)
    (machine.workspace / "up").symlink_to(machine.root / "home")
    # As a positive control, the workspace itself takes it.
    machine.out("echo after > here")
    assert (machine.workspace / "here").read_text() == "after\n"
    machine.sh(
        f"echo after > link; echo after > up/new; echo after > ../new; mkdir -p {machine.root}/x; echo a > {target}; rm -rf {machine.root}"
    )
    assert target.read_text() == "before"
    assert not (machine.root / "home/new").exists()
    assert not (machine.root / "x").exists()
    assert (machine.root / "house/curtainwall.db").exists()


# Processes and privileges


def test_no_process_of_this_machine_can_be_seen_signalled_or_traced(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "4321.5"]) as victim:
        try:
            seen = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
            assert b"4321.5" in subprocess.run(["sh", "-c", seen], capture_output=True, check=False).stdout
            # Written in two halves, or the command would find itself.
            assert machine.out(f"a=4321; all=$({seen}); [[ $all == *$a.5* ]] && echo seen || echo ${{#all}}").strip().isdigit()
            assert "No such process" in str(machine.sh(f"kill -9 {victim.pid}")["stderr"])
            attach = (
                f"import ctypes, os; c = ctypes.CDLL(None, use_errno=True); print(c.ptrace(16, {victim.pid}, 0, 0), ctypes.get_errno())"
            )
            assert inside(machine, attach) == "-1 3\n"
            assert ctypes.CDLL(None, use_errno=True).kill(victim.pid, 0) == 0
            assert victim.poll() is None
        finally:
            victim.kill()


def test_no_privileges_and_no_way_to_gain_them(machine: Machine) -> None:
    status = machine.out("grep -E '^(CapEff|CapPrm|CapBnd|CapInh|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status")
    told = dict(line.split(":\t") for line in status.splitlines())
    assert {told[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {"0" * 16}
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    for attack in (
        "unshare -Ur true",
        "unshare -m true",
        "mount -t tmpfs x /tmp",
        "chroot / true",
        "nsenter -t 1 -n true",
        "su -c true",
        "umount /usr",
    ):
        assert machine.sh(f"timeout 5 {attack} </dev/null")["exit_code"] != 0, attack
    nested = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print([c.unshare(flag) for flag in (0x10000000, 0x20000, 0x40000000)])"
    assert inside(machine, nested) == "[-1, -1, -1]\n"
    # A program with the bit set, that somebody else made, gives nothing.
    machine.out("cp /usr/bin/id .")
    (machine.workspace / "id").chmod(0o4755)
    assert "euid=" not in machine.out("./id")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts commands as somebody else")
def test_as_root_a_command_of_an_owner_sees_nothing_of_the_closed_directories_around_it(machine: Machine) -> None:
    os.chown(machine.workspace, 1234, 1234)
    machine.workspace.chmod(0o700)
    machine.root.chmod(0o700)
    assert machine.out("touch mine; stat -c %a:%u .") == "700:1000\n"
    assert (machine.workspace / "mine").stat().st_uid == 1234
    limits = machine.out("ulimit -H -c; ulimit -H -f; ulimit -H -n")
    assert [int(line) for line in limits.split()] == [0, 1024**3 // 1024, 4096]
    around = str(machine.workspace.relative_to(machine.root)).split("/")[0]
    assert machine.out(f"ls -A {machine.root}") == f"{around}\n"
    machine.sh(f"touch {machine.root}/new")
    assert not (machine.root / "new").exists()
    test_no_home_no_keys_and_nothing_of_ours(machine)
    test_no_privileges_and_no_way_to_gain_them(machine)
    test_no_process_of_this_machine_can_be_seen_signalled_or_traced(machine)


def test_system_calls_that_no_namespace_holds_are_refused(machine: Machine) -> None:
    # keyctl, add_key, bpf, userfaultfd, perf_event_open, io_uring_setup; the last does not exist, the others are not permitted.
    tries = "for n in (250, 248, 321, 323, 298, 425):\n c.syscall(n, 0, 0, 0, 0, 0); print(ctypes.get_errno())"
    code = f"import ctypes; c = ctypes.CDLL(None, use_errno=True)\n{tries}"
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86_64")
    assert inside(machine, code).split() == ["1", "1", "1", "1", "1", "38"]


def test_no_terminal_and_no_forged_input(machine: Machine) -> None:
    assert "No such device" in inside(machine, "open('/dev/tty', 'w')")
    forge = "import fcntl, os, pty; a, b = pty.openpty(); fcntl.ioctl(b, 0x5412, b'x')"
    assert "not permitted" in inside(machine, forge)
    assert machine.out("ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat").strip() != str(os.getsid(0))


def test_proc_is_read_only_and_sys_is_absent(machine: Machine) -> None:
    assert os.path.isdir("/sys/kernel")
    assert machine.out("ls -A /sys 2>/dev/null | wc -l") == "0\n"
    assert machine.sh("find /proc -maxdepth 3 -not -path '/proc/[0-9]*' -type f -writable 2>/dev/null")["stdout"] == ""
    for knob in ("sys/kernel/core_pattern", "sys/vm/drop_caches", "sysrq-trigger", "self/oom_score_adj", "self/uid_map"):
        assert "Error" in inside(machine, f"open('/proc/{knob}', 'w').write('1')"), knob
    for secret in ("kcore", "keys", "kallsyms", "kpagecount"):
        assert machine.sh(f"head -c 10 /proc/{secret} 2>/dev/null")["stdout"] == "", secret


def test_devices_are_the_harmless_ones(machine: Machine) -> None:
    found = machine.out("cd /dev; find . -type b -o -type c | sort").split()
    assert set(found) <= {f"./{name}" for name in ("console", "full", "null", "ptmx", "pts/ptmx", "random", "tty", "urandom", "zero")}
    assert machine.sh("mknod x b 8 0")["exit_code"] != 0


# A project of the user's


def test_a_project_is_read_only_until_edits_are_granted(project: Machine) -> None:
    careful = project.as_(Mode.DEFAULT)
    assert careful.out("cat src/main.py") == "the user's\n"
    careful.sh("echo evil > src/main.py; echo evil > new; rm -rf src .git; mv src other")
    assert (project.workspace / "src/main.py").read_text() == "the user's\n"
    assert not (project.workspace / "new").exists()
    project.sh("echo granted > src/main.py")
    assert (project.workspace / "src/main.py").read_text() == "granted\n"


ATTACKS = [
    "echo evil > .git/hooks/pre-commit",
    "echo evil >> .git/config",
    "mv .git old && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
    "rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
    "ln .git/config x && echo evil >> x",
    "echo evil > .vscode/tasks.json",
    "echo evil > src/deep/.envrc",
    "mv src/deep/.envrc src/x; echo evil > src/deep/.envrc",
    "mv src src2 && mkdir -p src/deep && echo evil > src/deep/.envrc",
    "echo evil > .envrc",
    "mkdir .claude; echo evil > .claude/settings.json",
    "ln -s src/main.py CLAUDE.md; echo evil > src/main.py",
    "mkdir a && echo evil > a/.envrc && mv a b",
    "git init -q sub && echo evil > sub/.git/hooks/post-checkout",
    "echo evil > .ENVRC",
    "mkdir .hg; echo evil > .hg/hgrc",
    "mkdir -p .forgejo/workflows; echo evil > .forgejo/workflows/ci.yml",
    "mkdir -p a/workflows; echo evil > a/workflows/ci.yml; mv a .gitea",
    "mkdir src/.cargo; echo evil > src/.cargo/config.toml",
    "echo evil > AGENTS.override.md; echo evil > .devcontainer.json; echo evil > Jenkinsfile.groovy",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_runs_later_cannot_be_planted_in_a_project(project: Machine, attack: str) -> None:
    project.sh(attack)
    planted = [
        path
        for path in project.workspace.rglob("*")
        if path.is_file() and ".held" not in str(path) and path.name != "main.py" and "evil" in path.read_text()
    ]
    assert [path for path in planted if path.name != "x"] == []
    assert not (project.workspace / "CLAUDE.md").is_symlink()
    # The same in the mode that allows it, so that the attack itself is known to work.
    free = project.as_(Mode.BYPASS)
    free.sh(attack)
    assert "evil" in subprocess.run(["grep", "-rhs", "evil", str(project.workspace)], capture_output=True, text=True, check=False).stdout


def test_what_was_planted_is_set_aside_and_the_agent_is_told(project: Machine) -> None:
    told = project.sh("echo evil > .envrc; echo ok")
    assert told["stdout"] == "ok\n"
    assert "`.envrc.held`" in str(told["notes"])
    assert "filesystem.write_file" in str(told["notes"])
    assert (project.workspace / ".envrc.held").read_text() == "evil\n"


def test_a_cancelled_command_leaves_nothing_planted(project: Machine) -> None:
    import asyncio

    async def main() -> None:
        prepared = project.prepare("shell.run", command="echo evil > .envrc; sleep 100")
        running = asyncio.create_task(project.run(prepared))
        await eventually((project.workspace / ".envrc").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert not (project.workspace / ".envrc").exists()
    assert (project.workspace / ".envrc.held").exists()


AS_OWNER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.close(os.open("there", os.O_CREAT | os.O_WRONLY, 0o755))
there = os.open("there", os.O_RDONLY)
def call(*words):
    return libc.syscall(*(ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in words))
def tried(do):
    try:
        do()
    except OSError:
        pass
for bits in (0o4755, 0o2755, 0o6755):
    tried(lambda: os.chmod("there", bits))
    tried(lambda: os.fchmod(there, bits))
    tried(lambda: os.chmod("there", bits, dir_fd=os.open(".", os.O_RDONLY)))
    call(452, -100, b"there", bits, 0)
    tried(lambda: os.open(f"made{bits}", os.O_CREAT | os.O_WRONLY, bits))
    tried(lambda: os.mknod(f"node{bits}", 0o100000 | bits))
    call(437, -100, f"new{bits}".encode(), (os.O_CREAT | os.O_WRONLY).to_bytes(8, "little") + bits.to_bytes(8, "little") + bytes(8), 24)
    if os.uname().machine == "x86_64":
        call(85, f"creat{bits}".encode(), bits)
        call(2, f"open{bits}".encode(), os.O_CREAT | os.O_WRONLY, bits)
    try:
        loose = os.open(".", os.O_TMPFILE | os.O_WRONLY, bits)
        os.link(f"/proc/self/fd/{loose}", f"loose{bits}", follow_symlinks=True)
    except OSError:
        pass
print("tried")
"""


def test_no_program_is_left_that_runs_as_its_owner(machine: Machine) -> None:
    (machine.workspace / "tries.py").write_text(AS_OWNER)
    assert machine.out("/usr/bin/python3 tries.py") == "tried\n"
    left = [path.name for path in machine.workspace.iterdir() if path.stat().st_mode & 0o6000]
    assert left == []


def test_ordinary_modes_are_set_as_ever(machine: Machine) -> None:
    machine.out("touch a; chmod 1777 a; mkdir -m 0700 d; install -m 0755 a b; (umask 077; echo > c)")
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in machine.workspace.iterdir()}
    assert modes == {"a": "0o1777", "b": "0o755", "c": "0o600", "d": "0o700"}
