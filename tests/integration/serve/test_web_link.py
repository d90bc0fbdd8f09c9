"""Links to the pages of a real `serve`, while somebody else wants their codes."""

import re
import socket
from contextlib import closing

from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.waiting import until
from tests.support.webs import Visit


class Pages:
    """Where the pages are."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"


def somebody_at(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


@covers("web.links-lead-to-us")
def test_a_port_that_somebody_else_holds_gets_no_code_and_one_that_leaked_is_worth_nothing_later(program: Program) -> None:
    port = free_port()
    program.configure(f'[web]\nport = {port}\noperators = ["ann"]\n')
    with closing(somebody_at(port)):
        running = program.begin("serve")
        running.says(f"(port {port} on `127.0.0.1` cannot be used)")
        refused = program("web", "link", fails=True)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "nothing serves the pages" in refused.stderr
    # As soon as `serve` has the port, there is a link.
    until(lambda: program("web", "link", fails=True).returncode == 0, 60)
    leaked = program.json("web", "link")["url"]
    running.kill_everything()
    with closing(somebody_at(port)):
        assert program("web", "link", fails=True).returncode == 1
    running = program.begin("serve")
    until(lambda: program("web", "link", fails=True).returncode == 0, 60)
    visit = Visit(Pages(port))
    code = re.search("code=(.+)", leaked)
    assert code is not None
    assert visit.post("/sign-in", code=code[1]).status_code == 401
    visit.sign_in(program.json("web", "link")["url"])
    visit.client.close()
    running.interrupt()
    assert running.code() == 0
