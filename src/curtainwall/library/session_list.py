"""The sessions of a home, for programs that look for one to resume."""

from pathlib import Path
from typing import get_args

from curtainwall.compose.store import open_store
from curtainwall.host.home import find_home
from curtainwall.library.arguments import environ_for, path_of, require
from curtainwall.model import OUTSIDE, CommandRefused, SessionQuery, SessionRow, SessionStatus


def list_sessions(
    *,
    text: str | None = None,
    status: SessionStatus | None = None,
    agent: str | None = None,
    workspace: Path | str | None = None,
    limit: int = 50,
    home: Path | str | None = None,
) -> tuple[SessionRow, ...]:
    """Return sessions, the most recently active first; without those that only stand for somebody who asks teams.

    `text` is part of the name or of the workspace.
    """
    for name, value in {"text": text, "status": status, "agent": agent}.items():
        if value is not None:
            require(name, value, str)
    if status is not None and status not in get_args(SessionStatus):
        raise CommandRefused(f"`status` must be one of {', '.join(f'`{each}`' for each in get_args(SessionStatus))}, not `{status}`")
    if require("limit", limit, int) < 1:
        raise CommandRefused("`limit` must be at least 1")
    query = SessionQuery(
        status=status,
        agent=agent,
        text=text,
        workspace=None if workspace is None else str(path_of("workspace", workspace).resolve()),
        without_agent=None if agent == OUTSIDE else OUTSIDE,
        by_activity=True,
        limit=limit,
    )
    with open_store(find_home(environ_for(home))) as store:
        return tuple(store.index.sessions(query))
