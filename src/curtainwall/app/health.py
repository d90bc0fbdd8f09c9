"""How the served house is right now, asked of everything that knows."""

import os
import resource
from collections import Counter
from pathlib import Path

from curtainwall import __version__
from curtainwall.app.serving import Serving
from curtainwall.channels.status import Health
from curtainwall.model import ApprovalQuery, CurtainwallError, SessionQuery

_MANY = 1_000_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def health_of(serving: Serving) -> Health:
    """Return how everything is."""
    index, clock = serving.wired.store.index, serving.wired.house.clock
    sessions, asks, oldest, fault = Counter[str](), Counter[str](), None, ""
    try:
        sessions = Counter(row.status for row in index.sessions(SessionQuery(limit=_MANY)))
        rows = index.approvals(ApprovalQuery(open_only=False, limit=_MANY))
        asks = Counter(row.status for row in rows)
        oldest = min((row.asked for row in rows if row.status == "open"), default=None)
    except CurtainwallError as error:
        fault = str(error)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Health(
        version=__version__,
        pid=os.getpid(),
        began=serving.began,
        now=clock.now(),
        policy=serving.wired.setup.policy.version,
        fault_in_files=serving.reloading.fault,
        wait_for_restart=tuple(sorted(serving.reloading.waiting)),
        services=serving.supervisor.health(),
        restarts=serving.supervisor.restarts(),
        sessions={status: sessions[status] for status in ("opening", "ready", "working", "waiting", "closed")},
        asks={how: asks[how] for how in ("open", "granted", "denied", "expired", "withdrawn")},
        oldest_ask=oldest,
        attended=len(serving.work.turns.attended),
        memory=_resident(),
        cpu_seconds=used.ru_utime + used.ru_stime,
        store_fault=fault,
    )


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
