"""Asks as files in a session's directory: shown there, and answered from there."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.channels import Rendezvous
from curtainwall.compose.gate import GatedSessions
from curtainwall.model import HOUSE_CHANNELS, AnswerApproval, ApprovalQuery, SessionId, SessionQuery


def rendezvous_of(wired: GatedSessions, *, only: SessionId | None = None, left: Iterable[SessionId] = ()) -> Rendezvous:
    """Return what keeps the asks of one session as files, or of every session that is not run by a terminal."""
    home, index = wired.setup.home, wired.store.index

    def is_served(session: SessionId) -> bool:
        return any(row.channel not in HOUSE_CHANNELS for row in index.sessions(SessionQuery(prefix=session, limit=1)))

    def concerned(session: SessionId | None) -> Iterable[SessionId]:
        if only is not None and session not in (None, only):
            return ()
        rows = index.approvals(ApprovalQuery(session=session or only, limit=None, brief=True))
        return {row.session for row in rows if only is not None or is_served(row.session)}

    def directory_of(session: SessionId) -> Path:
        session_home = home.session(session)
        session_home.prepare()
        return session_home.escalations

    async def send(session: SessionId, command: AnswerApproval) -> int:
        # The key names the approval: a file that is read again while the session's owner is stopped still counts as one answer.
        return await wired.registry.send(session, command, f"file {command.approval} {command.granted}")

    return Rendezvous(wired.registry.feed, send, concerned, directory_of, filter(is_served, left) if only is None else (only,))


@asynccontextmanager
async def ask_files_of(wired: GatedSessions, session: SessionId) -> AsyncGenerator[None]:
    """Show a session's asks as files, and take answers from files, if `approvals.files` is set."""
    if not wired.setup.config.approvals.files:
        yield
        return
    rendezvous = rendezvous_of(wired, only=session)
    # Answers that were given while nobody looked count before anything continues.
    await rendezvous.answer()
    task = asyncio.create_task(rendezvous.run(), name=f"files of {session}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
