"""The rules page: every rule with its status, how often it asked, and a form to try a call."""

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
"""The kinds of rules in page order, each with its meaning."""


def rule_standings(ports: WebPorts, session: SessionId | None) -> Sequence[RuleStatus]:
    """Return every rule with its status in a session, or in general with how often it asked anywhere."""
    if session is not None:
        return ports.line.explainer.rules(session)
    counts = Counter(
        rule
        for row in ports.index.approvals(ApprovalQuery(open_only=False, limit=_ASKS_READ))
        for rule in {rule for cover in row.covers for rule in cover.rules}
    )
    return [status.model_copy(update={"asked": counts[status.rule]}) for status in ports.trials.rules()]


def _by_kind(rules: Sequence[RuleStatus]) -> Sequence[tuple[str, str, Sequence[RuleStatus]]]:
    groups = ((kind, words, [rule for rule in rules if rule.kind == kind]) for kind, words in KINDS.items())
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
        value = request.query_params.get("session", "")
        session = SessionId(value) if value.isascii() and value.isalnum() and value else None
        return self._shown(request, session, None)

    def _shown(self, request: Request, session: SessionId | None, tried: object) -> Response:
        ports = self._site.ports
        return self._site.page(
            request,
            "rules.html",
            groups=_by_kind(rule_standings(ports, session)),
            warnings=ports.trials.warnings(),
            tools=ports.trials.tools(),
            session=ports.line.desk.view(session) if session else None,
            modes=tuple(Mode),
            tried=tried,
            told=request.query_params,
        )

    async def _try(self, request: Request) -> Response:
        params = request.query_params
        if sum(map(len, params.values())) > _LONGEST_CALL:
            raise CommandRefused(f"a call to try has {_LONGEST_CALL:,} characters at most")
        mode = params.get("mode", Mode.DEFAULT)
        trial = CallTrial(
            tool=params.get("tool", "").strip(),
            arguments=params.get("arguments", "").strip() or "{}",
            project=params.get("project", "").strip(),
            mode=Mode(mode) if mode in tuple(Mode) else Mode.DEFAULT,
            labels=tuple(label for label in re.split(r"[\s,]+", params.get("labels", "")) if label),
        )
        tried = self._site.ports.trials.try_call(trial)
        return self._site.piece("tried.html", tried=tried) if is_piece(request) else self._shown(request, None, tried)
