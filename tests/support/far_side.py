"""The far side of what agents do: a server that counts what reaches it, and takes its time where it is told to."""

import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FarSide(ThreadingHTTPServer):
    """Counts what is posted, by path; what is posted below `/slow` is answered when it is told to hurry."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counting)
        self.hits: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.hurry = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """Its address, by name."""
        return f"http://localhost:{self.server_address[1]}"

    def close(self) -> None:
        """Let everybody go who still waits, and end."""
        self.hurry.set()
        self.shutdown()
        self.server_close()
        self.thread.join()


class _Counting(BaseHTTPRequestHandler):
    server: FarSide

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.hits[self.path] += 1
        if self.path.startswith("/slow"):
            self.server.hurry.wait(60)
        with suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


def post(url: str) -> dict[str, object]:
    """Return a line of a script that posts something to a place."""
    return {"tool": "fetch.get", "arguments": {"url": url, "method": "POST", "body": "x"}}
