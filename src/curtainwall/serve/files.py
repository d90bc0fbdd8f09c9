"""Approvals as files, as a service, if the configuration asks for them."""

from collections.abc import Iterable

from curtainwall.compose.ask_files import rendezvous_of
from curtainwall.host.home import Home
from curtainwall.model import SessionId
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"approvals"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the service that shows asks as files and takes answers from files."""
    if serving.config.approvals.files:
        yield rendezvous_of(serving.wired, left=sessions_with_files(serving.wired.setup.home))


def sessions_with_files(home: Home) -> list[SessionId]:
    """Return the sessions whose directories contain approval files, possibly of asks settled since."""
    names = {path.parent.parent.name for path in home.sessions.glob("*/escalations/request-*.json")}
    return [SessionId(name) for name in sorted(names) if name.isalnum()]
