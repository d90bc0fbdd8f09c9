"""Approvals as files, for scripts and foreign processes: of one session or of many, with one watcher for all that wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import cast

from curtainwall.channels.ask_files.session_files import Send, SessionFiles
from curtainwall.model import CurtainwallError, Feed, SessionId, session_of

_SLOW_MILLIS = 2_000
_SOON = 0.05
_REST = 0.02

Concerned = Callable[[SessionId | None], Iterable[SessionId]]
"""Tells whether a session's asks are to be shown as files, by returning it or nothing; for None, all whose are."""

DirectoryOf = Callable[[SessionId], Path]
"""Tells where the files of a session are, and makes what lies above."""


class Rendezvous:
    """The files of every session that is concerned. A session that nobody waits for costs nothing here."""

    name = "files"

    def __init__(self, feed: Feed, send: Send, concerned: Concerned, directory_of: DirectoryOf, left: Iterable[SessionId] = ()) -> None:
        """Make one; `left` are sessions in whose directories an earlier process may have left files."""
        self._feed = feed
        self._send = send
        self._concerned = concerned
        self._directory_of = directory_of
        self._kept: dict[SessionId, SessionFiles] = {}
        self._faults: dict[SessionId, str] = {}
        self._look = asyncio.Event()
        self._elsewhere = asyncio.Event()
        for session in left:
            self._try(session, self._take_up)

    async def run(self) -> None:
        """Keep files and approvals in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._answer())
            async for names in self._feed.changes():
                changed = {session for name in names if (session := session_of(name)) is not None}
                self._look_at(changed if names else None)
                # Everything that a busy house does comes by here; nothing that happens meanwhile is missed.
                await asyncio.sleep(_REST)

    def health(self) -> str:
        """Return which files could not be written."""
        return "; ".join(f"session {session}: {fault}; it is tried again" for session, fault in self._faults.items())

    async def answer(self) -> bool:
        """Send the answers that are complete; return whether a response is still being written."""
        return any([await files.answer() for files in tuple(self._kept.values())])

    def _look_at(self, sessions: Iterable[SessionId] | None) -> None:
        """Bring the files of these sessions up to date, or those of all."""
        for session in {*self._kept, *self._faults, *self._concerned(None)} if sessions is None else sessions:
            if session in self._kept:
                self._try(session, self._catch_up)
            elif session in self._faults or any(True for _ in self._concerned(session)):
                self._try(session, self._take_up)

    def _try(self, session: SessionId, bring_up_to_date: Callable[[SessionId], None]) -> None:
        """Do it, or keep in mind why it could not be done; a session whose files cannot be written keeps no other from its own."""
        try:
            bring_up_to_date(session)
        except (OSError, CurtainwallError) as fault:
            self._faults[session] = str(fault)
            self._kept.pop(session, None)
            self._elsewhere.set()
        else:
            self._faults.pop(session, None)

    def _take_up(self, session: SessionId) -> None:
        files = SessionFiles(self._feed, self._send, session, self._directory_of(session))
        files.take_up()
        if files.is_waiting:
            self._kept[session] = files
            self._elsewhere.set()

    def _catch_up(self, session: SessionId) -> None:
        files = self._kept[session]
        files.catch_up()
        if not files.is_waiting:
            del self._kept[session]
            self._elsewhere.set()

    async def _watch(self) -> None:
        while True:
            self._elsewhere.clear()
            if not self._kept and not self._faults:
                await self._elsewhere.wait()
                continue
            # Somebody may have answered before the directories are watched.
            self._look.set()
            async for _ in _changes([files.directory for files in self._kept.values()], self._elsewhere):
                self._look_at(tuple(self._faults))
                self._look.set()

    async def _answer(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if await self.answer():
                # Someone is still writing, and the end of that makes no event.
                await asyncio.sleep(_SOON)
                self._look.set()


async def _changes(directories: list[Path], until: asyncio.Event) -> AsyncIterator[None]:
    """Tell when something may have changed in a directory: at once where it can be watched, else every few seconds."""
    import watchfiles  # imported late: only sessions with files need it

    options = {"watch_filter": None, "step": 10, "debounce": 20, "rust_timeout": _SLOW_MILLIS, "yield_on_timeout": True, "recursive": False}
    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    try:
        async for _ in watch(*directories, stop_event=until, **options):
            yield
    except (OSError, RuntimeError):
        pass
    while not until.is_set():
        yield
        await asyncio.sleep(_SLOW_MILLIS / 1000)
