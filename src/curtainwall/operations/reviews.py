"""Reviews of what sessions changed in their views of projects: presented at the end of a turn, and carried out as they are answered."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    APPLY_CHANGES,
    SYSTEM,
    Answer,
    BadCall,
    CallId,
    CallRequest,
    ChangeSet,
    CurtainwallError,
    FileChange,
    Gate,
    MessageId,
    Mode,
    Place,
    RuleId,
    SendMessage,
    SessionId,
    SessionViews,
    TryLater,
    TurnAt,
    TurnResult,
    TurnStatus,
    ViewFailed,
    record,
    session_stream,
    works_on_view,
)
from curtainwall.operations.sessions import Sessions
from curtainwall.policy import denied_among
from curtainwall.runtime import SessionRegistry
from curtainwall.session import MANY_CHANGES, ChangeProposal, SessionState

_LOG = logging.getLogger(__name__)
_AT_ONCE: Final = 256
_MOST_NOTES: Final = 60
_DONE: Final = TurnResult(status=TurnStatus.DONE)
_DROPPED: Final = RuleId("call-dropped")
_STILL_THERE: Final = "the project is as it was, and your changes are still in your view of it"


async def tell_agent(registry: SessionRegistry, masker: Masker, session: SessionId, text: str, key: str) -> None:
    """Tell a session's agent something before its next reply; the same key is told once."""
    note = SendMessage(by=SYSTEM, message=MessageId(registry.mint()), text=masker.mask_text(text), role="context")
    await registry.send(session, note, key)


@record
class _Presentable:
    """The part of a view's changes that people can accept, and remarks about the rest."""

    changes: ChangeSet
    notes: tuple[str, ...]


class ViewReviews:
    """The reviews of the sessions of this process. Fills `ChangeReviews`."""

    def __init__(self, sessions: Sessions, gate: Gate, views: SessionViews, masker: Masker) -> None:
        self._sessions = sessions
        self._registry = sessions.registry
        self._gate = gate
        self._views = views
        self._masker = masker

    async def present(self, at: TurnAt) -> TurnResult | None:
        """Ask once about everything that changed in the session's view; return how the turn ends."""
        state = self._sessions.state(at.session)
        if not works_on_view(state.workspace, state.mode):
            return _DONE
        try:
            changes = await asyncio.to_thread(self._views.changes, _place(state))
            presentable = await self._presentable(state, changes)
            return await self._ask(at, state, presentable)
        except (ViewFailed, TryLater) as fault:
            why = f"the changes in the view of the project could not be presented: {fault}"
            return TurnResult(status=TurnStatus.FAILED, failure=why, fault=type(fault).__name__)

    async def settle(self, at: TurnAt) -> TurnResult | None:
        """Carry out the answer to what this turn presented before a wait; None if the agent has to work on."""
        state = self._sessions.state(at.session)
        proposal = state.proposal
        if proposal is None or proposal.turn != at.turn:
            return None
        if proposal.call in state.calls:
            answer = await self._gate.resume(at.session, proposal.call)
            return await self.present(at) if _DROPPED in answer.verdict.because else await self._ended(at, answer)
        if proposal.is_accepted:
            return _DONE
        return await self._carry_out(at, state, proposal)

    async def finish(self, session: SessionId, call: CallId) -> None:
        """Apply accepted changes that a process left half applied."""
        await self._gate.resume(session, call)

    async def leave(self, session: SessionId) -> None:
        """Unmount the session's view; if that fails, the next use of the view says so."""
        try:
            await asyncio.to_thread(self._views.leave, session)
        except (ViewFailed, OSError) as fault:
            _LOG.warning("the view of session `%s` stays mounted: %s", session, fault)

    async def _tell(self, session: SessionId, text: str, key: str) -> None:
        await tell_agent(self._registry, self._masker, session, text, key)

    async def _presentable(self, state: SessionState, changes: ChangeSet) -> _Presentable:
        # Start-up time: only sessions in review mode present changes.
        from curtainwall.tools.changes import named

        applicable = [change for change in changes.changes if change.is_applicable]
        denied = await self._denied(state, ChangeSet(project=changes.project, changes=tuple(applicable)))
        chosen = tuple(change for change in applicable if change.path not in denied)
        notes = [*_notes(changes), *([named(denied, "a rule or a protected path denies changing it")] if denied else [])]
        if chosen and changes.left_out:
            notes.append(f"files that your own ignore rules leave out: {changes.left_out}")
        more = [f"and {len(notes) - _MOST_NOTES} more remarks like these"] if len(notes) > _MOST_NOTES else []
        masked = tuple(self._masker.mask_text(note) for note in (*notes[:_MOST_NOTES], *more))
        return _Presentable(ChangeSet(project=changes.project, changes=chosen), masked)

    async def _denied(self, state: SessionState, changes: ChangeSet) -> tuple[str, ...]:
        """Return the paths that could not be applied whatever anybody answers."""
        # Start-up time: only sessions in review mode present changes.
        from curtainwall.tools.changes import resources_of

        policy = self._sessions.terms().rules.of_session(state.opened).policy
        denied: list[str] = []
        for number, (path, resources) in enumerate(resources_of(changes).items()):
            if denied_among(policy, APPLY_CHANGES, resources, state.facts):
                denied.append(path)
            if number % _AT_ONCE == 0:
                # There may be thousands, and others must not wait for all of them.
                await asyncio.sleep(0)
        return tuple(denied)

    async def _ask(self, at: TurnAt, state: SessionState, presentable: _Presentable) -> TurnResult | None:
        # Start-up time: only sessions in review mode present changes.
        from curtainwall.tools.changes import manifest_of, resources_of

        changes = presentable.changes
        paths = sum(map(len, resources_of(changes).values()))
        if paths > MANY_CHANGES:
            why = f"the view changes {paths:,} paths, and at most {MANY_CHANGES:,} can be presented; the project is as it was"
            return TurnResult(status=TurnStatus.FAILED, failure=why)
        if not changes.changes:
            if presentable.notes:
                notes = "; ".join(presentable.notes)
                text = f"Nothing that you changed can be applied to the project: {notes}"
                await self._tell(at.session, text, f"left out {_digest(notes)}")
            return _DONE
        if self._is_declined(state, changes):
            return _DONE
        stored = await self._sessions.store.blobs.put(manifest_of(changes))
        arguments: dict[str, JsonValue] = {"changes": stored.digest}
        if presentable.notes:
            arguments["left_out"] = [*presentable.notes]
        request = CallRequest(tool=APPLY_CHANGES, arguments=arguments, turn=at.turn, by_house=True)
        return await self._ended(at, await self._gate.request(at.session, request, wait=False, presence=at.presence))

    def _is_declined(self, state: SessionState, changes: ChangeSet) -> bool:
        """Tell whether a human has not accepted exactly these changes, and the agent was not asked for others."""
        # Start-up time: only sessions in review mode present changes.
        from curtainwall.tools.changes import load_changes

        last = state.proposal
        if last is None or not last.is_over:
            return False
        if last.is_denied:
            # What was discarded was gone from the view, so this is new work, and a person has to see it.
            return not last.comment and not last.discards and last.changes == changes.digest
        if last.only is None:
            return False
        try:
            before = load_changes(self._sessions.store.blobs, last.changes, changes.project)
        except BadCall:
            return False
        accepted = {change.path for change in before.only(last.only).changes}
        rest = tuple(change for change in before.changes if change.path not in accepted)
        return ChangeSet(project=before.project, changes=rest).digest == changes.digest

    async def _ended(self, at: TurnAt, answer: Answer) -> TurnResult:
        if answer.waiting:
            return TurnResult(status=TurnStatus.WAITING, waits_for=(answer.call,))
        if answer.result is None:
            await self._tell(
                at.session, f"Your changes were not applied: {answer.verdict.reason}; {_STILL_THERE}.", f"changes {answer.call}"
            )
        return _DONE

    async def _carry_out(self, at: TurnAt, state: SessionState, proposal: ChangeProposal) -> TurnResult | None:
        """Do what a denial asks for, once, however often the turn is resumed."""
        key = f"changes {proposal.call}"
        if self._registry.stores.inbox.outcome(session_stream(at.session), key) is None:
            left = _STILL_THERE
            if proposal.discards:
                left = await self._discard(state, proposal)
            comment = f' and says: "{proposal.comment}"' if proposal.comment else ""
            words = f"The user did not accept your changes{comment}; {left}." if proposal.is_denied else f"Nobody answered; {left}."
            await self._tell(at.session, words, key)
        return None if proposal.comment else _DONE

    async def _discard(self, state: SessionState, proposal: ChangeProposal) -> str:
        # Start-up time: only sessions in review mode present changes.
        from curtainwall.tools.changes import load_changes

        try:
            changes = load_changes(self._sessions.store.blobs, proposal.changes, state.workspace.path)
            await asyncio.to_thread(self._views.settle, _place(state), changes, apply=False)
        except CurtainwallError as fault:
            return f"they were to be discarded, which failed ({fault})"
        return "the project is as it was, and so is your view of it: your changes were discarded"


def _place(state: SessionState) -> Place:
    """Return the place of a session's view, in which it worked whatever its mode is by now."""
    return replace(state.place, mode=Mode.REVIEW)


def _notes(changes: ChangeSet) -> Iterator[str]:
    """Yield remarks about changes that cannot be applied, those with the same reason together."""
    # Start-up time: only sessions in review mode present changes.
    from curtainwall.tools.changes import named

    reasons: dict[str, list[FileChange]] = defaultdict(list)
    for change in changes.changes:
        if not change.is_applicable:
            reasons[change.refusal or change.conflict].append(change)
    for reason, those in reasons.items():
        yield named([change.path for change in those], reason)
    if changes.git:
        yield named(changes.git, "git directories are never applied as files; commits stay in the view")


def _digest(text: str) -> str:
    return ChangeSet(project=text).digest[:32]
