"""Finds what people name on the command line: sessions and grants by an id or its beginning, approvals by the whole id."""

import os

from curtainwall.host.home import VARIABLE, Home, find_home
from curtainwall.host.user import when
from curtainwall.model import (
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    GrantId,
    Index,
    NotFound,
    SessionId,
    SessionQuery,
    SessionRow,
    session_stream,
)
from curtainwall.runtime import Stores

_MAX_LISTED = 10
_ELSEWHERE = f"; {VARIABLE} chooses another home"


def find_session(index: Index, text: str, *, whole: bool = False, home: Home | None = None) -> SessionRow:
    """Return the session with this id, or with the only id that begins with it; `whole` accepts only the whole id.

    `home` is named in the message where the index is not that of the usual home.
    """
    rows = index.sessions(SessionQuery(prefix=text, limit=3)) if text else ()
    exact = [row for row in rows if row.session == text]
    if exact:
        return exact[0]
    if whole and rows:
        raise NotFound(f"`{text}` is only the beginning of an id; give the whole of it")
    if not rows:
        raise NotFound(f"there is no session `{text}` {_here(home)}; `curtainwall sessions list` shows them{_ELSEWHERE}")
    if len(rows) > 1:
        raise NotFound(f"more than one session begins with `{text}`; give more of the id")
    return rows[0]


def is_stopped(store: Stores, row: SessionRow) -> bool:
    """Tell whether a session has an unfinished turn that no process works on, which would hold its lease."""
    if row.status != "working" or store.leases.owner(session_stream(row.session)) is not None:
        return False
    # The turn may have ended since the list was read.
    return any(now.status == "working" for now in store.index.sessions(SessionQuery(prefix=row.session, limit=1)))


def holder_of(store: Stores, session: SessionId) -> int | None:
    """Return the id of another process that works on a session; 0 if its id is not known."""
    owner = store.leases.owner(session_stream(session))
    return None if owner is None or owner.pid == os.getpid() else owner.pid


def find_approval(index: Index, text: str, session: str | None) -> ApprovalRow:
    """Return the approval with this id; if several sessions have used the id, the open one."""
    within = find_session(index, session).session if session else None
    rows = index.approvals(ApprovalQuery(approval=ApprovalId(text), session=within, open_only=False))
    open_ = [row for row in rows if row.status == "open"]
    if len(open_) > 1:
        where = ", ".join(f"`{row.session}`" for row in open_)
        raise NotFound(f"approval `{text}` is open in more than one session; add --session with one of {where}")
    if open_ or rows:
        return (open_ or [*rows])[0]
    if within and (elsewhere := index.approvals(ApprovalQuery(approval=ApprovalId(text), open_only=False))):
        where = ", ".join(f"`{row.session}`" for row in elsewhere)
        raise NotFound(f"approval `{text}` is not of session `{within}`; leave --session out, or name one of {where}")
    others = [row.approval for row in index.approvals(ApprovalQuery(limit=_MAX_LISTED + 1, brief=True))]
    others_note = " and others, which `curtainwall approvals list` shows" if len(others) > _MAX_LISTED else ""
    open_note = f"open are {', '.join(f'`{id_}`' for id_ in others[:_MAX_LISTED])}{others_note}" if others else "none is open"
    raise NotFound(f"there is no approval `{text}` {_here()}; {open_note}{_ELSEWHERE}")


def find_grant(index: Index, text: str) -> GrantId:
    """Return the whole id of an active grant, or of a plan with active grants, given the id or its unique beginning."""
    rows = index.grants(all_of_them=True)
    active = {name for row in rows if row.revoked is None for name in (row.grant.id, row.grant.plan) if name is not None}
    matches = [text] if text in active else [name for name in active if text and name.startswith(text)]
    if len(matches) == 1:
        return GrantId(matches[0])
    if matches:
        raise NotFound(f"more than one grant begins with `{text}`; give more of the id")
    ended = max((row.revoked or 0 for row in rows if text in (row.grant.id, row.grant.plan)), default=None)
    problem = f"there is no grant `{text}` {_here()}" if ended is None else f"grant `{text}` does not stand any more, since {when(ended)}"
    raise NotFound(f"{problem}; `curtainwall grants list` shows those that stand{_ELSEWHERE if ended is None else ''}")


def _here(home: Home | None = None) -> str:
    """Return which home was searched: a missing id may belong to another home."""
    return f"in `{(home or find_home()).root}`"
