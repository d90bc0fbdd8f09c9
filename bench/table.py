"""Figures as a table for people and as one JSON document for programs."""

import json
from collections.abc import Mapping, Sequence

from bench.measuring import Figure, Target

_HEADINGS = ("name", "ours", "peer or limit", "ratio", "target", "")


def render(figures: Sequence[Figure]) -> str:
    """Return the table as text, with the notes below it."""
    rows = [_HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    notes = [f"{figure.name}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*lines, "", *notes])


def as_json(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """Return everything as one JSON document."""
    told = [
        {
            "name": figure.name,
            "ours": figure.ours,
            "unit": figure.unit,
            "peer": figure.peer,
            "beside": figure.beside,
            "ratio": figure.ratio,
            "target": _target(figure.target, figure.unit),
            "met": figure.met,
            "note": figure.note,
        }
        for figure in figures
    ]
    return json.dumps({"machine": dict(machine), "figures": told}, ensure_ascii=False, indent=1)


def _row(figure: Figure) -> tuple[str, ...]:
    peer = "" if figure.peer is None else f"{_number(figure.peer)} {figure.unit}"
    return (
        figure.name,
        f"{_number(figure.ours)} {figure.unit}",
        f"{peer}{f' ({figure.beside})' if figure.beside else ''}".strip(),
        "" if figure.ratio is None else f"{_number(figure.ratio)} ×",
        _target(figure.target, figure.unit),
        {None: "", True: "met", False: "MISSED"}[figure.met],
    )


def _target(target: Target | None, unit: str) -> str:
    if target is None:
        return ""
    sign = "≤" if target.way == "at most" else "≥"
    return f"{sign} {_number(target.limit)} {'×' if target.of == 'ratio' else unit}"


def _number(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
