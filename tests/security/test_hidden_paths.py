"""What a refusal tells an agent of the world outside its workspace: nothing that it did not write itself."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.compose.tools import judged_tools
from curtainwall.facts import Masker
from curtainwall.host.home import Home
from curtainwall.model import AnswerApproval, ApprovalQuery, CallDenied, CallRequest, Mode, Role
from curtainwall.runtime import NoHooks, SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, events, house, open_session, policy, run

Call = tuple[str, dict[str, JsonValue]]
Make = Callable[[Path], None]

URL = "https://github.com/ann/r.git"


def calls_about(path: str) -> list[Call]:
    """Return a call of every native tool that takes a path, about this one."""
    of_files = [
        (f"filesystem.{name}", {"path": path, **more})
        for name, more in (
            ("read_file", {}), ("write_file", {"content": "x"}), ("edit_file", {"edits": [{"oldText": "a", "newText": "b"}]}),
            ("create_directory", {}), ("list_directory", {}), ("directory_tree", {}), ("delete_file", {}),
            ("search_files", {"pattern": "*"}), ("get_file_info", {}),
        )
    ]  # fmt: skip
    moves: list[Call] = [
        ("filesystem.read_multiple_files", {"paths": [path, "plain"]}),
        ("filesystem.move_file", {"source": path, "destination": "new"}),
        ("filesystem.move_file", {"source": "plain", "destination": path}),
    ]
    of_git = [
        (f"git.{name}", {"path": path, **more})
        for name, more in (
            ("status", {}), ("diff", {}), ("diff", {"ref": "HEAD:a"}), ("diff", {"files": ["a", "../b"]}), ("log", {}),
            ("show", {"ref": "HEAD"}), ("show", {"ref": "HEAD:a/b"}), ("add", {"files": ["a"]}), ("add", {"files": ["a/b"]}),
            ("commit", {"message": "m"}), ("branch", {}), ("branch", {"name": "b"}), ("checkout", {"ref": "main"}), ("init", {}),
            ("set_working_dir", {}), ("clone", {"url": URL}),
            ("fetch", {}), ("fetch", {"remote": "origin"}), ("fetch", {"remote": "other"}), ("fetch", {"remote": URL}), ("pull", {}),
            ("pull", {"remote": URL, "branch": "main"}), ("push", {}), ("push", {"remote": "other"}), ("push", {"remote": URL}),
            ("push", {"remote": URL, "branch": "main"}),
        )
    ]  # fmt: skip
    of_the_shell: list[Call] = [
        ("shell.run", {"command": "ls", "cwd": path}),
        ("shell.run", {"command": f"cat < {path}"}),
        ("shell.run", {"command": f"echo x > {path}"}),
        ("shell.run", {"command": "cat < x", "cwd": path}),
    ]
    plan: Call = ("session.propose_plan", {"steps": [{"tool": "filesystem.read_file", "arguments": {"path": path}}]})
    return [*of_files, *moves, *of_git, *of_the_shell, plan]


def test_every_native_tool_that_takes_a_path_is_tried() -> None:
    paths = {Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH}
    tools = {spec.full_name for spec in NATIVE_TOOLS if not spec.for_house and any(paths & {*it.roles} for it in spec.meanings)}
    assert tools - {tool for tool, _ in calls_about("x")} == set(), "add a call of it to `calls_about`"


def told(root: Path, calls: list[Call], mode: Mode) -> list[str]:
    """Return what the agent is told of each call by the gate, where every ask is denied."""

    async def story() -> list[str]:
        masker, home = Masker(b"k" * 32), Home(root / "cw")
        runners = dict.fromkeys((spec.full_name for spec in judged_tools(home, masker).catalogue.listing()), FarSide(root / "far").run)
        rules = Rules(policy=policy(protected=(root / "protected",)))
        replies: list[str] = []
        async with house(MemoryStore(SystemClock()), rules) as opened:
            gate = SessionGate(opened, judged_tools(home, masker, runners), NoHooks())
            for number, (tool, arguments) in enumerate(calls):
                if number % 20 == 0:
                    session = await open_session(opened, root / "work", own=False, mode=mode)
                answer = await gate.request(session, CallRequest(tool=tool, arguments=arguments), wait=False)
                verdict = answer.verdict
                if answer.waiting:
                    (row,) = opened.stores.index.approvals(ApprovalQuery(session=session))
                    await opened.send(session, AnswerApproval(by=ANN, approval=row.approval, granted=False))
                    verdict = next(event.verdict for event in events(opened, session)[::-1] if isinstance(event, CallDenied))
                replies.append(f"{answer.result.value}" if answer.result else f"{verdict.because}: {verdict.reason}")
        return replies

    return run(story())


def a_file(path: Path) -> None:
    path.write_text("secret\n")


def a_directory(path: Path) -> None:
    (path / "x").mkdir(parents=True)


def one_with_what_runs_later(path: Path) -> None:
    (path / "x/.git/hooks").mkdir(parents=True)
    (path / ".envrc").touch()


def a_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere/file")


def a_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing/at/all")


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.symlink(path.parent, "/tmp/short-" + str(os.getpid()))
        try:
            made.bind(f"/tmp/short-{os.getpid()}/{path.name}")
        finally:
            os.unlink("/tmp/short-" + str(os.getpid()))


def a_repository(path: Path) -> None:
    quiet = {"PATH": os.environ["PATH"], "HOME": str(path.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (
        ("init", "--quiet", "--initial-branch=main", str(path)),
        ("-C", str(path), "remote", "add", "origin", URL),
        ("-C", str(path), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "x"),
    ):
        subprocess.run(["git", *words], env=quiet, check=True, capture_output=True)


def a_rewriting_repository(path: Path) -> None:
    a_repository(path)
    with (path / ".git/config").open("a") as config:
        config.write('[url "ssh://git@evil.example/"]\n\tinsteadOf = https://github.com/\n[filter "x"]\n\tclean = cat\n')


def a_broken_repository(path: Path) -> None:
    a_repository(path)
    (path / ".git/config").write_text("[broken\n")


def a_worktree(path: Path) -> None:
    path.mkdir()
    (path / ".git").write_text("gitdir: /somewhere/else\n")


KINDS: list[Make] = [
    a_file, a_directory, one_with_what_runs_later, a_link, a_dangling_link, a_loop, a_socket, a_repository, a_rewriting_repository,
    a_broken_repository, a_worktree,
]  # fmt: skip
ENDINGS = ("", "/", "/x", "/x/y", "/.", "/../thing2", "/x/../..", f"/{'n' * 256}", f"/x/{'n' * 256}/y", "/.git", "/.git/config")
BEHIND_A_LINK = ("", "/x", "/../thing2", "/.git")


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path))
    for name in ("work", "outside/elsewhere", "protected"):
        (root / name).mkdir(parents=True)
    (root / "outside/elsewhere/file").touch()
    (root / "work/plain").touch()
    return root


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@covers("gate.refusals-hide-what-is-outside")
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN])
@pytest.mark.parametrize("where", ["outside", "protected"])
def test_a_refusal_is_the_same_whether_something_is_there_or_not(ground: Path, where: str, mode: Mode) -> None:
    thing = ground / where / "thing"
    # In the workspace an agent may make links; they lead out of it and show nothing more.
    (ground / "work/out").symlink_to(thing)
    endings, behind, kinds = (
        (ENDINGS, BEHIND_A_LINK, KINDS) if mode is Mode.DEFAULT else (("", "/x"), ("", "/x"), [a_file, a_loop, a_repository])
    )
    paths = [f"{thing}{ending}" for ending in endings] + [f"out{ending}" for ending in behind]
    calls = [call for path in paths for call in calls_about(path)]
    absent = told(ground, calls, mode)
    for make in kinds:
        make(thing)
        there = told(ground, calls, mode)
        remove(thing)
        differ = [f"{call}: {before} / {after}" for call, before, after in zip(calls, absent, there, strict=True) if before != after]
        assert differ == [], f"{make.__name__}: {len(differ)}\n" + "\n".join(differ[:10])
