"""`curtainwall approve` and `deny`: a human's answer to an ask, and to those that are identical with it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import typer

from curtainwall.channels.asks.answers import Key, answer_each
from curtainwall.cli.asks import IdArgument, SessionOption, answered_with, covers_json, key_of, open_joined, settled_words
from curtainwall.cli.screen import Output, OutputOption, note, show, show_json
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
    session_stream,
)
from curtainwall.operations.lookup import find_approval
from curtainwall.session import inert, scope_of_answer

OnlyOption = Annotated[bool, typer.Option("--only", help="this one alone, and not those that are identical")]


def approve(
    approval: IdArgument,
    scope: Annotated[
        GrantScope, typer.Option("--for", help="once, for the session, or for every session in the project")
    ] = GrantScope.ONCE,
    session: SessionOption = None,
    only: OnlyOption = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Grant an approval: once, for the session, or for the project. Identical asks of its job that came before are granted as well."""
    return _settle(_Answer(approval, session, only, granted=True, scope=scope), output)


def deny(
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="why, for the agent and the log")] = "",
    session: SessionOption = None,
    only: OnlyOption = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Deny an approval. Identical asks of its job that came before are denied as well."""
    return _settle(_Answer(approval, session, only, granted=False, reason=reason), output)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer as somebody wrote it."""

    approval: str
    session: str | None
    only: bool
    granted: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Together:
    """What came of one answer: the asks that it was for, those that it did not settle, and the grants that stand since."""

    asks: tuple[Key, ...]
    refused: Mapping[Key, CurtainwallError]
    grants: tuple[GrantRow, ...]
    is_running: bool

    @property
    def settled(self) -> tuple[Key, ...]:
        """The asks that it settled."""
        return tuple(key for key in self.asks if key not in self.refused)

    def grant_of(self, session: SessionId) -> GrantId | None:
        """Return the grant that answers in a session from now on."""
        here = (row for row in self.grants if row.grant.scope is GrantScope.PROJECT or row.stream == session_stream(session))
        return next((row.grant.id for row in here), None)


def _settle(said: _Answer, output: Output) -> int:
    home = find_home()
    with open_store(home) as store:
        row = find_approval(store.index, said.approval, said.session)
        if row.settled is not None:
            raise AlreadyAnswered(settled_words(row))
        others = () if said.only else answered_with(row, open_joined(store))[:-1]
    scope = scope_of_answer(said.scope, row.covers)
    command = AnswerApproval(by=local_user(), approval=row.approval, granted=said.granted, scope=scope, reason=said.reason)
    told = asyncio.run(_answer_together(home, (key_of(row), *others), command, row.covers))
    for (session, approval), why in told.refused.items():
        if len(told.asks) > 1:
            note(f"not settled by this: {approval} in session {session}: {inert(str(why))}")
    if not told.settled:
        raise told.refused[key_of(row)]
    if output is Output.JSON:
        show_json(_answer_json(row, command, told))
    else:
        _show(row, command, told)
    if not told.is_running:
        # A process that only waits holds nothing, so whether there is one cannot be seen from here.
        which = row.session if len(told.settled) == 1 else "SESSION"
        note(f"where the session is not open anywhere, `curtainwall start --resume {which}` goes on")
    # One that somebody else has settled meanwhile is settled as well, unless it is the one that was named.
    return 1 if any(key == key_of(row) or not isinstance(why, AlreadyAnswered) for key, why in told.refused.items()) else 0


async def _answer_together(home: Home, asks: tuple[Key, ...], command: AnswerApproval, covers: Sequence[Cover]) -> _Together:
    """Give one answer to several asks that cover the same."""
    async with open_sessions(home, cache(load_terms)) as sessions:
        index = sessions.store.index
        before = {found.grant.id for found in index.grants()}
        is_running = any(sessions.store.leases.owner(session_stream(session)) is not None for session, _ in asks)

        async def send(session: SessionId, answer: AnswerApproval) -> int:
            return await sessions.house.send(session, answer)

        refused = await answer_each(send, asks, command)
        new = tuple(found for found in index.grants() if found.grant.id not in before and found.grant.covers == covers)
        return _Together(asks, refused, new, is_running)


def _show(row: ApprovalRow, command: AnswerApproval, told: _Together) -> None:
    if command.granted:
        grants = [str(found.grant.id) for found in told.grants]
        which = f"grant {grants[0]}; `curtainwall grants revoke {grants[0]}` takes it back" if len(grants) == 1 else ""
        which = which or f"grants {', '.join(grants)}; `curtainwall grants revoke ID` takes one back"
        how_far = f"for the {command.scope.value} ({which})" if grants else "once"
        show(f"granted {how_far}: {inert(row.tool)}")
        show("\n".join(f"  {cover.role} {inert(in_order(cover.value))}  [{', '.join(cover.rules)}]" for cover in row.covers))
    else:
        show(f"denied: {inert(row.tool)}")
    if len(told.asks) > 1:
        show(f"this answered {len(told.settled)} identical asks:")
        show("\n".join(f"  {approval}  session {session}" for session, approval in told.settled))


def _answer_json(row: ApprovalRow, command: AnswerApproval, told: _Together) -> dict[str, object]:
    return {
        "approval": row.approval,
        "session": row.session,
        "status": "not settled" if key_of(row) in told.refused else "granted" if command.granted else "denied",
        "by": str(command.by),
        "scope": command.scope.value if command.granted else None,
        "grant": told.grant_of(row.session),
        "reason": command.reason,
        "covers": covers_json(row),
        "identical": [{"id": ask, "session": of, "grant": told.grant_of(of)} for of, ask in told.settled if (of, ask) != key_of(row)],
        "unsettled": [{"id": ask, "session": of, "why": str(why)} for (of, ask), why in told.refused.items()],
    }
