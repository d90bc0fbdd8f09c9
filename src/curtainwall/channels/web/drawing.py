"""How things of the house are put into words and pieces for the templates; whatever others wrote is visible and inert."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from pydantic import JsonValue

from curtainwall.channels.cards import CardLine, call_in_words, card_lines, whole_card
from curtainwall.channels.plain import plain, plain_line, short
from curtainwall.channels.slash.showing import MODES, duration, used_words
from curtainwall.channels.web.breaking import cut
from curtainwall.channels.web.items import scopes_for
from curtainwall.channels.web.markdown import as_html
from curtainwall.model import BudgetFigure, BudgetKind, Millis, PendingAsk

LONGEST_TEXT = 20_000
_BIGGEST_RESULT = 200_000


@dataclass(frozen=True, slots=True)
class CardPart:
    """A titled part of a card, such as a difference, or a step of a plan."""

    title: str
    lines: tuple[CardLine, ...]
    is_step: bool = False

    @property
    def is_change(self) -> bool:
        """Tell whether it shows what would be written."""
        return any(line.kind in ("added", "removed", "place") for line in self.lines)


def card_parts(ask: PendingAsk) -> tuple[CardPart, ...]:
    """Return the parts of a card below its head: arguments in both forms, and what would change; of a plan, its steps."""
    parts: list[tuple[str, list[CardLine]]] = []
    for line in card_lines(ask):
        if line.kind == "title":
            parts.append((line.text.removesuffix(":"), []))
        elif parts:
            parts[-1][1].append(line)
    return tuple(CardPart(title, tuple(lines), bool(ask.subject.steps)) for title, lines in parts)


def wanted(ask: PendingAsk) -> tuple[tuple[str, str], ...]:
    """Return what is asked for, as the card says it: the role or another word of ours, and the rest of its line."""
    found: list[tuple[str, str]] = []
    for line in card_lines(ask):
        if line.kind == "title":
            # Below it stand arguments, or the steps of a plan with what each of them wants.
            break
        if line.kind == "rule" and not line.text.startswith("because "):
            role, _, rest = line.text.removeprefix("wants ").partition(" ")
            found.append((role, rest))
    return tuple(found)


def exact(ask: PendingAsk) -> str:
    """Return the exact text that an answer is about."""
    return "\n".join(line.text for line in whole_card(ask))


def shown(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return text of any length in a length that a page can hold; a cut is stated."""
    return cut(text, limit)


def as_text(value: JsonValue | Mapping[str, JsonValue]) -> str:
    """Return a value as people read it: a text as it is, anything else as JSON."""
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2), _BIGGEST_RESULT)


def ticks(text: str) -> Markup:
    """Return a sentence of ours with what stands between backticks set apart; whoever wrote that, it stays text."""
    parts = plain(text).split("`")
    if len(parts) % 2 == 0:
        return escape(plain(text))
    return Markup().join(Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def moment(at: Millis | None) -> str:
    """Return a time as machines read it."""
    return datetime.fromtimestamp((at or 0) / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock(at: Millis | None, *, seconds: bool = False) -> str:
    """Return a time as people here read it, to the minute or to the second; an earlier day is named."""
    if not at:
        return ""
    told, today = datetime.fromtimestamp(at / 1000, UTC).astimezone(), datetime.now(UTC).astimezone()
    day = "" if told.date() == today.date() else "%d %b " if told.year == today.year else "%d %b %Y "
    return told.strftime(f"{day}%H:%M{':%S' if seconds else ''}")


def amount(kind: BudgetKind, value: float) -> str:
    """Return so much of a budget in words."""
    match kind:
        case BudgetKind.DOLLARS:
            return f"${value:,.2f}"
        case BudgetKind.SECONDS:
            return duration(value)
        case BudgetKind.TOKENS | BudgetKind.STEPS:
            return f"{value:,.0f}"


def share(figure: BudgetFigure) -> int:
    """Return how much of a budget is used, in hundredths, never more than all."""
    return min(100, round(100 * figure.used / figure.limit)) if figure.limit > 0 else 100


def firing(status: str) -> str:
    """Return the colour of a firing: that of its session's status, or of what became of it instead."""
    return {"done": "ok", "skipped": "warn", "deleted": "closed", "queued": "opening", "never fired": "closed"}.get(status, status)


def _inert(value: Any) -> Any:
    """Make every text that a template shows visible through and through, unless it is HTML that we made."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


@cache
def templates() -> Environment:
    """Return the templates; what they show is escaped and inert by default."""
    made = Environment(
        loader=PackageLoader("curtainwall.channels.web"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=_inert,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    cast("dict[str, object]", made.filters).update(
        {
            "line": plain_line,
            "short": short,
            "cut": shown,
            "markdown": as_html,
            "ticks": ticks,
            "moment": moment,
            "clock": clock,
            "as_text": as_text,
            "card_parts": card_parts,
            "exact": exact,
            "wanted": wanted,
            "words": call_in_words,
            "used": used_words,
            "share": share,
            "firing": firing,
            "as_duration": duration,
        }
    )
    cast("dict[str, object]", made.globals).update({"MODES": MODES, "amount": amount, "scopes_for": scopes_for})
    return made


def draw(template: str, **values: object) -> str:
    """Return a page or a piece of one."""
    return templates().get_template(template).render(**values)


def draw_all(template: str, each: Sequence[object], **values: object) -> str:
    """Return one piece after the other."""
    found = templates().get_template(template)
    return "".join(found.render(it=it, **values) for it in each)
