"""Records in a session's log which project files were set aside while its agent worked, lists them, and puts them back."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

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
    record,
    session_stream,
)
from curtainwall.operations.lookup import is_stopped
from curtainwall.runtime import SessionRegistry, Stores
from curtainwall.session import lift

_LOG = logging.getLogger(__name__)
_NO_LIMIT = 1_000_000_000


@record
class HeldEntry:
    """A file that is still set aside, and the session that did it."""

    session: SessionId
    at: Millis
    file: HeldFile


async def note_held(registry: SessionRegistry, masker: Masker, session: SessionId, files: Iterable[HeldFile]) -> None:
    """Record what was set aside in the session's log, which its channels show; if that fails, the call continues anyway."""
    masked = [HeldFile.model_validate(masker.mask_json(file.model_dump(mode="json"))) for file in files]
    try:
        # The caller must not wait forever for an owner that is stopped; the note stays in the inbox for it.
        with suppress(Undecided):
            await registry.send(session, RecordProgress(by=SYSTEM, events=(held_noted(masked, registry.clock.now()),)))
    except (CurtainwallError, OSError) as fault:
        paths = ", ".join(f"`{file.path}`" for file in masked)
        _LOG.warning("session `%s` set aside %s, which could not be written down: %s", session, paths, fault)


def still_held(store: Stores, rows: Iterable[SessionRow] | None = None) -> Iterator[HeldEntry]:
    """Yield what is still set aside, of these sessions or of all; nothing is ever set aside in a session's own workspace."""
    for row in store.index.sessions(SessionQuery(limit=_NO_LIMIT)) if rows is None else rows:
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
    """Put back the file last set aside at a path, given its original or its current name; raise `NotFound` or `CommandRefused`."""
    real_path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    matches = [entry for entry in still_held(store) if real_path in (entry.file.path, entry.file.aside)]
    if not matches:
        raise NotFound(f"nothing is set aside at `{path}`; `curtainwall sessions held` lists what is")
    file = max(matches, key=lambda entry: entry.at).file
    working = store.index.sessions(SessionQuery(status="working", limit=_NO_LIMIT))
    busy = [row.session for row in working if _contains(row, file.path) and not is_stopped(store, row)]
    if busy:
        raise CommandRefused(f"session `{busy[0]}` works in that project now and would set it aside again; wait until it is done")
    return file, put_back(file)


def _contains(row: SessionRow, path: str) -> bool:
    return not row.own_workspace and path.startswith(f"{row.workspace.rstrip('/')}/")
