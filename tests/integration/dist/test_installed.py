"""The wheel, installed outside the repository with the locked versions and used there by different users."""

import http.cookiejar
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.ports import free_port
from tests.support.repository import ROOT
from tests.support.serving import health
from tests.support.shipped_images import make_ground
from tests.support.waiting import until

_NOBODY = 65534
_WITHOUT_ENTRY = 54_321
"""A user that /etc/passwd does not know, as in containers that choose their own."""

USERS = [0, _NOBODY, _WITHOUT_ENTRY] if os.geteuid() == 0 else [os.geteuid()]


@dataclass(frozen=True)
class Installed:
    """The program as a user runs it who has nothing of the repository."""

    program: Path
    place: Path
    user: int
    more: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environ(self) -> dict[str, str]:
        return {**self.more, "PATH": "/usr/bin:/bin", "HOME": str(self.place), "CURTAINWALL_HOME": str(self.place / "home"), "NO_COLOR": "1"}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        identity = {"user": self.user, "group": self.user, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.Popen(
            (self.program, *words), cwd=self.place, env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **identity
        )  # fmt: skip

    def __call__(self, *words: str) -> str:
        child = self.begin(*words)
        try:
            out, err = child.communicate(timeout=100)
        finally:
            child.kill()
        assert child.returncode == 0, (words, child.returncode, out, err)
        assert "Traceback" not in err
        return out


def _uv(*words: str | Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "uv", *map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr


def _python() -> str:
    """Return a Python that every user may run: the one of the tests may be in root's home."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        identity = {"user": USERS[-1], "group": USERS[-1], "extra_groups": []} if os.geteuid() == 0 else {}
        with suppress(OSError):
            subprocess.run((python, "-c", "import sys; assert sys.version_info >= (3, 11)"), capture_output=True, check=True, **identity)
            return python
    pytest.fail("no Python 3.11 or newer here can be run by every user")


@pytest.fixture(scope="module")
def environment() -> Iterator[Path]:
    """Install the wheel where every user can read it."""
    with tempfile.TemporaryDirectory(prefix="cw-dist-") as name:
        place = Path(name)
        place.chmod(0o755)
        _uv("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", place / "built", ROOT)
        (wheel,) = (place / "built").glob("*.whl")
        _uv("venv", "--quiet", "--python", _python(), place / "venv")
        install = ("pip", "install", "--quiet", "--python", place / "venv/bin/python", "--no-deps")
        _uv(*install, "--require-hashes", "-r", ROOT / "requirements-build.lock")
        _uv(*install, "--require-hashes", "--no-build-isolation", "-r", ROOT / "requirements.lock")
        _uv(*install, wheel)
        yield place / "venv"


@pytest.fixture(params=USERS, ids=lambda user: {0: "root", _NOBODY: "nobody", _WITHOUT_ENTRY: "unnamed"}.get(user, "self"))
def installed(request: pytest.FixtureRequest, environment: Path) -> Iterator[Installed]:
    place = Path(tempfile.mkdtemp(prefix="cw-user-"))
    try:
        os.chown(place, request.param, -1)
        yield Installed(environment / "bin/curtainwall", place, request.param)
    finally:
        shutil.rmtree(place)


@covers("package.works-outside-the-repository")
def test_an_installed_wheel_does_a_task_explains_its_rules_and_completes(installed: Installed) -> None:
    installed("start", "write 'hello' to greeting.txt")
    (greeting,) = installed.place.glob("home/sessions/*/workspace/greeting.txt")
    assert (greeting.read_text(), greeting.stat().st_uid) == ("hello", installed.user)
    (installed.place / "work").mkdir()
    explained = installed("policy", "explain", "filesystem.read_file", '{"path": "~/.ssh/id_rsa"}', "--workspace", "work")
    assert explained.startswith("deny: ")
    assert "protected-path" in explained
    assert "complete -F _curtainwall_complete curtainwall cw" in installed("completion", "bash")


def test_an_installed_wheel_builds_an_agents_image_on_an_imported_base(
    environment: Path, tmp_path: Path, docker_engine: DockerEngine, real_part: Callable[[str], str]
) -> None:
    real_part("gemini")
    make_ground(docker_engine, "gemini", "dist-ground:1")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home/config.toml").write_text('[agents.gemini]\nimage = "dist-ground:1"\n')
    program = Installed(environment / "bin/curtainwall", tmp_path, os.geteuid(), {"DOCKER_HOST": docker_engine.address})
    (built,) = json.loads(program("agents", "build", "gemini", "--network", "none", "--output", "json"))
    assert (built["agent"], built["new"]) == ("gemini", True), built
    assert docker_engine.docker("image", "inspect", "-f", "{{.Config.User}}", built["image"])


def test_without_a_home_directory_every_command_says_what_to_set(environment: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without an account")
    for words in (("sessions", "list"), ("doctor",), ("start", "hello"), ("config", "path")):
        done = subprocess.run(
            (environment / "bin/curtainwall", *words), cwd="/", env={"PATH": "/usr/bin:/bin"}, text=True, capture_output=True,
            user=_WITHOUT_ENTRY, group=_WITHOUT_ENTRY, extra_groups=[], timeout=100, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, ""), (words, done.stderr)
        assert "HOME is not set; set CURTAINWALL_HOME to a directory of your own" in done.stderr, words


@covers("package.works-outside-the-repository")
def test_an_installed_wheel_serves_its_pages(installed: Installed) -> None:
    web, status = free_port(), free_port()
    (installed.place / "home").mkdir(mode=0o700)
    os.chown(installed.place / "home", installed.user, -1)
    config = installed.place / "home/config.toml"
    config.write_text(f'[serve]\nstatus-port = {status}\n[web]\nport = {web}\noperators = ["ann"]\n')
    served = installed.begin("serve")
    try:
        until(lambda: health(status).get("pid") == served.pid or served.poll() is not None)
        link = re.search(r"http://\S+", installed("web", "link", "--user", "ann"))
        assert link is not None
        assert "Inbox" in _sign_in(link[0])
    finally:
        served.send_signal(signal.SIGTERM)
        _, err = served.communicate(timeout=100)
    assert served.returncode == 0, err


def _sign_in(link: str) -> str:
    """Return the page that a browser sees after it has followed a sign-in link."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with browser.open(link, timeout=60) as answer:
        code = re.search(r'name="code" value="([^"]+)"', answer.read().decode())
    assert code is not None
    site = link.partition("/sign-in")[0]
    form = urllib.request.Request(f"{site}/sign-in", urllib.parse.urlencode({"csrf": "", "code": code[1]}).encode(), {"Origin": site})
    with browser.open(form, timeout=60) as answer:
        return answer.read().decode()
