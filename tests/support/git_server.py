"""Git's own server over HTTP, on loopback: `git http-backend` behind a small web server that remembers who asked for what."""

import os
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit


@dataclass
class GitServer:
    """Bare repositories below a directory, served at `http://127.0.0.1:port/…`; `redirects` sends a path elsewhere."""

    root: Path
    port: int = 0
    asked: list[str] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def make(self, name: str, object_format: str = "sha1") -> Path:
        """Make an empty repository that takes pushes."""
        path = self.root / name
        git("init", "--quiet", "--bare", "--initial-branch=main", f"--object-format={object_format}", str(path))
        git("-C", str(path), "config", "http.receivepack", "true")
        return path


def git(*words: str, cwd: Path | None = None, stdin: IO[str] | None = None) -> str:
    """Run git as a person would, without anybody's config."""
    quiet = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    told = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "T"), ("EMAIL", "t@example.org"))}
    done = subprocess.run(["git", *words], cwd=cwd, env={**quiet, **told}, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
    return done.stdout


@contextmanager
def serving(root: Path) -> Generator[GitServer]:
    """Serve the repositories below a directory."""
    server = GitServer(root)

    class Door(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            server.asked.append(f"{self.command} {self.path}")
            parts = urlsplit(self.path)
            for path, target in server.redirects.items():
                if parts.path.startswith(path):
                    self.send_response(302)
                    self.send_header("Location", target + self.path[len(path) :])
                    self.end_headers()
                    return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = self._chunks()
            environ = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(server.root), "GIT_HTTP_EXPORT_ALL": "1", "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
                "REQUEST_METHOD": self.command, "PATH_INFO": parts.path, "QUERY_STRING": parts.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)), "REMOTE_USER": "t",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }  # fmt: skip
            done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, check=False)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 - the names are the base class's

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as http:
        server.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
