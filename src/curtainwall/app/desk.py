"""The desk: what every channel can do with sessions, and how they look from there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from curtainwall.app.crew import Kind
from curtainwall.app.explanations import Explanations
from curtainwall.app.forking import fork
from curtainwall.app.knowledge import memory_lines, notebook_of, shelf_of, skill_lines
from curtainwall.app.openings import Wanted, open_new, reset, state_of
from curtainwall.app.views import view_of
from curtainwall.app.wiring import Wired
from curtainwall.channels.slash import rule_lines, why_lines
from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    ChangeModel,
    CommandRefused,
    Explaining,
    GrantId,
    MessageId,
    Opened,
    Opening,
    Place,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionView,
    Undecided,
    UserPromptSubmit,
    Who,
    project_stream,
    session_stream,
)
from curtainwall.session import SessionState, lift, see_name

Attend = Callable[[SessionId], None]
"""Lets this process look after a session's agent."""

KindOf = Callable[[str], Kind]
"""Finds the kind that an agent of some name is of; raises, with the names there are, where it is of none."""


_PAGE = 500
_WRITTEN = ("text", "reason", "instructions", "name")
"""Where a command holds words of people."""


class HouseDesk:
    """The desk of one process, for every channel in it."""

    def __init__(self, wired: Wired, attend: Attend, kind_of: KindOf, wanted: Wanted, threshold: float | None) -> None:
        self._wired = wired
        self._attend = attend
        self._kind_of = kind_of
        self._wanted = wanted
        self._threshold = threshold
        self.explanations: Explaining = Explanations(wired)

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
            command = await self._heard(session, command, key)
        if isinstance(command, ChangeModel):
            # A name that leads nowhere is refused here, or every turn from now on would fail.
            agent = self._wired.names.of(session)
            self._kind_of(agent).see_model(agent, command.model)
        return await self._wired.house.send(session, command, key)

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        state = self._state(session)
        stream = project_stream(state.workspace.path)
        for_project = tuple(row.grant for row in self._wired.store.index.grants(of=stream))
        return view_of(state, self._told_in(session), self._threshold, for_project)

    def _told_in(self, session: SessionId) -> Iterator[AnyEvent]:
        """Go back through a log, as far as whoever wants to know goes."""
        log, stream = self._wired.store.log, session_stream(session)
        end = log.head(stream)
        while end > 0:
            begin = max(end - _PAGE, 0)
            yield from map(lift, reversed(log.read(stream, begin, end - begin)))
            end = begin

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._wired.store.index.sessions(query)

    async def open(self, wish: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        opened = await self._open(wish, by)
        self._attend(opened.session)
        return opened

    async def begin(self, wanted: Wanted, by: Who) -> Opened:
        """Open a session that is just so, and let its agent work here; what its agent lacks is said before anything is opened."""
        kind = self._kind_of(wanted.agent)
        kind.see_model(wanted.agent, wanted.model)
        await kind.see_that_it_can(wanted.agent)
        session = await open_new(self._wired, wanted, by)
        self._attend(session)
        return Opened(session=session)

    @property
    def usual(self) -> Wanted:
        """What a new session is where nobody says otherwise."""
        return self._wanted

    def explain(self, session: SessionId, what: Literal["rules", "why", "skills", "memory"], about: str = "") -> str:
        """Return in words which rules are in force, why a call was judged as it was, or what skills and notes there are."""
        match what:
            case "rules":
                rules = [rule for rule in self.explanations.rules(session) if about in rule.rule]
                return "\n".join(rule_lines(rules)) or f"no rule has `{about}` in its name"
            case "why":
                return "\n".join(why_lines(self.explanations.why(session, about)))
            case "skills":
                lines = skill_lines(shelf_of(self._wired.setup.home), self._state(session).workspace)
            case "memory":
                lines = memory_lines(notebook_of(self._wired.setup.home), self._state(session).workspace)
        return self._wired.masker.mask_text("\n".join(lines))

    async def _open(self, wish: Opening, by: Who) -> Opened:
        see_name(wish.name)
        if wish.how == "new":
            return Opened(session=await open_new(self._wired, replace(self._wanted, name=wish.name), by))
        if wish.of is None:
            raise CommandRefused(f"say which session to {wish.how}")
        if wish.how == "reset":
            return Opened(session=await reset(self._wired, wish.of, by, wish.name), notes=("grants and credentials stay behind",))
        made = await fork(self._wired, wish.of, by, wish.name)
        shared = f"both sessions work in the same project `{made.workspace}`; what one changes, the other sees"
        return Opened(session=made.session, notes=() if made.copied is not None else (shared,))

    def _masked(self, command: AnyCommand) -> AnyCommand:
        """Return the command with whatever people wrote in it as everyone sees it from here on."""
        written = {name: getattr(command, name, None) for name in _WRITTEN}
        told = {name: self._wired.tools.masked(words) for name, words in written.items() if isinstance(words, str) and words}
        return command.model_copy(update=told) if told else command

    async def _heard(self, session: SessionId, said: SendMessage, key: str | None) -> SendMessage:
        """Pass a message by the user's hooks: they may keep it away from the agent, or add to it."""
        state = self._state(session)
        place = Place(session=session, workspace=state.workspace, mode=state.mode)
        reply = await self._wired.hooks.tell(UserPromptSubmit(prompt=said.text), place)
        if reply.blocked is not None:
            raise CommandRefused(f"a hook keeps this message away from the agent: {reply.blocked}")
        if reply.context:
            note = SendMessage(by=SYSTEM, message=MessageId(self._wired.house.mint()), text=reply.context, role="context")
            # It is kept where nobody decides it now, and the message has to come after it all the same.
            with suppress(Undecided):
                await self._wired.house.send(session, note, None if key is None else f"{key} context")
        return said

    def _state(self, session: SessionId) -> SessionState:
        state = self._wired.house.peek(session)
        return state if state is not None and state.opened is not None else state_of(self._wired, session)


def _stands(state: SessionState, grant: GrantId) -> bool:
    """Tell whether a session has this standing answer, or answers of this plan."""
    return any(grant in (each.id, each.plan) for each in state.grants.values())
