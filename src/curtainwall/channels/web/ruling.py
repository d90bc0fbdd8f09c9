"""The rules page: every rule and how it stands, how often it asked, and a box in which to try a call."""

import re
from collections import Counter
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.plain import plain_line
from curtainwall.channels.web.drawing import clock
from curtainwall.channels.web.house import House, Rule, Trial
from curtainwall.channels.web.site import Site, is_piece
from curtainwall.model import ApprovalQuery, CommandRefused, Mode, RuleDisabled, RuleId, SessionId, SessionView, session_stream

_ASKS_READ = 2_000
_LONGEST_CALL = 100_000
_LABEL = re.compile(r'labels\.contains\("([^"]{1,64})"\)')
_MODE = re.compile(r'context\.mode\s*==\s*"([^"]{1,64})"')
_FILE_ORDER = {"structural": 0, "deny": 1, "ask": 2, "allow": 3, "label": 4}


@dataclass(frozen=True, slots=True)
class Standing:
    """A rule as it stands in a session, or in general: its state in a word, why, and how often it has asked."""

    rule: Rule
    state: str
    why: str
    asked: int
    may_disable: bool


def standings(house: House, session: SessionId | None) -> list[Standing]:
    """Return every rule, structural ones first, as it stands in a session where one is named."""
    counted = Counter(
        rule
        for row in house.index.approvals(ApprovalQuery(session=session, open_only=False, limit=_ASKS_READ))
        for rule in {rule for cover in row.covers for rule in cover.rules}
    )
    view = house.line.desk.view(session) if session else None
    switched = _switched_off(house, session) if session else {}
    found: list[Standing] = []
    for rule in sorted(house.judging.rules(), key=lambda it: _FILE_ORDER.get(it.kind, 9)):
        state, why = _state(rule, view, switched)
        found.append(Standing(rule, state, why, counted[RuleId(rule.id)], rule.kind == "ask"))
    return found


def _state(rule: Rule, view: SessionView | None, switched: dict[str, str]) -> tuple[str, str]:
    if rule.id in switched:
        return "disabled", switched[rule.id]
    labels, modes = set(_LABEL.findall(rule.text)), set(_MODE.findall(rule.text))
    if view is None:
        waits = [f"the label `{it}`" for it in sorted(labels)] + [f"mode `{it}`" for it in sorted(modes)]
        return ("conditional", f"asks only with {' or '.join(waits)}") if waits else ("active", "")
    for source in view.labels:
        if source.label in labels:
            return "active", f"woken by `{source.label}`, set by {f'call {source.call}' if source.call else plain_line(source.origin)}"
    if labels:
        return "inactive", f"until the session has {' or '.join(f'`{it}`' for it in sorted(labels))}"
    if modes and view.mode not in modes:
        return "inactive", f"only in mode {' or '.join(f'`{it}`' for it in sorted(modes))}"
    return "active", ""


def _switched_off(house: House, session: SessionId) -> dict[str, str]:
    """Return the rules that are disabled in a session, with who did so and when."""
    off = set(house.line.desk.view(session).disabled)
    if not off:
        return {}
    told = dict.fromkeys(off, "")
    for recorded in house.line.feed.read(session_stream(session)):
        event = recorded.event
        if isinstance(event, RuleDisabled) and event.rule in off:
            told[event.rule] = f"by {event.by}, {clock(event.at)}"
    return {str(rule): words for rule, words in told.items()}


class Ruling:
    """The rules, and trials of calls."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/rules", self._site.guarded(self._page), methods=["GET"]),
            Route("/rules/try", self._site.guarded(self._try, operators=True), methods=["GET"]),
        ]

    async def _page(self, request: Request) -> Response:
        told = request.query_params.get("session", "")
        session = SessionId(told) if told.isascii() and told.isalnum() and told else None
        return self._shown(request, session, None)

    def _shown(self, request: Request, session: SessionId | None, tried: object) -> Response:
        house = self._site.house
        return self._site.page(
            request,
            "rules.html",
            standings=standings(house, session),
            warnings=house.judging.warnings(),
            tools=house.judging.tools(),
            session=house.line.desk.view(session) if session else None,
            modes=tuple(Mode),
            tried=tried,
            told=request.query_params,
        )

    async def _try(self, request: Request) -> Response:
        told = request.query_params
        if sum(map(len, told.values())) > _LONGEST_CALL:
            raise CommandRefused(f"a call to try has {_LONGEST_CALL:,} characters at most")
        mode = told.get("mode", Mode.DEFAULT)
        trial = Trial(
            tool=told.get("tool", "").strip(),
            arguments=told.get("arguments", "").strip() or "{}",
            project=told.get("project", "").strip(),
            mode=Mode(mode) if mode in tuple(Mode) else Mode.DEFAULT,
            labels=tuple(label for label in re.split(r"[\s,]+", told.get("labels", "")) if label),
        )
        tried = self._site.house.judging.try_call(trial)
        return self._site.piece("tried.html", tried=tried) if is_piece(request) else self._shown(request, None, tried)
