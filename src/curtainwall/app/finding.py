"""What people name on the command line, found in the lists: sessions by their id or its beginning, approvals by their whole id."""

from curtainwall.model import (
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    Index,
    NotFound,
    SessionId,
    SessionQuery,
    SessionRow,
)


def find_session(index: Index, text: str, *, whole: bool = False) -> SessionRow:
    """Return the session of that id, or of the only id that begins so; `whole` takes nothing but the id."""
    found = index.sessions(SessionQuery(prefix=text, limit=3)) if text else ()
    exact = [row for row in found if row.session == text]
    if exact:
        return exact[0]
    if whole and found:
        raise NotFound(f"`{text}` is only the beginning of an id; give the whole of it")
    if not found:
        raise NotFound(f"there is no session `{text}`; `curtainwall sessions list` shows them")
    if len(found) > 1:
        raise NotFound(f"more than one session begins with `{text}`; give more of the id")
    return found[0]


def find_approval(index: Index, text: str, session: str | None) -> ApprovalRow:
    """Return the approval of that id: the open one, where several sessions have used the same."""
    within = SessionId(session) if session else None
    found = index.approvals(ApprovalQuery(approval=ApprovalId(text), session=within, open_only=False))
    open_ = [row for row in found if row.status == "open"]
    if len(open_) > 1:
        where = ", ".join(f"`{row.session}`" for row in open_)
        raise NotFound(f"approval `{text}` is open in more than one session; add --session with one of {where}")
    if open_ or found:
        return (open_ or [*found])[0]
    others = [row.approval for row in index.approvals(ApprovalQuery(limit=10))]
    listed = f"open are {', '.join(f'`{id_}`' for id_ in others)}" if others else "none is open"
    raise NotFound(f"there is no approval `{text}`; {listed}")
