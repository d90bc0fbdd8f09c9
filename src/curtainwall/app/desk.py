"""The desk: what every channel can do with sessions, and how they look from there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from curtainwall.app.forking import fork
from curtainwall.app.knowledge import memory_lines, notebook_of, shelf_of, skill_lines
from curtainwall.app.openings import Wanted, open_new, reset, state_of
from curtainwall.app.views import view_of
from curtainwall.app.wiring import Wired
from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    CallRequested,
    ChangeModel,
    CommandRefused,
    GrantId,
    MessageId,
    NotFound,
    Opened,
    Opening,
    Place,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionView,
    Subject,
    UserPromptSubmit,
    Who,
    project_stream,
    session_stream,
)
from curtainwall.policy import Policy, explain, judge
from curtainwall.session import SessionState, lift

Attend = Callable[[SessionId], None]
"""Lets this process look after a session's agent."""

SeeModel = Callable[[SessionId, str], None]
"""Raises, with the names there are, where a session's agent cannot use a model of this name."""


_WRITTEN = ("text", "reason", "instructions", "name")
"""Where a command holds words of people."""


class HouseDesk:
    """The desk of one process, for every channel in it."""

    def __init__(self, wired: Wired, attend: Attend, see_model: SeeModel, wanted: Wanted, threshold: float | None) -> None:
        self._wired = wired
        self._attend = attend
        self._see_model = see_model
        self._wanted = wanted
        self._threshold = threshold

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided and return where the log ends then. What people say passes hooks first, and a model must be there."""
        if key is not None and self._wired.store.inbox.outcome(session_stream(session), key) is not None:
            # It was decided before, and hooks have heard it then.
            return await self._wired.house.send(session, command, key)
        if isinstance(command, RevokeGrant) and not _stands(self._state(session), command.grant):
            await self._wired.house.revoke(command.grant, command.by)
            return self._wired.house.feed.head(session_stream(session))
        command = self._masked(command)
        if isinstance(command, SendMessage) and command.role == "human":
            command = await self._heard(session, command)
        if isinstance(command, ChangeModel):
            # A name that leads nowhere is refused here, or every turn from now on would fail.
            self._see_model(session, command.model)
        return await self._wired.house.send(session, command, key)

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        state = self._state(session)
        stream = project_stream(state.workspace.path)
        for_project = tuple(row.grant for row in self._wired.store.index.grants() if row.stream == stream)
        return view_of(state, self._told_in(session), self._threshold, for_project)

    def _told_in(self, session: SessionId) -> Iterator[AnyEvent]:
        for entry in self._wired.store.log.read(session_stream(session)):
            yield lift(entry)

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._wired.store.index.sessions(query)

    async def open(self, wish: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        opened = await self._open(wish, by)
        self._attend(opened.session)
        return opened

    def explain(self, session: SessionId, what: Literal["rules", "why", "skills", "memory"], about: str = "") -> str:
        """Return in words which rules are in force, why a call was judged as it was, or what skills and notes there are."""
        state = self._state(session)
        match what:
            case "rules":
                return self._rules(state, about)
            case "why":
                return self._why(state, about)
            case "skills":
                lines = skill_lines(shelf_of(self._wired.setup.home), state.workspace)
            case "memory":
                lines = memory_lines(notebook_of(self._wired.setup.home), state.workspace)
        return self._wired.masker.mask_text("\n".join(lines))

    async def _open(self, wish: Opening, by: Who) -> Opened:
        if wish.how == "new":
            return Opened(session=await open_new(self._wired, replace(self._wanted, name=wish.name), by))
        if wish.of is None:
            raise CommandRefused(f"say which session to {wish.how}")
        if wish.how == "reset":
            return Opened(session=await reset(self._wired, wish.of, by, wish.name), notes=("grants and credentials stay behind",))
        made = await fork(self._wired, wish.of, wish.name)
        shared = f"both sessions work in the same project `{made.workspace}`; what one changes, the other sees"
        return Opened(session=made.session, notes=() if made.copied is not None else (shared,))

    def _masked(self, command: AnyCommand) -> AnyCommand:
        """Return the command with whatever people wrote in it as everyone sees it from here on."""
        written = {name: getattr(command, name, None) for name in _WRITTEN}
        told = {name: self._wired.tools.masked(words) for name, words in written.items() if isinstance(words, str) and words}
        return command.model_copy(update=told) if told else command

    async def _heard(self, session: SessionId, said: SendMessage) -> SendMessage:
        """Pass a message by the user's hooks: they may keep it away from the agent, or add to it."""
        state = self._state(session)
        place = Place(session=session, workspace=state.workspace, mode=state.mode)
        reply = await self._wired.hooks.tell(UserPromptSubmit(prompt=said.text), place)
        if reply.blocked is not None:
            raise CommandRefused(f"a hook keeps this message away from the agent: {reply.blocked}")
        if reply.context:
            note = SendMessage(by=SYSTEM, message=MessageId(self._wired.house.mint()), text=reply.context, role="context")
            await self._wired.house.send(session, note)
        return said

    def _state(self, session: SessionId) -> SessionState:
        state = self._wired.house.peek(session)
        return state if state is not None and state.opened is not None else state_of(self._wired, session)

    def _policy(self, state: SessionState) -> Policy:
        """Return the rules that hold for a session: the house's, or those of the team that it speaks for."""
        return self._wired.setup.rules.for_team("" if state.opened is None else state.opened.team).policy

    def _rules(self, state: SessionState, about: str) -> str:
        policy = self._policy(state)
        lines = [
            f"{card.kind:<10} {card.id}{' (disabled here)' if card.id in state.disabled else ''}: {card.title}"
            for card in policy.rules
            if about in card.id
        ]
        return "\n".join(lines) or f"no rule has `{about}` in its name"

    def _why(self, state: SessionState, about: str) -> str:
        """Return why an open approval, or a call of the log, is judged as it is now."""
        subject = self._subject(state, about)
        policy = self._policy(state)
        verdict = judge(policy, subject, state.facts)
        told = explain(policy, subject, state.facts, verdict)
        lines = [f"{subject.tool}: {told.effect}"]
        lines += (f"  because of {card.id} ({card.source}): {card.reason or card.title}" for card in told.rules)
        lines += (f"  {fact}" for fact in told.facts)
        lines += (f"  to change it: {change}" for change in told.changes)
        return "\n".join(lines)

    def _subject(self, state: SessionState, about: str) -> Subject:
        for approval, open_ in state.approvals.items():
            if approval == about and open_.calls:
                return state.calls[open_.calls[0]].subject
        assert state.opened is not None
        wanted: Subject | None = None
        for entry in self._wired.store.log.read(session_stream(state.opened.session)):
            event = lift(entry)
            if isinstance(event, CallRequested) and (event.call == about or not about):
                wanted = event.subject
        if wanted is None:
            raise NotFound(f"there is no open approval and no call `{about}` here")
        return wanted


def _stands(state: SessionState, grant: GrantId) -> bool:
    """Tell whether a session has this standing answer, or answers of this plan."""
    return any(grant in (each.id, each.plan) for each in state.grants.values())
