"""The line below the input, and the one above it that says what runs."""

from collections.abc import Sequence

from curtainwall.channels.asks.cards import ask_in_a_line, call_in_words
from curtainwall.channels.slash.lines import used_words
from curtainwall.channels.terminal.keys import KEY_WORDS
from curtainwall.channels.text.plain import short
from curtainwall.model import BudgetKind, PendingAsk, SessionView
from curtainwall.operations.tale import Tale

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_MILLIS = 100


def status_line(view: SessionView, width: int) -> str:
    """Return model, mode, context, money and open asks; where there is no room, money goes first, and asks stay to the last."""
    parts = {"model": view.model, "mode": f"mode {view.mode}", "context": "", "money": "", "asks": ""}
    if view.context.size > 0:
        parts["context"] = f"context {'' if view.context.measured else '~'}{view.context.used / view.context.size:.0%}"
    for figure in view.budget:
        if figure.kind is BudgetKind.DOLLARS:
            parts["money"] = used_words(figure).replace("unknown", "$?")
    urgent = [f"{len(view.pending)} open {'ask' if len(view.pending) == 1 else 'asks'}"] if view.pending else []
    parts["asks"] = " · ".join([*urgent, *(f"no {kind} left" for kind in view.exhausted)])
    for least in ("", "money", "context", "model", "mode"):
        parts.pop(least, None)
        told = " · ".join(part for part in parts.values() if part)
        if len(told) <= width:
            break
    return short(told, width)


def doing_line(tale: Tale, doing: str, elapsed: int, width: int) -> str:
    """Return what runs now, with a spinner; nothing where nothing runs."""
    if not tale.works:
        return ""
    running = [call_in_words(subject, 60) for subject in tale.running.values()]
    what = "stopping" if tale.interrupting else " + ".join(running) or doing or "thinking"
    hint = "Ctrl-C again leaves" if tale.interrupting else "Ctrl-C interrupts"
    frame = _FRAMES[elapsed // _FRAME_MILLIS % len(_FRAMES)]
    full = f"{frame} {what}  ({hint})"
    return short(full if len(full) <= width else f"{frame} {what}", width)


def asks_lines(asks: list[PendingAsk], width: int, *, keys: bool) -> list[str]:
    """Return how the open asks can be answered."""
    if not asks:
        return []
    if len(asks) == 1:
        ask = asks[0].approval
        if not keys:
            return _folded((f"{ask} waits:", f"`/approve {ask} [session|project]`", f"or `/deny {ask} [reason]`"), " ", width)
        first, *others = KEY_WORDS
        return _folded((f"{ask}? {first}", *others), " · ", width)
    rows = [ask_in_a_line(ask, max(width - 2, 1)) for ask in asks[:5]]
    more = [f"and {len(asks) - 5} more"] if len(asks) > 5 else []
    return [short(f"{len(asks)} asks wait: `/approve ID`, `/deny ID`", width), *(f"  {row}" for row in rows), *more]


def _folded(parts: Sequence[str], between: str, width: int) -> list[str]:
    """Return parts that belong together in as few lines as hold each of them whole."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(between) + len(part) <= width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return [short(line, width) for line in lines]
