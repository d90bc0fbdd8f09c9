"""Executes what people write on a text channel: messages go to the agent, slash words to the desk."""

from collections.abc import Callable, Iterable, Sequence
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
    ALL_GRANTS,
    OUTSIDE,
    AnswerApproval,
    ApprovalId,
    AskCompaction,
    ChangeMode,
    ChangeModel,
    CloseSession,
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
    ReopenSession,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SetCompaction,
    Who,
    record,
    session_stream,
)

LogPlaces = Callable[[SessionId], Sequence[str]]
"""Describes where a session's log and audit are."""


@record
class SlashResult:
    """The outcome: lines to show, and what the channel should do besides.

    The feed also reports an answer to an ask, with who gave it; a channel that shows the feed need not show these lines. The lines of a
    card must not be wrapped so that part of one passes for a separate line.
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
        """Execute a line; a refusal is a result as well.

        `about` is the one ask that the person saw when they wrote the line: an answer without an id applies only to that one.
        """
        try:
            request = parse(text)
        except SlashUsageError as error:
            return _refused(error)
        return await self.do(session, request, about)

    async def do(self, session: SessionId, request: Request, about: ApprovalId | None = None) -> SlashResult:
        """Execute a request; a refusal is a result as well."""
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
            case want.MoveSteps():
                text = await self._line.steps.move(session, self._who, request.steps, request.code)
                return SlashResult(tuple(plain(text).split("\n")))
            case want.Rename() | want.Close() | want.Enable() | want.Disable() | want.SetMode() | want.SetModel() | want.Budget():
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
                if self._desk.view(session).status == "closed":
                    await self._desk.send(session, ReopenSession(by=self._who), f"reopen {message}")
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
                if request.grant == ALL_GRANTS:
                    return SlashResult(("all grants of this session are taken back; what they answered asks again",))
                return SlashResult((f"grant {plain_line(request.grant)} is taken back; what it answered asks again",))
            case want.Approve():
                approval = request.approval or self._only_ask(session, about)
                await self._desk.send(session, AnswerApproval(by=self._who, approval=approval, granted=True, scope=request.scope))
                how_far = "once" if request.scope is GrantScope.ONCE else f"for the {request.scope}"
                return SlashResult((f"approved {how_far}: {plain_line(approval)}",), answered=approval)
            case want.Deny():
                approval = request.approval or self._only_ask(session, about)
                await self._desk.send(session, AnswerApproval(by=self._who, approval=approval, granted=False, reason=request.reason))
                return SlashResult((f"denied: {plain_line(approval)}",), answered=approval)
            case _:
                assert_never(request)

    def _only_ask(self, session: SessionId, about: ApprovalId | None) -> ApprovalId:
        """Return the only open ask, if it is the one that the answer is about."""
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
            case want.Close():
                await send(session, CloseSession(by=who, reason=request.reason or f"closed by {who}", at_rest=not request.force))
                return SlashResult((f"closed; its log and workspace stay, and `curtainwall start --resume {session}` opens it again",))
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
                return SlashResult(tuple(showing.budget_lines((figure for figure in view.budget if figure.kind is kind), view.exhausted)))
            case _:
                assert_never(request)

    async def _go(self, session: SessionId, request: want.Move) -> SlashResult:
        match request:
            case want.New():
                opening = Opening(how="new", name=request.name)
            case want.Reset():
                opening = Opening(how="reset", of=session, name=request.name)
            case want.Fork():
                opening = Opening(how="fork", of=session, name=request.name)
            case want.Resume(session=""):
                rows = [row for row in self._desk.find(SessionQuery(without_agent=OUTSIDE, by_activity=True)) if row.status != "closed"]
                return SlashResult((*showing.row_lines(rows, session), "`/resume ID` goes to one"))
            case want.Resume():
                row = self._find(request.session)
                return SlashResult((f"session {row.session}, {plain_line(row.name)}",), go_to=row.session)
            case _:
                assert_never(request)
        opened = await self._desk.open(opening, self._who)
        notes = tuple(plain_line(note) for note in opened.notes)
        return SlashResult((f"session {opened.session}", *notes), go_to=opened.session)

    def _find(self, name: str) -> SessionRow:
        """Return the only session whose id starts with this text or, failing that, whose name is this."""
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
                return showing.rule_lines(self._line.explainer.rules(session))
            case want.Why():
                return showing.why_lines(self._line.explainer.why(session, request.about))
            case want.ShowSkills():
                return plain(self._line.knowledge.skills(session)).split("\n")
            case want.ShowMemory():
                return plain(self._line.knowledge.memory(session)).split("\n")
            case want.ShowChanges():
                return plain(self._line.knowledge.changes(session)).split("\n")
            case want.ShowDifference():
                return plain(self._line.knowledge.difference(session, request.path)).split("\n")
            case want.ListSessions():
                rows = self._desk.find(SessionQuery(text=request.text or None, without_agent=OUTSIDE, by_activity=True))
                return [*showing.row_lines(rows, session)] or ["there is no such session"]
            case want.History():
                messages = utterances(self._line.feed, session)
                return [*showing.history_lines(messages, request.count)] or ["nothing was said yet"]
            case want.Logs():
                stream = session_stream(session)
                after = max(self._line.feed.head(stream) - request.count, 0)
                events = self._line.feed.read(stream, after)
                return [*map(plain_line, self._log_places(session)), *map(showing.event_line, events)]
            case want.ShowPending(approval=None):
                asks = self._desk.view(session).pending
                index = next((index for index, ask in enumerate(asks) if ask.approval == request.after), -1)
                if request.after is not None and index < 0:
                    raise NotFound(f"`{request.after}` does not wait for an answer")
                return [*showing.ask_lines(asks[index + 1 :])] or ["nothing waits for an answer"]
            case want.ShowPending():
                ask = next((pending for pending in self._desk.view(session).pending if pending.approval == request.approval), None)
                if ask is None:
                    raise NotFound(f"`{request.approval}` does not wait for an answer")
                return [line.text for line in whole_card(ask)]
            case want.Grants():
                return [*showing.grant_lines(self._desk.view(session).grants)] or ["no answer stands in this session"]
            case _:
                assert_never(request)


def _refused(error: CurtainwallError) -> SlashResult:
    return SlashResult((plain_line(str(error)),), refused=True)
