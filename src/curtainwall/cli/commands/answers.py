"""`curtainwall approve` and `deny`: a human's answer to an ask and to identical ones."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated

import typer

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.answers import answer_each
from curtainwall.cli.asks import IdArgument, SessionOption, answered_with, covers_json, key_of, open_joined, settled_words
from curtainwall.cli.screen import Output, OutputOption, hint, note, show, show_json
from curtainwall.compose.sessions import load_terms, open_sessions
from curtainwall.compose.store import open_store
from curtainwall.host.home import Home, find_home
from curtainwall.host.user import local_user
from curtainwall.model import (
    AlreadyAnswered,
    AnswerApproval,
    ApprovalRow,
    Cover,
    CurtainwallError,
    GrantId,
    GrantRow,
    GrantScope,
    SessionId,
    in_order,
    record,
    session_stream,
)
from curtainwall.operations.lookup import find_approval
from curtainwall.session import inert, scope_of_answer, visible

OnlyOption = Annotated[bool, typer.Option("--only", help="this one alone, and not those that are identical")]


def approve(
    approval: IdArgument,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE…]", help="of a change set, only these files, as they are listed")
    ] = None,
    scope: Annotated[
        GrantScope, typer.Option("--for", help="once, for the session, or for every session in the project")
    ] = GrantScope.ONCE,
    session: SessionOption = None,
    only: OnlyOption = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Grant an approval: once, for the session, or for the project. Identical asks of its job that came before are granted as well.

    Of a change set, files may be named as they are listed: only those are accepted, and the rest stays in the session's view.
    """
    paths = tuple(files) if files else None
    return _settle(_Answer(approval, session, only, granted=True, scope=scope, paths=paths), output)


def deny(
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="why, for the agent and the log")] = "",
    session: SessionOption = None,
    only: OnlyOption = False,
    discard: Annotated[bool, typer.Option("--discard", help="of a change set: also forget the changes in the session's view")] = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Deny an approval. Identical asks of its job that came before are denied as well.

    With a reason, the agent works on a denied change set and presents it again; without one it stays in the session's view.
    """
    return _settle(_Answer(approval, session, only, granted=False, reason=reason, discard=discard), output)


@record
class _Answer:
    """An answer as given on the command line."""

    approval: str
    session: str | None
    only: bool
    granted: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""
    paths: tuple[str, ...] | None = None
    discard: bool = False


@record
class _Outcome:
    """The outcome of one answer: the asks that it was for, those that it did not settle, and the new grants."""

    asks: tuple[Key, ...]
    refused: Mapping[Key, CurtainwallError]
    grants: tuple[GrantRow, ...]
    is_running: bool

    @property
    def settled(self) -> tuple[Key, ...]:
        """The asks that it settled."""
        return tuple(key for key in self.asks if key not in self.refused)

    def grant_of(self, session: SessionId) -> GrantId | None:
        """Return the new grant that applies in a session."""
        rows = (row for row in self.grants if row.grant.scope is GrantScope.PROJECT or row.stream == session_stream(session))
        return next((row.grant.id for row in rows), None)


def _settle(answer: _Answer, output: Output) -> int:
    home = find_home()
    with open_store(home) as store:
        row = find_approval(store.index, answer.approval, answer.session)
        if row.settled is not None:
            raise AlreadyAnswered(settled_words(row))
        others = () if answer.only else answered_with(row, open_joined(store))[:-1]
    scope = scope_of_answer(answer.scope, row.covers)
    command = AnswerApproval(
        by=local_user(),
        approval=row.approval,
        granted=answer.granted,
        scope=scope,
        reason=answer.reason,
        only=answer.paths,
        discard=answer.discard,
    )
    outcome = asyncio.run(_answer_together(home, (key_of(row), *others), command, row.covers))
    for (session, approval), why in outcome.refused.items():
        if len(outcome.asks) > 1:
            note(f"not settled by this: {approval} in session {session}: {inert(str(why))}")
    if not outcome.settled:
        raise outcome.refused[key_of(row)]
    if output is Output.JSON:
        show_json(_answer_json(row, command, outcome))
    else:
        _show(row, command, outcome)
    if not outcome.is_running:
        # A process that only waits holds no lease, so we cannot see whether there is one.
        session_argument = row.session if len(outcome.settled) == 1 else "SESSION"
        hint(f"where the session is not open anywhere, `curtainwall start --resume {session_argument}` goes on")
    # An ask that somebody else has settled in the meantime counts as settled, unless it is the one that was named.
    return 1 if any(key == key_of(row) or not isinstance(why, AlreadyAnswered) for key, why in outcome.refused.items()) else 0


async def _answer_together(home: Home, asks: tuple[Key, ...], command: AnswerApproval, covers: Sequence[Cover]) -> _Outcome:
    """Give one answer to several asks that cover the same thing."""
    async with open_sessions(home, cache(load_terms)) as sessions:
        index = sessions.store.index
        before = {row.grant.id for row in index.grants()}
        is_running = any(sessions.store.leases.owner(session_stream(session)) is not None for session, _ in asks)

        async def send(session: SessionId, answer: AnswerApproval) -> int:
            return await sessions.registry.send(session, answer)

        refused = await answer_each(send, asks, command)
        new = tuple(row for row in index.grants() if row.grant.id not in before and row.grant.covers == covers)
        return _Outcome(asks, refused, new, is_running)


def _show(row: ApprovalRow, command: AnswerApproval, outcome: _Outcome) -> None:
    if command.granted:
        grants = [str(grant_row.grant.id) for grant_row in outcome.grants]
        revocation = f"grant {grants[0]}; `curtainwall grants revoke {grants[0]}` takes it back" if len(grants) == 1 else ""
        revocation = revocation or f"grants {', '.join(grants)}; `curtainwall grants revoke ID` takes one back"
        how_far = f"for the {command.scope.value} ({revocation})" if grants else "once"
        show(f"granted {how_far}: {inert(row.tool)}")
        if command.only is not None:
            show("\n".join(f"  only {visible(path)}" for path in command.only))
            return
        show("\n".join(f"  {cover.role} {inert(in_order(cover.value))}  [{', '.join(cover.rules)}]" for cover in row.covers))
    else:
        show(f"denied: {inert(row.tool)}")
    if len(outcome.asks) > 1:
        show(f"this answered {len(outcome.settled)} identical asks:")
        show("\n".join(f"  {approval}  session {session}" for session, approval in outcome.settled))


def _answer_json(row: ApprovalRow, command: AnswerApproval, outcome: _Outcome) -> dict[str, object]:
    return {
        "approval": row.approval,
        "session": row.session,
        "status": "not settled" if key_of(row) in outcome.refused else "granted" if command.granted else "denied",
        "by": str(command.by),
        "scope": command.scope.value if command.granted else None,
        "grant": outcome.grant_of(row.session),
        "reason": command.reason,
        **({} if command.only is None else {"only": list(command.only)}),
        "covers": covers_json(row),
        "identical": [{"id": ask, "session": of, "grant": outcome.grant_of(of)} for of, ask in outcome.settled if (of, ask) != key_of(row)],
        "unsettled": [{"id": ask, "session": of, "why": str(why)} for (of, ask), why in outcome.refused.items()],
    }
