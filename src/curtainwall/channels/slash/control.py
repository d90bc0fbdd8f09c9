"""Carrying out what somebody wrote on a text channel: a message goes to the agent, a slash word to the desk."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from curtainwall.channels.asks.cards import whole_card
from curtainwall.channels.conversation import utterances
from curtainwall.channels.plain import plain, plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import lines as showing
from curtainwall.channels.slash import requests as want
from curtainwall.channels.slash.requests import Request, SlashUsageError
from curtainwall.channels.slash.words import parse
from curtainwall.model import (
    OUTSIDE,
    AnswerApproval,
    ApprovalId,
    AskCompaction,
    ChangeMode,
    ChangeModel,
    CurtainwallError,
    DisableRule,
    EnableRule,
    GrantScope,
    InterruptTurn,
    Mode,
    NotFound,
    Opening,
    RaiseBudget,
    RenameSession,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SetCompaction,
    Who,
    session_stream,
)

LogPlaces = Callable[[SessionId], Sequence[str]]
"""Tells in words where a session's log and audit are."""


@dataclass(frozen=True, slots=True)
class SlashResult:
    """What came of it: lines to show, and what the channel should do besides.

    An answer to an ask is also told by the feed, with whoever gave it; a channel that shows the feed need not show these lines.
    Those of a card must not be folded so that a part of one passes for a line of its own.
    """

    lines: tuple[str, ...] = ()
    is_card: bool = False
    refused: bool = False
    go_to: SessionId | None = None
    quits: bool = False
    clears: bool = False
    answered: ApprovalId | None = None


class Control:
    """The slash words of one person on one channel."""

    def __init__(self, line: ChannelPorts, who: Who, log_places: LogPlaces) -> None:
        self._line = line
        self._desk = line.desk
        self._who = who
        self._log_places = log_places

    async def take(self, session: SessionId, text: str, about: ApprovalId | None = None) -> SlashResult:
        """Do what somebody wrote; a refusal is an outcome as well.

        `about` is the one ask that they had before them when they wrote it: an answer without an id is for that one, or for none.
        """
        try:
            request = parse(text)
        except SlashUsageError as error:
            return _refused(error)
        return await self.do(session, request, about)

    async def do(self, session: SessionId, request: Request, about: ApprovalId | None = None) -> SlashResult:
        """Do what somebody wants; a refusal is an outcome as well."""
        try:
            return await self._do(session, request, about)
        except CurtainwallError as error:
            return _refused(error)

    async def _do(self, session: SessionId, request: Request, about: ApprovalId | None) -> SlashResult:
        match request:
            case want.Message() | want.Interrupt() | want.Compact() | want.CompactAt():
                return await self._talk(session, request)
            case want.Approve() | want.Deny() | want.Revoke():
                return await self._answer(session, request, about)
            case want.Rename() | want.Enable() | want.Disable() | want.SetMode() | want.SetModel() | want.Budget():
                return await self._set(session, request)
            case want.New() | want.Reset() | want.Fork() | want.Resume():
                return await self._go(session, request)
            case want.Quit():
                return SlashResult(quits=True)
            case want.Clear():
                return SlashResult(clears=True)
            case _:
                return SlashResult(
                    tuple(self._look(session, request)), isinstance(request, want.ShowPending) and request.approval is not None
                )

    async def _talk(self, session: SessionId, request: want.Talk) -> SlashResult:
        match request:
            case want.Message():
                if not request.text.strip():
                    raise SlashUsageError("there is nothing to send")
                message = self._line.new_message()
                await self._desk.send(session, SendMessage(by=self._who, message=message, text=request.text))
                return SlashResult()
            case want.Interrupt():
                await self._desk.send(session, InterruptTurn(by=self._who))
                return SlashResult(("interrupting",))
            case want.Compact():
                await self._desk.send(session, AskCompaction(by=self._who, instructions=request.instructions))
                return SlashResult(("older messages will be summarised before the next turn",))
            case want.CompactAt():
                await self._desk.send(session, SetCompaction(by=self._who, threshold=request.threshold))
                if request.threshold is None:
                    return SlashResult(("the context is never compacted by itself from now on",))
                return SlashResult((f"the context is compacted at {request.threshold * 100:.4g} % from now on",))
            case _:
                assert_never(request)

    async def _answer(self, session: SessionId, request: want.Reply, about: ApprovalId | None) -> SlashResult:
        match request:
            case want.Revoke():
                await self._desk.send(session, RevokeGrant(by=self._who, grant=request.grant))
                return SlashResult((f"grant {plain_line(request.grant)} is taken back; what it answered asks again",))
            case want.Approve():
                approval = request.approval or self._the_one(session, about)
                await self._desk.send(session, AnswerApproval(by=self._who, approval=approval, granted=True, scope=request.scope))
                how_far = "once" if request.scope is GrantScope.ONCE else f"for the {request.scope}"
                return SlashResult((f"approved {how_far}: {plain_line(approval)}",), answered=approval)
            case want.Deny():
                approval = request.approval or self._the_one(session, about)
                await self._desk.send(session, AnswerApproval(by=self._who, approval=approval, granted=False, reason=request.reason))
                return SlashResult((f"denied: {plain_line(approval)}",), answered=approval)
            case _:
                assert_never(request)

    def _the_one(self, session: SessionId, about: ApprovalId | None) -> ApprovalId:
        """Return the only open ask, where that is the one which the answer is about."""
        asks = [ask.approval for ask in self._desk.view(session).pending]
        if not asks:
            raise NotFound("nothing waits for an answer here")
        if about is None or asks != [about]:
            raise SlashUsageError(f"say which: {', '.join(asks)}")
        return about

    async def _set(self, session: SessionId, request: want.Setting) -> SlashResult:
        who, send = self._who, self._desk.send
        match request:
            case want.Rename():
                await send(session, RenameSession(by=who, name=request.name))
                return SlashResult((f"this session is now `{plain_line(request.name)}`",))
            case want.Enable():
                await send(session, EnableRule(by=who, rule=request.rule))
                return SlashResult((f"rule `{plain_line(request.rule)}` asks again",))
            case want.Disable():
                await send(session, DisableRule(by=who, rule=request.rule))
                name = plain_line(request.rule)
                return SlashResult((f"warning: what `{name}` would ask counts as approved in this session; `/enable {name}` ends that",))
            case want.SetMode(mode=None):
                mode = self._desk.view(session).mode
                return SlashResult((f"mode {mode}: {showing.MODES[mode]}", f"there are {', '.join(Mode)}"))
            case want.SetMode(mode=mode):
                assert mode is not None
                await send(session, ChangeMode(by=who, mode=mode))
                return SlashResult((f"mode {mode}: {showing.MODES[mode]}",))
            case want.SetModel(name=""):
                return SlashResult((f"model {plain_line(self._desk.view(session).model)}",))
            case want.SetModel():
                await send(session, ChangeModel(by=who, model=request.name))
                return SlashResult((f"model {plain_line(request.name)} from the next request on",))
            case want.Budget(kind=None):
                view = self._desk.view(session)
                return SlashResult(tuple(showing.budget_lines(view.budget, view.exhausted)))
            case want.Budget(kind=kind):
                assert kind is not None
                await send(session, RaiseBudget(by=who, kind=kind, limit=request.limit))
                view = self._desk.view(session)
                return SlashResult(tuple(showing.budget_lines((it for it in view.budget if it.kind is kind), view.exhausted)))
            case _:
                assert_never(request)

    async def _go(self, session: SessionId, request: want.Move) -> SlashResult:
        match request:
            case want.New():
                wish = Opening(how="new", name=request.name)
            case want.Reset():
                wish = Opening(how="reset", of=session, name=request.name)
            case want.Fork():
                wish = Opening(how="fork", of=session, name=request.name)
            case want.Resume(session=""):
                rows = [row for row in self._desk.find(SessionQuery(without_agent=OUTSIDE)) if row.status != "closed"]
                return SlashResult((*showing.row_lines(rows, session), "`/resume ID` goes to one"))
            case want.Resume():
                found = self._find(request.session)
                return SlashResult((f"session {found.session}, {plain_line(found.name)}",), go_to=found.session)
            case _:
                assert_never(request)
        opened = await self._desk.open(wish, self._who)
        notes = tuple(plain_line(note) for note in opened.notes)
        return SlashResult((f"session {opened.session}", *notes), go_to=opened.session)

    def _find(self, name: str) -> SessionRow:
        """Return the one session whose id starts so, or else that has this name."""
        rows = list(self._desk.find(SessionQuery(prefix=name.casefold()))) or [
            row for row in self._desk.find(SessionQuery(text=name)) if row.name.casefold() == name.casefold()
        ]
        if not rows:
            raise NotFound(f"there is no session `{name}`; `/sessions` lists them")
        if len(rows) > 1:
            raise SlashUsageError(f"`{name}` may be {', '.join(row.session for row in rows[:5])}")
        return rows[0]

    def _look(self, session: SessionId, request: want.Look) -> Iterable[str]:
        match request:
            case want.Help():
                return showing.help_lines(request.word)
            case want.ShowSession():
                return showing.session_lines(self._desk.view(session))
            case want.Context():
                return showing.context_lines(self._desk.view(session).context)
            case want.ShowRules():
                return showing.rule_lines(self._line.explaining.rules(session))
            case want.Why():
                return showing.why_lines(self._line.explaining.why(session, request.about))
            case want.SkillsWanted():
                return plain(self._line.knowledge.skills(session)).split("\n")
            case want.MemoryWanted():
                return plain(self._line.knowledge.memory(session)).split("\n")
            case want.ListSessions():
                rows = self._desk.find(SessionQuery(text=request.text or None, without_agent=OUTSIDE))
                return [*showing.row_lines(rows, session)] or ["there is no such session"]
            case want.History():
                said = utterances(self._line.feed, session)
                return [*showing.history_lines(said, request.count)] or ["nothing was said yet"]
            case want.Logs():
                stream = session_stream(session)
                after = max(self._line.feed.head(stream) - request.count, 0)
                events = self._line.feed.read(stream, after)
                return [*map(plain_line, self._log_places(session)), *map(showing.event_line, events)]
            case want.ShowPending(approval=None):
                asks = self._desk.view(session).pending
                place = next((place for place, ask in enumerate(asks) if ask.approval == request.after), -1)
                if request.after is not None and place < 0:
                    raise NotFound(f"`{request.after}` does not wait for an answer")
                return [*showing.ask_lines(asks[place + 1 :])] or ["nothing waits for an answer"]
            case want.ShowPending():
                ask = next((it for it in self._desk.view(session).pending if it.approval == request.approval), None)
                if ask is None:
                    raise NotFound(f"`{request.approval}` does not wait for an answer")
                return [line.text for line in whole_card(ask)]
            case want.Grants():
                return [*showing.grant_lines(self._desk.view(session).grants)] or ["no answer stands in this session"]
            case _:
                assert_never(request)


def _refused(error: CurtainwallError) -> SlashResult:
    return SlashResult((plain_line(str(error)),), refused=True)
