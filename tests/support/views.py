"""Views of projects in tests: trees to compare, commands in a view, and work as an ordinary user."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from curtainwall.model import Entrance

NOBODY = 65534

Tree = dict[str, tuple[str, int, bytes]]
"""What a directory holds: for each path its kind, its mode, and its content or target."""


def tree_of(root: str | Path) -> Tree:
    """Return everything beneath a directory, without git directories."""
    found: Tree = {}
    for above, directories, files in os.walk(os.fsencode(str(root))):
        directories[:] = [name for name in directories if name != b".git"]
        for name in (*directories, *files):
            path = os.path.join(above, name)
            status = os.lstat(path)
            inner = os.fsdecode(os.path.relpath(path, os.fsencode(str(root))))
            if stat.S_ISLNK(status.st_mode):
                found[inner] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[inner] = ("directory", stat.S_IMODE(status.st_mode), b"")
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    found[inner] = ("file", stat.S_IMODE(status.st_mode), file.read())
            else:
                found[inner] = ("other", 0, b"")
    return found


def plant(root: Path, files: Mapping[str, str]) -> None:
    """Write files, with the directories that they need."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def inside(entrance: Entrance) -> Path:
    """Return a path that leads into a view, for this process alone."""
    return Path(f"/proc/self/fd/{entrance.root}")


def run_inside(entrance: Entrance, command: str, *more: str) -> str:
    """Run a shell command in a sandbox that has the view at the project's path; return what it printed."""
    done = start_inside(entrance, command, *more)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, (out + err).decode(errors="replace")
    return out.decode(errors="replace")


def start_inside(entrance: Entrance, command: str, *more: str) -> "subprocess.Popen[bytes]":
    """Start a shell command in a sandbox that has the view at the project's path."""
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    words = (
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin",
        "--proc", "/proc", "--dev", "/dev", "--bind", entrance.path, entrance.path, "--chdir", entrance.path, "--unshare-all",
        "--unshare-user", "--uid", "1000", "--gid", "1000", "--die-with-parent", "--cap-drop", "ALL", *more,
    )  # fmt: skip
    return subprocess.Popen(
        (*entrance.words, bwrap, *words, "/bin/sh", "-euc", command),
        pass_fds=entrance.descriptors, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


_AS_USER = """
import json, os, sys
# Every module is loaded before its file can no longer be read.
import importlib, pkgutil
import curtainwall.model
for found in pkgutil.walk_packages(curtainwall.model.__path__, "curtainwall.model."):
    importlib.import_module(found.name)
from curtainwall.model import AppliedChanges, ChangeSet, FileState, ViewChoice
from curtainwall.host.views import apply, bases, choice, copy, differences, direct, holder, holder_entry, overlay, sealed, states, upper
from tests.support import views
import encodings.latin_1, encodings.ascii, encodings.utf_8, encodings.idna, shutil, stat, subprocess, tempfile, fcntl, signal
from pathlib import Path
ChangeSet(project="/").digest, AppliedChanges(digest="", files=()), ViewChoice(mechanism="none", reason="").model_dump_json()
FileState.model_validate_json('{"kind": "file"}')
user = int(sys.argv[1])
if user != os.geteuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    # That of this environment may be in a directory of root's.
    sys.executable = "/usr/bin/python3"
    os.chdir("/")
given = json.loads(sys.argv[2])
"""


def run_as(user: int, script: str, **given: object) -> str:
    """Run a script as a user, with everything of views loaded; `given` is its input. Return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_USER + script, str(user), json.dumps(given)],
        capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def give_to(path: Path, user: int) -> None:
    """Give a directory and everything in it to a user."""
    for above, directories, files in os.walk(path):
        for name in (*directories, *files):
            os.lchown(os.path.join(above, name), user, user)
    os.lchown(path, user, user)


@contextmanager
def place_of(user: int) -> Iterator[tuple[int, Path]]:
    """Lend a user a directory that they can reach: those above a test's own are closed to others."""
    place = Path(tempfile.mkdtemp(prefix="curtainwall-views-", dir="/var/tmp")).resolve()
    try:
        place.chmod(0o755)
        give_to(place, user)
        yield user, place
    finally:
        subprocess.run(("rm", "-rf", str(place)), check=True)
