"""What people name on the command line, found in the lists: sessions and grants by an id or its beginning, approvals by the whole of it."""

import os

from curtainwall.host.home import VARIABLE, find_home
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

_MOST_NAMED = 10
_ELSEWHERE = f"; {VARIABLE} chooses another home"


def find_session(index: Index, text: str, *, whole: bool = False) -> SessionRow:
    """Return the session of that id, or of the only id that begins so; `whole` takes nothing but the id."""
    found = index.sessions(SessionQuery(prefix=text, limit=3)) if text else ()
    exact = [row for row in found if row.session == text]
    if exact:
        return exact[0]
    if whole and found:
        raise NotFound(f"`{text}` is only the beginning of an id; give the whole of it")
    if not found:
        raise NotFound(f"there is no session `{text}` {_here()}; `curtainwall sessions list` shows them{_ELSEWHERE}")
    if len(found) > 1:
        raise NotFound(f"more than one session begins with `{text}`; give more of the id")
    return found[0]


def is_stopped(store: Stores, row: SessionRow) -> bool:
    """Tell whether a turn goes on that no process works on; whoever works on one has the lease."""
    if row.status != "working" or store.leases.owner(session_stream(row.session)) is not None:
        return False
    # It may have ended since the list was read.
    return any(now.status == "working" for now in store.index.sessions(SessionQuery(prefix=row.session, limit=1)))


def holder_of(store: Stores, session: SessionId) -> int | None:
    """Return which other process works on a session; 0 where only that there is one is known."""
    owner = store.leases.owner(session_stream(session))
    return None if owner is None or owner.pid == os.getpid() else owner.pid


def find_approval(index: Index, text: str, session: str | None) -> ApprovalRow:
    """Return the approval of that id: the open one, where several sessions have used the same."""
    within = find_session(index, session).session if session else None
    found = index.approvals(ApprovalQuery(approval=ApprovalId(text), session=within, open_only=False))
    open_ = [row for row in found if row.status == "open"]
    if len(open_) > 1:
        where = ", ".join(f"`{row.session}`" for row in open_)
        raise NotFound(f"approval `{text}` is open in more than one session; add --session with one of {where}")
    if open_ or found:
        return (open_ or [*found])[0]
    if within and (elsewhere := index.approvals(ApprovalQuery(approval=ApprovalId(text), open_only=False))):
        where = ", ".join(f"`{row.session}`" for row in elsewhere)
        raise NotFound(f"approval `{text}` is not of session `{within}`; leave --session out, or name one of {where}")
    others = [row.approval for row in index.approvals(ApprovalQuery(limit=_MOST_NAMED + 1, brief=True))]
    more = " and others, which `curtainwall approvals list` shows" if len(others) > _MOST_NAMED else ""
    listed = f"open are {', '.join(f'`{id_}`' for id_ in others[:_MOST_NAMED])}{more}" if others else "none is open"
    raise NotFound(f"there is no approval `{text}` {_here()}; {listed}{_ELSEWHERE}")


def find_grant(index: Index, text: str) -> GrantId:
    """Return the whole id of a grant that stands, or of a plan that has such grants, by the id or the only one that begins so."""
    rows = index.grants(all_of_them=True)
    standing = {name for row in rows if row.revoked is None for name in (row.grant.id, row.grant.plan) if name is not None}
    found = [text] if text in standing else [name for name in standing if text and name.startswith(text)]
    if len(found) == 1:
        return GrantId(found[0])
    if found:
        raise NotFound(f"more than one grant begins with `{text}`; give more of the id")
    ended = max((row.revoked or 0 for row in rows if text in (row.grant.id, row.grant.plan)), default=None)
    gone = f"there is no grant `{text}` {_here()}" if ended is None else f"grant `{text}` does not stand any more, since {when(ended)}"
    raise NotFound(f"{gone}; `curtainwall grants list` shows those that stand{_ELSEWHERE if ended is None else ''}")


def _here() -> str:
    """Return which home was searched: an id that is not found may be one of another home."""
    return f"in `{find_home().root}`"
