"""How the served house is right now, asked of everything that knows."""

import os
import resource
from pathlib import Path

from curtainwall import __version__
from curtainwall.channels.status import Health
from curtainwall.model import CurtainwallError, Tally
from curtainwall.serve.service import Serving

_PAGE = os.sysconf("SC_PAGE_SIZE")


def health_of(serving: Serving) -> Health:
    """Return how everything is."""
    clock, tally, fault = serving.wired.house.clock, Tally({}, {}, None), ""
    try:
        tally = serving.wired.store.tallies.tally()
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
        sessions={status: tally.sessions.get(status, 0) for status in ("opening", "ready", "working", "waiting", "closed")},
        asks={how: tally.asks.get(how, 0) for how in ("open", "granted", "denied", "expired", "withdrawn")},
        oldest_ask=tally.oldest_ask,
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
