"""Template filters and the template environment; text that others wrote is escaped and fully visible."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from pydantic import JsonValue

from curtainwall.channels.asks.cards import call_in_words, scopes_for
from curtainwall.channels.cron import STOPPED
from curtainwall.channels.plain import plain, plain_line, short
from curtainwall.channels.slash.lines import MODES, duration, limit_words, used_words
from curtainwall.channels.web.render.ask_view import ask_view
from curtainwall.channels.web.render.text import as_html, cut
from curtainwall.host.extras import extra
from curtainwall.model import (
    BudgetFigure,
    Millis,
    in_order,
)

with extra("web"):
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup, escape


LONGEST_TEXT = 20_000
_BIGGEST_RESULT = 200_000


def shown(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return a text cut to a length that a page can hold; a cut is stated."""
    return cut(text, limit)


def as_text(value: JsonValue | Mapping[str, JsonValue]) -> str:
    """Return a value as people read it: text as it is, anything else as JSON."""
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2), _BIGGEST_RESULT)


def ticks(text: str) -> Markup:
    """Return one of our sentences with the parts between backticks as code; the parts are escaped, as others may have written them."""
    parts = plain(text).split("`")
    if len(parts) % 2 == 0:
        return escape(plain(text))
    return Markup().join(Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def at_slashes(text: str) -> Markup:
    """Return a path or an address that preferably wraps after its slashes."""
    return Markup("<wbr>").join(f"{piece}/" for piece in plain(text).split("/"))[: -len("/")]


def moment(at: Millis | None) -> str:
    """Return a time as machines read it."""
    return datetime.fromtimestamp((at or 0) / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock(at: Millis | None, *, seconds: bool = False) -> str:
    """Return a time as people read it, to the minute or to the second; another day is named."""
    if not at:
        return ""
    local, today = datetime.fromtimestamp(at / 1000, UTC).astimezone(), datetime.now(UTC).astimezone()
    day = "" if local.date() == today.date() else "%d %b " if local.year == today.year else "%d %b %Y "
    return local.strftime(f"{day}%H:%M{':%S' if seconds else ''}")


def share(figure: BudgetFigure) -> int:
    """Return how much of a budget is used, in percent, at most 100."""
    return min(100, round(100 * figure.used / figure.limit)) if figure.limit > 0 else 100


def firing(status: str) -> str:
    """Return the colour of a firing: that of its session's status, or of what happened instead."""
    return {
        "done": "ok",
        "failed": "fail",
        "interrupted": "warn",
        "skipped": "warn",
        STOPPED: "warn",
        "deleted": "closed",
        "queued": "opening",
        "never fired": "closed",
    }.get(status, status)


def _inert(value: Any) -> Any:
    """Make every text that a template shows fully visible, unless it is HTML that we made."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


@cache
def templates() -> Environment:
    """Return the templates; everything they show is escaped by default."""
    environment = Environment(
        loader=PackageLoader("curtainwall.channels.web"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=_inert,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    cast("dict[str, object]", environment.filters).update(
        {
            "line": plain_line,
            "short": short,
            "cut": shown,
            "markdown": as_html,
            "ticks": ticks,
            "at_slashes": at_slashes,
            "moment": moment,
            "clock": clock,
            "as_text": as_text,
            "in_order": in_order,
            "asked": ask_view,
            "words": call_in_words,
            "limit": limit_words,
            "used": used_words,
            "share": share,
            "firing": firing,
            "as_duration": duration,
        }
    )
    cast("dict[str, object]", environment.globals).update({"MODES": MODES, "scopes_for": scopes_for})
    return environment


def draw(template: str, **values: object) -> str:
    """Render a page or a piece of one."""
    return templates().get_template(template).render(**values)


def draw_all(template: str, each: Sequence[object], **values: object) -> str:
    """Render a piece for each item."""
    loaded = templates().get_template(template)
    return "".join(loaded.render(it=it, **values) for it in each)
