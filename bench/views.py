"""What a view of a large project costs, beside `git status`, `git stash` and `cp -r` on the same tree."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measuring import Figure, Rounds, Seconds, Side, Target, clock, interleave
from curtainwall.host import Confinement, run_confined
from curtainwall.host.views.apply import apply_changes
from curtainwall.host.views.choice import look_through
from curtainwall.host.views.overlay import OverlayView, delete_tree
from curtainwall.model import ApplyStatus, Entrance, ViewUse, working_in

_FILES, _IN_ONE = 50_000, 100
_CHANGED, _APPLIED = 10, 200
_ROUNDS, _WARM_UP = 5, 1
_GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
_SANDBOX = (
    "bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin",
    "/bin", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--die-with-parent",
)  # fmt: skip


async def views(home: Path) -> list[Figure]:
    """Measure one project of 50,000 files, and the memory of a small one's view beside it."""
    if shutil.which("bwrap") is None:
        print("views: there is no bubblewrap on this machine, so nothing is measured", file=sys.stderr)
        return []
    project = await asyncio.to_thread(_project, home)
    return [
        *await _opening(home, project),
        *await _entering(home, project),
        *await _comparing(home, project),
        *await _applying(home, project),
        await asyncio.to_thread(_memory, home, project),
    ]


async def _opening(home: Path, project: Path) -> list[Figure]:
    def opened(number: int) -> Seconds:
        state = _state(home)
        began = clock()
        view = OverlayView(str(project), state)
        view.enter()
        took = clock() - began
        view.close()
        delete_tree(state)
        return took

    def again(number: int) -> Seconds:
        view.leave()
        began = clock()
        view.enter()
        return clock() - began

    def copied(number: int) -> Seconds:
        took = _timed("cp", "-r", str(project), str(home / "copy"))
        shutil.rmtree(home / "copy")
        return took

    state = _state(home)
    view = OverlayView(str(project), state)
    view.enter()
    took = await interleave({"view": _once(opened), "again": _once(again), "cp": _once(copied)}, rounds=3, warm_up=1)
    view.close()
    delete_tree(state)
    survey = await interleave({"survey": _once(lambda _: _called(lambda: look_through(str(project))))}, rounds=5, warm_up=1)
    note = f"once for a session, a look for files of other users is added: {survey['survey'].p50 * 1000:.0f} ms"
    return [
        _figure(f"view of {_FILES:,} files, first use", took["view"], took["cp"], "cp -r", Target(30), note),
        _figure("the same, mounted again", took["again"], took["cp"], "cp -r"),
    ]


async def _entering(home: Path, project: Path) -> list[Figure]:
    state = _state(home)
    view = OverlayView(str(project), state)
    entrance = view.enter()
    took = await interleave(
        {"view": _once(lambda _: _command(entrance)), "sandbox": _once(lambda _: _command(Entrance(str(project), -1)))}, rounds=15
    )
    confined = await interleave({"view": _confined(entrance), "project": _confined(None, str(project))}, rounds=15, warm_up=_WARM_UP)
    view.close()
    delete_tree(state)
    return [
        _figure("added to a command in a sandbox", _added(took["view"], took["sandbox"]), took["sandbox"], "the sandbox alone", Target(20)),
        _figure(
            "added to a command of `shell.run`", _added(confined["view"], confined["project"]), confined["project"],
            "without a view", Target(20),
        ),
    ]  # fmt: skip


def _confined(entrance: Entrance | None, project: str = "") -> Side:
    """Return a side that runs a confined command, as the tools do, in a view or in the project."""
    path = project if entrance is None else entrance.path

    async def side(_number: int) -> Sequence[Seconds]:
        use = None if entrance is None else ViewUse(entrance, lambda: None, lambda: None)
        began = clock()
        with working_in(use):
            await run_confined(["/bin/true"], Confinement(cwd=path, writable=(path,), as_owner=True))
        return [clock() - began]

    return side


def _added(mine: Rounds, theirs: Rounds) -> Rounds:
    return Rounds(tuple(one - other for one, other in zip(mine.each, theirs.each, strict=True)))


async def _comparing(home: Path, project: Path) -> list[Figure]:
    state = _state(home)
    view = OverlayView(str(project), state)
    root = Path(f"/proc/self/fd/{view.enter().root}")
    _change(root, _CHANGED, "changed")
    view.leave()
    _git(project, "init", "-q")
    _git(project, "add", "-A")
    _git(project, "commit", "-qm", "all")
    clone = home / "worked-in"
    _git(project, "worktree", "add", "-q", str(clone))
    _change(clone, _CHANGED, "changed")

    def stashed(number: int) -> Seconds:
        took = _timed(*_GIT, "-C", str(clone), "stash", "-q")
        _git(clone, "stash", "pop", "-q")
        return took

    sides: dict[str, Side] = {
        "view": _once(lambda _: _called(view.changes)),
        "status": _once(lambda _: _timed(*_GIT, "-C", str(clone), "status", "--porcelain")),
        "stash": _once(stashed),
    }
    took = await interleave(sides, rounds=_ROUNDS, warm_up=_WARM_UP)
    assert len(view.changes().changes) == _CHANGED
    view.close()
    delete_tree(state)
    shutil.rmtree(project / ".git")
    shutil.rmtree(clone)
    note = f"git stash: {took['stash'].p50 * 1000:.0f} ms"
    return [_figure(f"change set of {_CHANGED} files, with contents", took["view"], took["status"], "git status", Target(20), note)]


async def _applying(home: Path, project: Path) -> list[Figure]:
    state = _state(home)
    view = OverlayView(str(project), state)
    _change(Path(f"/proc/self/fd/{view.enter().root}"), _APPLIED, "applied")
    view.leave()
    changes = view.changes()
    both = changes, changes.inverse()
    source, target = home / "source", home / "target"
    _plant(source, _APPLIED)

    def applied(number: int) -> Seconds:
        began = clock()
        result = apply_changes(both[number % 2], view.sealed)
        took = clock() - began
        assert all(file.status is ApplyStatus.APPLIED for file in result.files)
        return took

    def copied(number: int) -> Seconds:
        took = _timed("sh", "-c", 'cp -r "$1" "$2" && sync -f "$2"', "sh", str(source), str(target))
        shutil.rmtree(target)
        return took

    took = await interleave({"view": _once(applied), "cp": _once(copied)}, rounds=10, warm_up=_WARM_UP)
    view.close()
    delete_tree(state)
    return [_figure(f"{_APPLIED} files applied durably", took["view"], took["cp"], "cp -r, sync -f", Target(200))]


def _memory(home: Path, project: Path) -> Figure:
    """Compare the memory of the processes that hold a large and a small view, after everything in them was listed."""
    small = home.resolve() / "small"
    _plant(small, _IN_ONE)
    sizes: list[float] = []
    for each in (project, small):
        state = _state(home)
        view = OverlayView(str(each), state)
        entrance = view.enter()
        assert sum(len(files) for _, _, files in os.walk(f"/proc/self/fd/{entrance.root}")) >= _IN_ONE
        sizes.append(_resident(state))
        view.close()
        delete_tree(state)
    return Figure("memory of a view's process", sizes[0], "MiB", sizes[1], f"{_IN_ONE} files", sizes[0] / sizes[1], Target(1.2, "ratio"))


def _resident(state: Path) -> float:
    """Return how many MiB the process takes that holds the lock of a view."""
    lock = (state / "lock").stat().st_ino
    holder = next(line.split()[4] for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines() if f":{lock} " in line)
    resident = next(line for line in Path(f"/proc/{holder}/status").read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]) / 1024


def _project(home: Path) -> Path:
    project = home.resolve() / "project"
    _plant(project, _FILES)
    return project


def _plant(project: Path, files: int) -> None:
    for number in range(files):
        directory = project / f"part{number // _IN_ONE}"
        if number % _IN_ONE == 0:
            directory.mkdir(parents=True)
        (directory / f"file{number}.txt").write_text(f"line of file {number}\n" * 20, encoding="utf-8")


def _change(root: Path, files: int, word: str) -> None:
    for number in range(0, _FILES, _FILES // files):
        with (root / f"part{number // _IN_ONE}" / f"file{number}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{word}\n")


def _state(home: Path) -> Path:
    state = home.resolve() / f"state{clock()}"
    state.mkdir()
    return state


def _command(entrance: Entrance) -> Seconds:
    words = (*entrance.words, *_SANDBOX, "--bind", entrance.path, entrance.path, "--chdir", entrance.path, "/bin/true")
    began = clock()
    subprocess.run(words, pass_fds=entrance.descriptors, stdin=subprocess.DEVNULL, check=True)
    return clock() - began


def _timed(*words: str) -> Seconds:
    began = clock()
    subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return clock() - began


def _git(where: Path, *words: str) -> None:
    subprocess.run((*_GIT, "-C", str(where), *words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def _called(work: Callable[[], object]) -> Seconds:
    began = clock()
    work()
    return clock() - began


def _once(work: Callable[[int], Seconds]) -> Side:
    async def side(number: int) -> Sequence[Seconds]:
        return [await asyncio.to_thread(work, number)]

    return side


def _figure(name: str, ours: Rounds, peer: Rounds, beside: str, target: Target | None = None, note: str = "") -> Figure:
    return Figure(name, ours.p50 * 1000, "ms", peer.p50 * 1000, beside, ours.to(peer), target, note)
