"""The container: built by its file on an imported base, and used with the options that the documentation gives."""

import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine, copy_libraries, copy_program
from tests.support.repository import DOCS, ROOT
from tests.support.waiting import until

# Installing everything into an image takes a minute, and several on a machine that has much else to do.
pytestmark = pytest.mark.timeout(600)

BASE, BUILT = "dist-base:1", "dist-curtainwall:1"
PLANTED = (".env", "id_ed25519", "keys/service.key", "src/.env", "src/curtainwall/web.pem", "src/curtainwall/id_rsa")
_PROGRAMS = "sh bash env true cp mv rm mkdir chmod chown ln cat ls id install useradd git bwrap".split()
_UNUSED = shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "config-*", "site-packages", "dist-packages")

_FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"


@pytest.fixture(scope="module")
def built(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> DockerEngine:
    """Build the image from a copy of the repository in which keys lie about; it goes with the engine."""
    context = copied_repository(tmp_path_factory.mktemp("context"))
    import_base(docker_engine, tmp_path_factory.mktemp("base"))
    words = ("--network", "none", "--build-arg", f"BASE={BASE}", "-f", str(context / "deploy/Containerfile"), "-t", BUILT)
    docker_engine.docker("build", *words, str(context), bound=500)
    return docker_engine


def copied_repository(place: Path) -> Path:
    for name in ("deploy", "src"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements-build.lock", "requirements.lock"):
        shutil.copy(ROOT / name, place)
    for name in PLANTED:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("a key\n")
    return place


def import_base(docker: DockerEngine, root: Path) -> None:
    """Import a base without a registry: programs and the Python of this machine, an `apt-get` that finds everything there, and wheels."""
    for name in ("usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc", "root", "home", "tmp", "var/lib/apt/lists", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for program in _PROGRAMS:
        copy_program(root, program)
    prefix, stdlib = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    shutil.copytree(stdlib, root / stdlib.relative_to("/"), ignore=_UNUSED, dirs_exist_ok=True)
    python = prefix / "bin" / f"python3.{sys.version_info.minor}"
    (root / python.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, root / python.relative_to("/"))
    (root / "usr/local/bin/python3").symlink_to(python)
    # Debian keeps the wheels of pip there; node brings libraries that wheels need.
    if (wheels := Path("/usr/share/python-wheels")).is_dir():
        shutil.copytree(wheels, root / "usr/share/python-wheels")
    copy_libraries(root, python, *stdlib.glob("lib-dynload/*.so"), Path(shutil.which("node") or "/usr/bin/node"))
    for name in ("librt.so.1", "libpthread.so.0", "libdl.so.2"):
        (library,) = Path("/lib").glob(f"{platform.machine()}-linux-gnu/{name}")
        shutil.copy(library, root / "usr" / library.relative_to("/"))
    (root / "usr/bin/apt-get").write_text("#!/bin/sh\nexit 0\n")
    (root / "usr/bin/apt-get").chmod(0o755)
    shutil.copy("/etc/login.defs", root / "etc")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    lock = ("--no-deps", "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    downloaded = subprocess.run(
        (sys.executable, "-m", "pip", "download", "--quiet", *lock, "-d", str(root / "wheels")),
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert downloaded.returncode == 0, downloaded.stderr
    packed = root.with_suffix(".tar")
    subprocess.run(("tar", "-C", str(root), "--owner=0", "--group=0", "-cf", str(packed), "."), check=True)
    shutil.rmtree(root)
    variables = "ENV PATH=/usr/local/bin:/usr/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_NO_COMPILE=1"
    docker.docker("import", "-c", variables, str(packed), BASE)
    packed.unlink()


def documented_options() -> list[str]:
    """Return the words between `docker run` and the image, as the documentation has them, without the names of container and volume."""
    command = re.search(r"^docker run (.*?[^\\])$", (DOCS / "serve.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert command is not None
    *options, image = shlex.split(command[1].replace("\\\n", " "))
    assert image == "curtainwall"
    return options


@covers("container.fresh-volume-is-healthy")
def test_the_container_turns_healthy_on_a_fresh_volume_with_the_documented_options(built: DockerEngine) -> None:
    options = documented_options()
    options[options.index("--name") + 1] = "dist-served"
    built.docker("run", *options, BUILT)
    try:
        until(lambda: built.docker("inspect", "-f", "{{.State.Health.Status}}", "dist-served") == "healthy", 120)

        def inside(*words: str) -> str:
            return built.docker("exec", "dist-served", *words)

        findings = {it["name"]: it for it in json.loads(inside("curtainwall", "doctor", "--output", "json"))["findings"]}
        assert findings["bubblewrap"]["standing"] == "ok", findings["bubblewrap"]
        assert findings["home"]["standing"] == "ok", findings["home"]
        assert "from the sandbox" in inside("curtainwall", "start", "run 'echo from the sandbox'")
        assert inside("curtainwall", "policy", "explain", "filesystem.read_file", '{"path": "~/.ssh/id_rsa"}').startswith("deny: ")
        assert "complete -F" in inside("curtainwall", "completion", "bash")
        link = re.search(r"http://\S+", inside("curtainwall", "web", "link"))
        assert link is not None
        assert 'name="code"' in inside("python3", "-c", _FETCH, link[0])
        assert len(json.loads(inside("curtainwall", "sessions", "list", "--output", "json"))) == 1
    finally:
        built.docker("rm", "--force", "--volumes", "dist-served")
        built.docker("volume", "rm", "--force", "curtainwall")


@pytest.mark.parametrize("user", ["0", "1000", "54321"])
def test_the_container_does_a_task_as_root_as_its_user_and_as_one_without_an_account(built: DockerEngine, user: str) -> None:
    words = ("run", "--rm", "--user", user, "--env", "CURTAINWALL_HOME=/tmp/home", BUILT, "--quiet", "start", "write 'hello' to greeting.txt")
    assert "wrote 5 bytes" in built.docker(*words)


@covers("container.context-holds-no-keys")
def test_keys_that_lie_about_in_a_clone_do_not_enter_the_build(docker_engine: DockerEngine, tmp_path: Path) -> None:
    context = copied_repository(tmp_path)
    recipe = f"FROM {IMAGE}\nCOPY . /context\n".encode()
    docker_engine.docker("build", "--network", "none", "-t", "dist-context:1", "-f", "-", str(context), stdin=recipe)
    listed = docker_engine.docker("run", "--rm", "dist-context:1", "find", "/context", "-type", "f").splitlines()
    docker_engine.docker("image", "rm", "dist-context:1")
    names = {name.removeprefix("/context/") for name in listed}
    assert {"pyproject.toml", "requirements.lock", "src/curtainwall/__init__.py"} <= names
    assert names & set(PLANTED) == set()
