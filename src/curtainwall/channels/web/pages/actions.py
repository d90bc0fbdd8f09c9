"""The forms of the pages: each sends one command to the desk, and the session decides."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.board import Card
from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.plain import plain_line
from curtainwall.channels.slash import WORDS, nearest
from curtainwall.channels.web.forms import choice, number
from curtainwall.channels.web.pages.sessions import new_page
from curtainwall.channels.web.pages.site import Site, form_of, status_of, who
from curtainwall.channels.web.ports import NewSession
from curtainwall.model import (
    ALL_GRANTS,
    AnyCommand,
    ApprovalId,
    AskCompaction,
    BudgetKind,
    ChangeMode,
    ChangeModel,
    CloseSession,
    CommandRefused,
    CurtainwallError,
    DisableRule,
    EnableRule,
    GrantId,
    GrantScope,
    InterruptTurn,
    MessageId,
    Mode,
    NotFound,
    Opening,
    RaiseBudget,
    RenameSession,
    ReopenSession,
    RevokeGrant,
    RuleId,
    SendMessage,
    SessionId,
    WithdrawMessage,
)

_LONGEST_NAME = 200
_LONGEST_MESSAGE = 1_000_000
_ALIKE = 0.75
_MOST_OF_A_BUDGET = 1e15

Act = Callable[[Request, SessionId], Awaitable[Response]]


def _slash_word(name: str) -> str | None:
    """Return the slash word that a message begins with, even misspelled; a path is not one."""
    return name.casefold() if name.casefold() in WORDS else nearest(name, _ALIKE) if "/" not in name else None


_SIDE = "the side of this page"
_CONTROLS = {
    **dict.fromkeys(("mode", "model", "rename", "fork", "reset", "compact", "close", "budget", "grants", "revoke", "session"), _SIDE),
    **dict.fromkeys(("approve", "deny", "pending"), "the inbox"),
    **dict.fromkeys(("rules", "disable", "enable"), "the page of the session's rules"),
    "interrupt": f"while a turn runs, {_SIDE}",
    "history": "this page",
    "logs": "the audit of this session",
    **dict.fromkeys(("sessions", "resume"), "the list of sessions"),
    "new": "the list of sessions",
    "why": "each ask and each call on this page",
}
"""Where the pages do what a slash word does; the other words have no counterpart there."""


class ActionRoutes:
    """The forms of the inbox, of sessions and of grants."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes; people who are not operators may only send messages."""
        guarded = self._site.guarded
        acts: dict[str, Act] = {
            "interrupt": self._interrupt,
            "mode": self._mode,
            "model": self._model,
            "rename": self._rename,
            "close": self._close,
            "budget": self._budget,
            "compact": self._compact,
            "withdraw": self._withdraw,
            "rules": self._rule,
            "revoke-all": self._revoke_all,
            "fork": self._fork,
            "reset": self._reset,
        }
        return [
            Route("/asks/{session}/{approval}", guarded(self._answer, operators=True), methods=["POST"]),
            Route("/grants/{grant}/revoke", guarded(self._revoke, operators=True), methods=["POST"]),
            Route("/sessions/new", guarded(self._begin, operators=True), methods=["POST"]),
            Route("/sessions/{session}/message", guarded(self._message), methods=["POST"]),
            *(
                Route(f"/sessions/{{session}}/{name}", guarded(self._in_session(act), operators=True), methods=["POST"])
                for name, act in acts.items()
            ),
        ]

    def _in_session(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            return await act(request, self._site.session_in(request))

        return run

    async def _send(self, session: SessionId, command: AnyCommand) -> None:
        await self._site.ports.line.desk.send(session, command)
        # Run the agent here if no other process does.
        self._site.ports.starter.attend(session)

    async def _answer(self, request: Request) -> Response:
        form, session = form_of(request), self._site.session_in(request)
        answer, board = form.get("answer", ""), self._site.ports.board
        if answer not in (*GrantScope, "deny"):
            raise CommandRefused("answer with once, session, project or deny")
        granted = answer != "deny"
        scope = choice(GrantScope, answer, "scope") if granted else GrantScope.ONCE
        approval = ApprovalId(request.path_params["approval"])
        card = _as_shown(board.find(approval, session), (session, approval), form.get("upto", ""))
        result = await board.answer(card, granted=granted, by=who(request), scope=scope, reason=form.get("reason", "").strip())
        if not result.counted:
            raise CommandRefused(result.text)
        for asking_session, _ in card.joined:
            self._site.ports.starter.attend(asking_session)
        return self._site.done(request, f"{result.text}, {call_in_words(card.ask.subject, 60)}")

    async def _revoke(self, request: Request) -> Response:
        grant, ports = str(request.path_params["grant"]), self._site.ports
        if not any(row.grant.id == grant for row in ports.index.grants()):
            raise NotFound(f"there is no grant `{plain_line(grant, 40)}` that stands")
        await ports.revoke(GrantId(grant), who(request))
        return self._site.done(request, f"grant {grant} is taken back; what it answered asks again")

    async def _revoke_all(self, request: Request, session: SessionId) -> Response:
        await self._send(session, RevokeGrant(by=who(request), grant=ALL_GRANTS))
        return self._site.done(request, "all grants of this session are taken back; what they answered asks again")

    async def _begin(self, request: Request) -> Response:
        form = form_of(request)
        try:
            mode = choice(Mode, form.get("mode", self._site.ports.starter.mode()), "mode")
            model, workspace, agent = (form.get(key, "").strip() for key in ("model", "workspace", "agent"))
            new_session = NewSession(_name(form.get("name", "")), model, workspace, mode, agent)
            opened = await self._site.ports.starter.begin(new_session, who(request))
        except CurtainwallError as error:
            # Keep the form, so that nobody has to type a long task again.
            return new_page(self._site, request, str(error), status_of(error))
        if task := form.get("task", "").strip():
            await self._say(request, opened.session, task)
        return self._site.done(request, "; ".join(opened.notes), f"/sessions/{opened.session}")

    async def _message(self, request: Request) -> Response:
        session, written = self._site.session_in(request), form_of(request).get("text", "")
        text = written.strip()
        if not text:
            raise CommandRefused("there is nothing to send")
        word = text.split(maxsplit=1)[0] if written.startswith("/") else ""
        if (match := _slash_word(word[1:])) is not None:
            mention = f"`{word}`" if word[1:].casefold() == match else f"`{word}`, or rather `/{match}`,"
            where = _CONTROLS.get(match, "")
            raise CommandRefused(
                f"{mention} is for the terminal and for chats{f'; {where} does that here' if where else ''}; "
                "with a space before it, it is sent as a message"
            )
        await self._say(request, session, text)
        return self._site.done(request, "")

    async def _say(self, request: Request, session: SessionId, text: str) -> None:
        if len(text) > _LONGEST_MESSAGE:
            raise CommandRefused(f"a message has {_LONGEST_MESSAGE:,} characters at most")
        line, message = self._site.ports.line, self._site.ports.line.new_message()
        if line.desk.view(session).status == "closed":
            await self._send(session, ReopenSession(by=who(request)))
        await self._send(session, SendMessage(by=who(request), message=message, text=text))

    async def _interrupt(self, request: Request, session: SessionId) -> Response:
        await self._send(session, InterruptTurn(by=who(request)))
        return self._site.done(request, "interrupting")

    async def _mode(self, request: Request, session: SessionId) -> Response:
        mode = choice(Mode, form_of(request).get("mode", ""), "mode")
        await self._send(session, ChangeMode(by=who(request), mode=mode))
        return self._site.done(request, f"mode {mode}")

    async def _model(self, request: Request, session: SessionId) -> Response:
        model = form_of(request).get("model", "").strip()
        if not model:
            raise CommandRefused("name a model")
        await self._send(session, ChangeModel(by=who(request), model=model))
        return self._site.done(request, f"model {plain_line(model, 100)} from the next request on")

    async def _rename(self, request: Request, session: SessionId) -> Response:
        name = _name(form_of(request).get("name", ""))
        if not name:
            raise CommandRefused("give it a name")
        await self._send(session, RenameSession(by=who(request), name=name))
        return self._site.done(request, f"this session is now `{plain_line(name)}`")

    async def _close(self, request: Request, session: SessionId) -> Response:
        reason = form_of(request).get("reason", "").strip() or f"closed by {who(request)}"
        await self._site.ports.line.desk.send(session, CloseSession(by=who(request), reason=reason))
        # The process that attends a session runs the hooks for its end.
        self._site.ports.starter.attend(session)
        return self._site.done(request, "the session is closed; its log and workspace stay, and a message opens it again")

    async def _budget(self, request: Request, session: SessionId) -> Response:
        form = form_of(request)
        kind = choice(BudgetKind, form.get("kind", ""), "budget")
        limit = number(form.get("limit", ""), 0, _MOST_OF_A_BUDGET, "a budget")
        limit = limit if kind is BudgetKind.DOLLARS else float(math.ceil(limit))
        await self._send(session, RaiseBudget(by=who(request), kind=kind, limit=limit))
        return self._site.done(request, f"the budget of {kind} is {limit:,.10g} now")

    async def _compact(self, request: Request, session: SessionId) -> Response:
        await self._send(session, AskCompaction(by=who(request), instructions=form_of(request).get("instructions", "").strip()))
        return self._site.done(request, "older messages will be summarised before the next turn")

    async def _withdraw(self, request: Request, session: SessionId) -> Response:
        message = MessageId(form_of(request).get("message", ""))
        await self._send(session, WithdrawMessage(by=who(request), message=message))
        return self._site.done(request, "the message is taken back")

    async def _rule(self, request: Request, session: SessionId) -> Response:
        form = form_of(request)
        rule, enables = RuleId(form.get("rule", "")), form.get("wish") == "enable"
        command = EnableRule(by=who(request), rule=rule) if enables else DisableRule(by=who(request), rule=rule)
        await self._send(session, command)
        name = plain_line(rule, 100)
        return self._site.done(
            request, f"rule `{name}` asks again" if enables else f"what `{name}` would ask counts as approved in this session"
        )

    async def _fork(self, request: Request, session: SessionId) -> Response:
        return await self._opened(request, Opening(how="fork", of=session, name=_name(form_of(request).get("name", ""))))

    async def _reset(self, request: Request, session: SessionId) -> Response:
        return await self._opened(request, Opening(how="reset", of=session, name=_name(form_of(request).get("name", ""))))

    async def _opened(self, request: Request, opening: Opening) -> Response:
        opened = await self._site.ports.line.desk.open(opening, who(request))
        return self._site.done(request, "; ".join(opened.notes), f"/sessions/{opened.session}")


def _as_shown(card: Card, own: Key, upto: str) -> Card:
    """Return a card with the asks that the person was shown: only its own, or the identical ones up to the last on the card."""
    if not upto:
        return replace(card, session=own[0], approval=own[1], joined=(own,))
    shown = [" ".join(key) for key in card.joined]
    if upto not in shown:
        raise CommandRefused("the asks on this card are not those that were shown any more; look again")
    return replace(card, joined=card.joined[: shown.index(upto) + 1])


def _name(text: str) -> str:
    name = " ".join(text.split())
    if len(name) > _LONGEST_NAME:
        raise CommandRefused(f"a name has {_LONGEST_NAME} characters at most")
    return name
