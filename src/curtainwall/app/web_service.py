"""The web as a service: the pages introduced to this house, served until somebody stops them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from curtainwall.app.config import Config
from curtainwall.app.config_web import WebSection
from curtainwall.app.openings import Wanted
from curtainwall.app.web_parts import HouseBeginnings, HouseJudging, HouseRecords
from curtainwall.app.web_people import WEB, sign_ins_of, web_operators, web_tokens
from curtainwall.app.wiring import Setup
from curtainwall.app.working import AtWork, ModelOf
from curtainwall.channels.asks import Board
from curtainwall.channels.line import Line
from curtainwall.channels.web import Bind, Doors, House, Hubs, WebServer, web_app
from curtainwall.model import Listening, RuleId, SessionId


@dataclass(frozen=True, slots=True)
class Around:
    """What the web needs of whoever serves it: agents at work, who looks after sessions, and how the other services are."""

    work: AtWork
    listening: Listening
    find_model: ModelOf
    usual: Wanted
    attend: Callable[[SessionId], None]
    setup: Callable[[], Setup]
    services: Callable[[], Mapping[str, str]]


class WebService:
    """Serves the pages."""

    name = WEB

    def __init__(self, around: Around) -> None:
        self._around = around
        self._server: WebServer | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        around = self._around
        setup = around.setup()
        hubs = Hubs(house_of(around))
        app = web_app(
            hubs.house, hubs, doors_of(setup.config), sign_ins_of(setup.home, setup.config), lambda: web_tokens(around.setup().config)
        )
        self._server = WebServer(app, hubs, bind_of(setup.config.web))
        try:
            await self._server.run()
        finally:
            self._server = None

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return "" if self._server is not None and self._server.is_listening.is_set() else "it does not listen yet"


def house_of(around: Around) -> House:
    """Return the house as the pages see it."""
    wired = around.work.wired
    line = Line(desk=around.work.desk, feed=wired.house.feed, listening=around.listening, clock=wired.house.clock)

    def reason_of(rule: RuleId) -> str:
        card = around.setup().policy.card(rule)
        return (card.reason or card.title) if card else ""

    return House(
        line=line,
        index=wired.store.index,
        board=Board(line.desk, line.feed, wired.store.index, reason_of),
        judging=HouseJudging(around.setup),
        beginnings=HouseBeginnings(wired, around.find_model, around.usual, around.attend),
        records=HouseRecords(wired, around.services),
    )


def doors_of(config: Config) -> Doors:
    """Return under which names the pages answer, and for whom."""
    web = config.web
    hosts = {web.host.lower(), *(host.lower() for host in web.hosts)}
    if web.url:
        hosts.add(web.url.partition("://")[2].rpartition(":")[0].lower() or web.url.partition("://")[2].lower())
    return Doors(
        hosts=frozenset(f"[{host}]" if ":" in host else host for host in hosts),
        operators=web_operators(config),
        users=frozenset(web.users),
        is_secure=web.certificate is not None or (web.url or "").startswith("https://"),
    )


def bind_of(web: WebSection) -> Bind:
    """Return where to listen."""

    def file(name: str | None) -> Path | None:
        return None if name is None else Path(name).expanduser()

    return Bind(web.host, web.port, file(web.certificate), file(web.key))
