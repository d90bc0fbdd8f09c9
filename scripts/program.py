"""The program of a source tree, driven from outside as a user would. Knows the commands, the log and the web, and no module inside."""

import http.client
import http.cookiejar
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PATIENCE = 180.0


def interpreter() -> str:
    """Return the Python that has what the program needs: the one of the environment that `make` builds, if it is there."""
    built = ROOT / ".venv" / "bin" / "python"
    return str(built) if built.exists() else sys.executable


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Program:
    """One source tree with one scratch directory: a home, the user's own directory, and a project."""

    source: Path
    scratch: Path
    words: tuple[str, ...] = ("-P", "-m", "curtainwall")
    """What Python is given before the words of the user."""
    more: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def project(self) -> Path:
        return self.scratch / "project"

    def lay_out(self, config: str = "", files: Mapping[str, str] | None = None) -> None:
        """Make the directories, a configuration, and the files of the project."""
        for place in (self.home, self.scratch / "user", self.project):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if config:
            (self.home / "config.toml").write_text(config)
        for name, text in (files or {}).items():
            place = self.scratch / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def script(self, *lines: Mapping[str, object]) -> str:
        """Return the name of a model that says these lines."""
        place = self.scratch / f"script-{len(list(self.scratch.glob('script-*')))}.jsonl"
        place.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return f"script:{place}"

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        ours = {"HOME": str(self.scratch / "user"), "CURTAINWALL_HOME": str(self.home), "LOGNAME": "ann", "USER": "ann", "TZ": "UTC"}
        plain = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "PYTHONHASHSEED": "0"}
        return {**kept, **ours, **plain, "PYTHONPATH": str(self.source), **self.more}

    def command(self, *words: str) -> list[str]:
        return [interpreter(), *self.words, *words]

    def run(self, *words: str, stdin: str = "") -> Done:
        """Run one command in the project and wait for its end."""
        done = subprocess.run(
            self.command(*words), env=self.environment(), cwd=self.project, input=stdin.encode(), capture_output=True, check=False,
            timeout=PATIENCE,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def require(self, *words: str, codes: Sequence[int] = (0,)) -> Done:
        """Run one command that has to end in one of these ways."""
        done = self.run(*words)
        if done.code not in codes:
            raise SystemExit(f"`curtainwall {' '.join(words)}` ended with {done.code}\n{done.out}{done.err}")
        return done

    @contextmanager
    def beside(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run one command beside us; it is asked to end, and waited for. What it prints is in `beside.log`."""
        with (
            (self.scratch / "beside.log").open("wb") as log,
            subprocess.Popen(
                self.command(*words), env=self.environment(), cwd=self.project, stdin=subprocess.PIPE, stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()

    @contextmanager
    def served(self, port: int, signing: "Program | None" = None) -> Iterator["Visitor"]:
        """Run `serve` at the port of the configuration, and yield somebody who has signed in to its pages, by a link of `signing`."""
        with self.beside("serve") as process:
            visitor = Visitor(f"http://127.0.0.1:{port}")
            wait_for(lambda: process.poll() is not None or visitor.is_answered())
            visitor.sign_in((signing or self).require("web", "link").out.split()[-1])
            yield visitor


class _Unredirected(urllib.request.HTTPRedirectHandler):
    """A redirection is an answer like any other here."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass
class Page:
    """An answer of the web."""

    status: int
    headers: Mapping[str, str]
    body: str


class Visitor:
    """A browser without scripts: cookies, forms, and the headers that ours asks for."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._csrf = ""
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Unredirected(), cookies)

    def is_answered(self) -> bool:
        """Tell whether anybody listens yet."""
        try:
            self.get("/sign-in")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def sign_in(self, link: str) -> None:
        """Use a link of `web link`."""
        code = re.search(r'name="code" value="([^"]+)"', self._ask(link, None).body)
        if code is None:
            raise SystemExit(f"`{link}` does not sign anybody in")
        self.post("/sign-in", code=code[1])
        token = re.search(r'<meta name="csrf" content="([0-9a-f]*)">', self.get("/").body)
        self._csrf = token[1] if token else ""

    def get(self, path: str) -> Page:
        return self._ask(self.base + path, None)

    def post(self, path: str, **fields: str) -> Page:
        return self._ask(self.base + path, urllib.parse.urlencode({"csrf": self._csrf, **fields}).encode())

    def _ask(self, url: str, body: bytes | None) -> Page:
        request = urllib.request.Request(url, body, {"Origin": self.base} if body is not None else {})
        try:
            with self._opener.open(request, timeout=PATIENCE) as reply:
                return Page(reply.status, dict(reply.headers), reply.read().decode(errors="replace"))
        except urllib.error.HTTPError as reply:
            with reply:
                return Page(reply.code, dict(reply.headers), reply.read().decode(errors="replace"))


def wait_for(true: Callable[[], object], what: str = "it") -> None:
    """Wait until something is true, with a bound."""
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not happen within {PATIENCE:.0f} seconds")
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
