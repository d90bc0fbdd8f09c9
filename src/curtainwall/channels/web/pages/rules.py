"""The rules page: every rule and how it stands, how often it asked, and a box in which to try a call."""

import re
from collections import Counter
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.web.pages.site import Site, is_piece
from curtainwall.channels.web.ports import CallTrial, WebPorts
from curtainwall.model import ApprovalQuery, CommandRefused, Mode, RuleStatus, SessionId

_ASKS_READ = 2_000
_LONGEST_CALL = 100_000
KINDS = {
    "ask": "a human is asked",
    "deny": "refused, whoever would say yes",
    "allow": "let through without asking",
    "label": "what was touched is remembered",
    "structural": "looked at before any rule; these cannot be switched off",
}
"""The kinds of rules in the order of the page, each with what it means."""


def rule_standings(house: WebPorts, session: SessionId | None) -> Sequence[RuleStatus]:
    """Return every rule as it stands in a session, or in general with how often it asked anywhere."""
    if session is not None:
        return house.line.explaining.rules(session)
    counted = Counter(
        rule
        for row in house.index.approvals(ApprovalQuery(open_only=False, limit=_ASKS_READ))
        for rule in {rule for cover in row.covers for rule in cover.rules}
    )
    return [it.model_copy(update={"asked": counted[it.rule]}) for it in house.judging.rules()]


def _by_kind(rules: Sequence[RuleStatus]) -> Sequence[tuple[str, str, Sequence[RuleStatus]]]:
    groups = ((kind, words, [it for it in rules if it.kind == kind]) for kind, words in KINDS.items())
    return [group for group in groups if group[2]]


class RulePages:
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
            groups=_by_kind(rule_standings(house, session)),
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
        trial = CallTrial(
            tool=told.get("tool", "").strip(),
            arguments=told.get("arguments", "").strip() or "{}",
            project=told.get("project", "").strip(),
            mode=Mode(mode) if mode in tuple(Mode) else Mode.DEFAULT,
            labels=tuple(label for label in re.split(r"[\s,]+", told.get("labels", "")) if label),
        )
        tried = self._site.house.judging.try_call(trial)
        return self._site.piece("tried.html", tried=tried) if is_piece(request) else self._shown(request, None, tried)
