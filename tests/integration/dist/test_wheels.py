"""Every way to build the package gives the same complete wheel."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.covers import covers
from tests.support.repository import ROOT, tracked_files


PLANTED = (".env", "id_ed25519", "keys/service.key", "src/curtainwall/.env", "src/curtainwall/id_rsa", "docs/web.pem")


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("curtainwall/")}


def build(*words: str) -> None:
    done = subprocess.run((sys.executable, "-m", *words), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


def clone_with_keys(place: Path) -> Path:
    """Copy what is tracked, and let keys lie about beside it."""
    for path in tracked_files():
        (place / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place / path.relative_to(ROOT))
    for name in PLANTED:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("a key\n")
    return place


@covers("package.every-build-is-the-same-wheel")
def test_every_way_to_build_gives_the_same_complete_wheel(tmp_path: Path) -> None:
    clone = str(clone_with_keys(tmp_path / "clone"))
    pip = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    build("uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(tmp_path / "uv"), clone)
    (sdist,) = (tmp_path / "uv").glob("*.tar.gz")
    build(*pip, "--wheel-dir", str(tmp_path / "tree"), clone)
    build(*pip, "--wheel-dir", str(tmp_path / "sdist"), str(sdist))
    tracked = {str(path.relative_to(ROOT / "src")) for path in tracked_files() if path.is_relative_to(ROOT / "src")}
    assert {"claude-code", "codex", "gemini", "opencode"} <= {Path(name).stem for name in tracked if name.endswith(".Dockerfile")}
    for way in ("uv", "tree", "sdist"):
        (wheel,) = (tmp_path / way).glob("*.whl")
        assert contents(wheel) == tracked, way
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
        unpacked = {member.name.partition("/")[2] for member in archive if member.isfile()}
    # Everything that is tracked but what only a clone needs; what else lies about in a clone, a key for example, is not there.
    published = {str(path.relative_to(ROOT)) for path in tracked_files()} - {".editorconfig"}
    assert {name for name in published if not name.startswith(".ci/")} ^ unpacked == {"PKG-INFO"}
