"""The web of a real house on a real port, served beside the test, and browsers without a screen to visit it with."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2
import pytest

from curtainwall.agents.builtin import LanguageModel
from curtainwall.compose.setup import load_setup
from curtainwall.model import Answer, ApprovalId, CallRequest, Mode, SessionId, Who
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.serve.service import Serving, serving
from curtainwall.serve.web.sign_in import sign_in_link
from tests.support.ports import free_port

T = TypeVar("T")
PATIENCE = 60.0

CONFIG = """
[web]
port = {port}
operators = ["ann", "olga"]
users = ["uma"]
"""


@dataclass
class Web:
    """A served house, from the test's own thread."""

    served: Serving
    loop: asyncio.AbstractEventLoop
    port: int
    scratch: Path
    visitors: list["Visit"] = field(default_factory=list)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the house."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def until(self, true: Callable[[], object]) -> None:
        """Wait for something, with a bound."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, "it never came"
            time.sleep(0.02)

    def settle(self) -> None:
        """Deny whatever is still asked, so that the next test finds an empty inbox."""

        async def deny() -> None:
            board = self.served.board()
            for card in board.cards():
                await board.answer(card, granted=False, by=Who(name="ann"), reason="the test is over")

        self.do(deny())

    def link(self, user: str = "ann") -> str:
        """Return a link that signs somebody in once."""
        setup = self.served.wired.setup
        return sign_in_link(setup.home, setup.config, user)

    def visit(self, user: str | None = "ann") -> "Visit":
        """Return a browser, signed in unless nobody is named."""
        made = Visit(self)
        self.visitors.append(made)
        if user is not None:
            made.sign_in(self.link(user))
        return made

    def session(
        self,
        name: str = "a session",
        project: Path | None = None,
        mode: Mode = Mode.DEFAULT,
        agent: str = "nobody",
        channel: str = "web",
    ) -> SessionId:
        """Open a session of ann's in which nobody works, unless an agent is named; one of a terminal is not taken up here."""
        return self.do(
            open_new(self.served.wired.sessions, SessionSpec("demo", project, name, agent, mode), Who(name="ann", channel=channel))
        )

    def wish(self, session: SessionId, tool: str, **arguments: Any) -> Answer:
        """Let an agent wish for something, and go away where a human has to be asked."""
        return self.do(self.served.wired.gate.request(session, CallRequest(tool=tool, arguments=arguments), wait=False))

    def asks(self, session: SessionId) -> list[ApprovalId]:
        """Return what is asked of humans."""
        return [it.approval for it in self.served.work.desk.view(session).pending]

    def an_ask(self, session: SessionId, path: str = "/etc/hostname") -> ApprovalId:
        """Return an open ask: to read a file outside of the workspace."""
        assert self.wish(session, "filesystem.read_file", path=path).waiting
        return self.asks(session)[-1]


class Address(Protocol):
    """Where a web is."""

    @property
    def base(self) -> str:
        """The beginning of every address of its pages."""
        ...


class Visit:
    """A browser without a screen and without scripts: cookies, forms, and the headers that a real one sends."""

    def __init__(self, web: Address) -> None:
        self.web = web
        self.client = httpx2.Client(base_url=web.base, timeout=PATIENCE, trust_env=False)
        self.csrf = ""

    def sign_in(self, link: str) -> None:
        page = self.client.get(link)
        code = re.search(r'name="code" value="([^"]+)"', page.text)
        assert code, page.text
        done = self.post("/sign-in", code=code[1])
        assert done.status_code == 303, done.text
        self.csrf = self._csrf()

    def _csrf(self) -> str:
        found = re.search(r'<meta name="csrf" content="([0-9a-f]*)">', self.get("/").text)
        return found[1] if found else ""

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.client.get(path, headers=headers)

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx2.Response:
        given = {"Origin": self.web.base} if headers is None else headers
        return self.client.post(path, data={"csrf": self.csrf, **fields}, headers=given)

    def listen(self, query: str, **headers: str) -> Any:
        """Open the event stream; the context gives what `told` reads."""
        return self.client.stream("GET", f"/events?{query}", headers=headers)


def told(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the messages of an event stream: the event, its data, its id."""
    event, data, seq = "", [], ""
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and event:
            yield event, "\n".join(data), seq
            event, data, seq = "", [], ""
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            seq = value


@contextmanager
def web_at(scratch: Path, config: str = CONFIG, models: Sequence[LanguageModel] = ()) -> Iterator[Web]:
    """Serve a home in a thread of its own until the context is left."""
    home, port = scratch / "cw", free_port()
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(config.format(port=port))
    patch = pytest.MonkeyPatch()
    patch.setenv("CURTAINWALL_HOME", str(home))
    patch.setenv("HOME", str(scratch))
    ready, over = threading.Event(), threading.Event()
    made: list[Web] = []
    faults: list[BaseException] = []

    async def serve() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serving(load_setup(), models=models) as served:
            made.append(Web(served, loop, port, scratch))
            async with asyncio.timeout(PATIENCE):
                while served.supervisor.health().get("web") != "":  # noqa: ASYNC110 - the service has no event of its own to wait for
                    await asyncio.sleep(0.01)
            threading.Thread(target=lambda: (over.wait(), loop.call_soon_threadsafe(stopped.set)), daemon=True).start()
            ready.set()
            await stopped.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as fault:  # noqa: BLE001 - told to the test below
            faults.append(fault)
        ready.set()

    thread = threading.Thread(target=work, name="the served house")
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        assert not faults, faults
        yield made[0]
    finally:
        for visitor in made[0].visitors if made else ():
            visitor.client.close()
        over.set()
        thread.join(PATIENCE)
        patch.undo()
    assert not faults, faults
