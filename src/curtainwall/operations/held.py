"""Files of projects that were set aside while an agent worked: kept in the log of its session, found again there, and put back."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from curtainwall.facts import Masker
from curtainwall.host import put_back
from curtainwall.model import (
    SYSTEM,
    CommandRefused,
    CurtainwallError,
    ExtensionNoted,
    HeldFile,
    Millis,
    NotFound,
    RecordProgress,
    SessionId,
    SessionQuery,
    SessionRow,
    Undecided,
    held_files,
    held_noted,
    session_stream,
)
from curtainwall.operations.lookup import is_stopped
from curtainwall.runtime import SessionRegistry, Stores
from curtainwall.session import lift

_LOG = logging.getLogger(__name__)
_MANY = 1_000_000_000


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A file that is still set aside, and the session in which that was done."""

    session: SessionId
    at: Millis
    file: HeldFile


async def note_held(house: SessionRegistry, masker: Masker, session: SessionId, files: Iterable[HeldFile]) -> None:
    """Keep what was set aside with its session, whose channels tell it; where that cannot be done, the call goes on all the same."""
    masked = [HeldFile.model_validate(masker.mask_json(file.model_dump(mode="json"))) for file in files]
    try:
        # Whoever waits for the command must not wait for ever for an owner that is stopped; the note is kept for it.
        with suppress(Undecided):
            await house.send(session, RecordProgress(by=SYSTEM, events=(held_noted(masked, house.clock.now()),)))
    except (CurtainwallError, OSError) as fault:
        told = ", ".join(f"`{file.path}`" for file in masked)
        _LOG.warning("session `%s` set aside %s, which could not be written down: %s", session, told, fault)


def still_held(store: Stores, rows: Iterable[SessionRow] | None = None) -> Iterator[HeldEntry]:
    """Yield what is still set aside, of these sessions or of all; in a workspace of its own nothing ever is."""
    for row in store.index.sessions(SessionQuery(limit=_MANY)) if rows is None else rows:
        if row.own_workspace:
            continue
        for entry in store.log.read(session_stream(row.session)):
            if entry.kind != ExtensionNoted.__name__:
                continue
            event = lift(entry)
            for file in held_files(event):
                if file.aside is not None and os.path.lexists(file.aside):
                    yield HeldEntry(row.session, event.at, file)


def restore(store: Stores, path: str) -> tuple[HeldFile, str | None]:
    """Put back what was set aside last at a path, named by its own name or by the one it has now; raise `NotFound`, `CommandRefused`."""
    named = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    fitting = [found for found in still_held(store) if named in (found.file.path, found.file.aside)]
    if not fitting:
        raise NotFound(f"nothing is set aside at `{path}`; `curtainwall sessions held` lists what is")
    file = max(fitting, key=lambda found: found.at).file
    at_work = store.index.sessions(SessionQuery(status="working", limit=_MANY))
    busy = [row.session for row in at_work if _holds(row, file.path) and not is_stopped(store, row)]
    if busy:
        raise CommandRefused(f"session `{busy[0]}` works in that project now and would set it aside again; wait until it is done")
    return file, put_back(file)


def _holds(row: SessionRow, path: str) -> bool:
    return not row.own_workspace and path.startswith(f"{row.workspace.rstrip('/')}/")
